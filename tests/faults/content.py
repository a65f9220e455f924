"""What lies at a place: nothing, something that is refused, or content, bit for bit."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import numpy as np

_TIMES = ("created", "created_at", "layout_checksum")
"""Attributes that say when something was made; and a digest of such, which opening checks."""

_TIME = rb"\d{4}-\d\d-\d\d[T ]\d\d:\d\d(:\d\d)?(\.\d+)?(Z|\+00:00| UTC)"

_NAMES = ("global_id", "typed_id", "neighbors_reused")
"""Attributes that are drawn at random, and the one that says what a run before has left for it."""

REFUSED = "refused: "


def look(place: Path) -> dict[str, str]:
    """Open what lies at a place as a user would, and read all of it.

    Returns
    -------
    dict
        Of the place, or of each table of a folder of tables: ``refused: ...`` with the message,
        where the library refuses to open it or to read it; otherwise a digest of every value, name
        and attribute but the times. Empty where nothing is.

    Raises
    ------
    Exception
        Whatever is no refusal: a defect.
    """
    from croma_dask.errors import CromaDaskError

    if not place.exists():
        return {}
    if place.is_dir() and not place.suffix:
        return {
            str(path.relative_to(place)): _digest([path.read_bytes()]) for path in tables(place)
        }
    try:
        return {"": _digest(_parts(place))}
    except (CromaDaskError, OSError) as err:
        return {"": f"{REFUSED}{err}"}


def tables(folder: Path) -> list[Path]:
    """Tables of a benchmark: what it does not hide."""
    return [
        path
        for path in sorted(folder.rglob("*"))
        if path.is_file() and not any(p.startswith(".") for p in path.relative_to(folder).parts)
    ]


def _digest(parts: Iterable[object]) -> str:
    digest = hashlib.sha256()
    for part in parts:
        data = part if isinstance(part, bytes) else repr(part).encode()
        digest.update(len(data).to_bytes(8, "little") + data)
    return digest.hexdigest()


def _parts(place: Path) -> Iterable[object]:
    kind = place.name.split(".")[0].split("-")[0]
    if kind == "cohort":
        return _cohort(place)
    if kind == "index":
        return _index(place)
    if kind == "kept":
        return _kept(place)
    if place.suffix in (".zarr", ".nc"):
        return _result(place)
    return [_plain(place)]


def _plain(place: Path) -> bytes:
    """Bytes of a file without the times that a page tells."""
    return re.sub(_TIME, b"TIME", place.read_bytes())


def _cohort(place: Path) -> Iterable[object]:
    from croma_dask.cohort.store import StoredCohort

    cohort = StoredCohort(str(place))
    cohort.verify()
    yield _attrs(cohort.attrs)
    yield from _group(place)


def _index(place: Path) -> Iterable[object]:
    from croma_dask.build import open_index

    open_index(place)
    yield from _group(place)


def _group(place: Path) -> Iterable[object]:
    import zarr

    root = zarr.open_group(str(place), mode="r")
    yield _attrs(dict(root.attrs))
    for name, member in sorted(root.members(max_depth=None)):
        yield name
        yield _attrs(dict(member.attrs))
        if isinstance(member, zarr.Array):
            yield from _array(np.asarray(member[...]))


def _kept(place: Path) -> Iterable[object]:
    from croma_dask.index.kept import open_neighbors

    with open_neighbors(place) as found:
        yield from _dataset(found)


def _result(place: Path) -> Iterable[object]:
    import croma_dask as cd

    with cd.open_result(place) as result:
        for node in getattr(result, "subtree", [result]):
            yield getattr(node, "path", "/")
            yield from _dataset(node.to_dataset() if hasattr(node, "to_dataset") else node)


def _dataset(dataset: Any) -> Iterable[object]:
    yield _attrs(dataset.attrs)
    for name in sorted(map(str, dataset.variables)):
        variable = dataset.variables[name]
        yield from (name, variable.dims, _attrs(variable.attrs))
        yield from _array(np.asarray(variable.values))


def _array(values: Any) -> Iterable[object]:
    yield from (str(values.dtype), values.shape)
    yield repr(values.tolist()) if values.dtype.kind in "OUT" else values.tobytes()


def _attrs(attrs: Mapping[Any, Any]) -> str:
    told = {str(k): v for k, v in attrs.items() if k not in _TIMES and k not in _NAMES}
    return json.dumps(told, sort_keys=True, default=repr)
