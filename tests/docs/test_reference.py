"""The API reference holds every public name, and the site every page."""

from __future__ import annotations

import importlib
import re
from pathlib import Path

import pytest

import croma_dask as cd
from croma_dask.cli import main

DOCS = Path(__file__).resolve().parents[2] / "docs"
REFERENCE = "\n".join(page.read_text(encoding="utf-8") for page in (DOCS / "api").glob("*.md"))
DIRECTIVE = r"^\.\. (?:auto|py:)(?:function|class|exception|data):: (?:{module}\.)?{name}$"


def is_in_reference(module: str, name: str) -> bool:
    pattern = DIRECTIVE.format(module=re.escape(module), name=re.escape(name))
    return re.search(pattern, REFERENCE, flags=re.MULTILINE) is not None


@pytest.mark.parametrize("name", cd.__all__)
def test_reference__has_every_public_name(name: str) -> None:
    assert is_in_reference("croma_dask", name)


@pytest.mark.parametrize("module", ["downstream", "plotting"])
def test_reference__has_the_names_of_public_modules(module: str) -> None:
    names = set(importlib.import_module(f"croma_dask.{module}").__all__) - set(cd.__all__)
    assert [name for name in names if not is_in_reference(f"croma_dask.{module}", name)] == []


def test_reference__commands_are_generated_from_the_program() -> None:
    """So that none can be forgotten; here is that there are some."""
    assert {"ingest", "info", "plan", "score", "index", "probe", "benchmark", "rank"} <= set(
        main.commands
    )
    assert "def help_of" in (DOCS / "conf.py").read_text(encoding="utf-8")


def test_site__has_every_page_in_its_tree() -> None:
    shown = set()
    for page in [DOCS / "index.md", DOCS / "api" / "index.md"]:
        text = page.read_text(encoding="utf-8")
        for tree in re.findall(r"```\{toctree\}\n(.*?)```", text, flags=re.DOTALL):
            lines = [line for line in tree.splitlines() if line and not line.startswith(":")]
            shown |= {(page.parent / f"{line}.md").resolve() for line in lines}
    pages = {page.resolve() for page in [*DOCS.glob("*.md"), *(DOCS / "api").glob("*.md")]}
    assert pages - shown == {(DOCS / "index.md").resolve()}
    assert [page for page in shown if not page.exists()] == []
