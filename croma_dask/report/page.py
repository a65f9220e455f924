"""One self-contained page: its parts put together, and written whole or not at all."""

from __future__ import annotations

import base64
import contextlib
import hashlib
import html
import os
import re
from collections.abc import Mapping
from importlib.resources import files
from pathlib import Path
from typing import Any

from croma_dask.cohort.location import Location
from croma_dask.cohort.uploads import check_writable
from croma_dask.errors import SchemaError
from croma_dask.report.encode import Blocks, for_script
from croma_dask.whole_files import replacing

__all__ = ["SCRIPTS", "check_page_target", "render", "write_page"]

SCRIPTS = (
    "dom", "format", "arrays", "order", "statistics", "histogram", "table", "charts", "lines",
    "head", "summary", "views", "names", "explorer_chart", "explorer", "breakdowns", "degradation",
    "about", "others", "main",
)  # fmt: skip
"""Scripts of the page, in the order in which they need each other."""

ENDINGS = (".html", ".htm")

_GENERATOR = '<meta name="generator" content="croma-dask '


def asset(name: str) -> str:
    """Text of a file below ``assets``."""
    return (files("croma_dask.report") / "assets" / name).read_text(encoding="utf-8")


def render(payload: dict[str, Any], blocks: Blocks) -> str:
    """Fill the template.

    Parameters
    ----------
    payload
        What the page shows; ``title`` and ``version`` among it.
    blocks
        What it carries in bulk.

    Returns
    -------
    str
        HTML. Its policy allows the two scripts and the one style sheet that stand in it, by their
        hashes, and no request of any kind.
    """
    style = asset("page.css")
    library = asset("echarts/echarts.common.min.js")
    parts = "\n".join(asset(f"js/{name}.js") for name in SCRIPTS)
    script = f'"use strict";\n(() => {{\n{parts}}})();\n'
    policy = (
        f"default-src 'none'; script-src {_hash(library)} {_hash(script)}; "
        f"style-src {_hash(style)}; base-uri 'none'; form-action 'none'"
    )
    filled = {
        "policy": policy,
        "version": html.escape(str(payload["version"])),
        "title": html.escape(str(payload["title"])),
        "style": style,
        "payload": for_script(payload),
        "blocks": "\n".join(
            f'<script type="text/plain" id="block-{i}">{content}</script>'
            for i, content in enumerate(blocks.content)
        ),
        "library": library,
        "script": script,
    }
    # In one pass: what is filled in is never looked through for places to fill.
    pieces = re.split(r"\{\{(\w+)\}\}", asset("page.html"))
    return "".join(filled[piece] if i % 2 else piece for i, piece in enumerate(pieces))


def _hash(text: str) -> str:
    digest = hashlib.sha256(text.encode("utf-8")).digest()
    return f"'sha256-{base64.b64encode(digest).decode('ascii')}'"


def check_page_target(
    path: str | os.PathLike[str],
    *,
    overwrite: bool = False,
    storage_options: Mapping[str, Any] | None = None,
) -> Path | Location:
    """Check where a page is to go, before it is made.

    Returns
    -------
    pathlib.Path or Location
        `path`; the latter of a URL. A link stays one: what it points to is written.

    Raises
    ------
    SchemaError
        The ending is not ``.html``; the folder is not there or closed; no file can have that name;
        something is there already that may not be overwritten: only reports ever are.
    StoreError
        There is no such bucket, or nothing may be written into it.
    """
    location = Location.of(path, storage_options)
    shown = repr(str(path)) if location.is_local else repr(location.url)
    suffix = Path(location.name).suffix
    if suffix.lower() not in ENDINGS:
        raise SchemaError(f"report {shown} ends in {suffix!r}; expected {' or '.join(ENDINGS)}")
    target = Path(path) if location.is_local else location
    begin = _begin_here(Path(path), shown) if location.is_local else _begin_there(location)
    if begin is None:
        return target
    if not overwrite:
        raise SchemaError(f"{shown} exists already; remove it or pass overwrite=True (--overwrite)")
    if _GENERATOR.encode() not in begin:
        raise SchemaError(
            f"{shown} exists and is no report of croma-dask: it is not overwritten; choose "
            "another name or remove it yourself"
        )
    return target


def _begin_here(target: Path, shown: str) -> bytes | None:
    """First bytes of what is there; None where nothing is."""
    place = _place_of(target)
    if not place.parent.is_dir():
        raise SchemaError(f"the folder of {shown} does not exist; make it first")
    if not os.access(place.parent, os.W_OK):
        raise SchemaError(f"nothing may be written into the folder of {shown}")
    if not place.exists():
        return None
    if not place.is_file():
        return b""
    with place.open("rb") as f:
        return f.read(4096)


def _begin_there(location: Location) -> bytes | None:
    check_writable(location)
    about = location.about()
    if about is None:
        return None
    return location.read_start(4096) if about["type"] == "file" else b""


def _place_of(target: Path) -> Path:
    """Where a file of that name really goes, links followed.

    Raises
    ------
    SchemaError
        None can be there: the name is too long or not of this file system, or links go round.
    """
    try:
        place = target.resolve()
        with contextlib.suppress(FileNotFoundError, NotADirectoryError):
            os.stat(place)
    except (OSError, RuntimeError, ValueError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        raise SchemaError(f"no file can be called {str(target)!r}: {reason}") from None
    return place


def write_page(text: str, target: Path | Location) -> None:
    """Write a page beside its place, and put it there by one rename; at a URL as one object."""
    if isinstance(target, Location):
        target.parent.write_bytes(target.name, text.encode("utf-8"))
        return
    with replacing(_place_of(target)) as partial:
        partial.write_bytes(text.encode("utf-8"))
