"""A bit flips in any file of anything that is kept: an error, or the very same values.

Commands over damaged files are in `tests/faults/damage.py`; here everything that a reader gives is
compared, down to attributes and texts.
"""

from __future__ import annotations

import warnings
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import xarray as xr

import croma_dask as cd
from croma_dask.cohort.checksums import ATTR
from croma_dask.cohort.location import Location
from croma_dask.cohort.store import StoredCohort
from croma_dask.errors import StoreError
from croma_dask.index import descent_arrays
from croma_dask.index.array_files import read_arrays, read_rows, write_arrays, write_rows
from croma_dask.index.kept import ARRAYS
from croma_dask.index.kept_lists import find_kept
from croma_dask.index.stored import StoredIndex
from croma_dask.results import open_result, save

N, D = 300, 8
FLIPS = 6
"""Of each file of a folder."""

Read = Callable[[Path], dict[str, Any]]


@dataclass(frozen=True)
class Kind:
    """What is kept, and a reader that gives all of it."""

    make: Callable[[Path], Path]
    read: Read


def _plain(values: Any) -> Any:
    """Values that compare by their bits."""
    array = np.asarray(values)
    if array.dtype.kind in "OUT":
        return array.tolist()
    return str(array.dtype), array.shape, array.tobytes()


def _attrs(attrs: Any) -> dict[str, Any]:
    return {name: _plain(value) for name, value in attrs.items() if name != ATTR}


def _manifest(*, paired: bool) -> dict[str, list[str]]:
    at = [i % 150 if paired else i for i in range(N)]
    columns = {
        "sample_id": [f"s{i}" for i in at],
        "label": ["ab"[i % 2] for i in at],
        "center": [("ä", "y", "z")[i % 3] for i in at],
        "group_id": [f"g{i // 10}" for i in at],
    }
    return columns | ({"subset": ["p"] * 150 + ["q"] * 150} if paired else {})


def _rows(*, paired: bool) -> np.ndarray:
    x = np.random.default_rng(1).standard_normal((N, D)).astype("f4")
    return np.concatenate([x[:150], x[:150]]) if paired else x


def _cohort(folder: Path, *, paired: bool = False) -> Path:
    place = folder / "cohort.zarr"
    cd.write_cohort(place, _rows(paired=paired), _manifest(paired=paired), chunk_rows=64)
    return place


def _index(folder: Path, kind: str) -> Path:
    place = folder / "index.zarr"
    how = {"cluster_rows": 30, "shard_rows": 120}
    cd.build_index(_cohort(folder), kind=kind, path=place, quiet=True, **how)
    return place


def _kept(folder: Path) -> Path:
    _score(folder, keep_neighbors=folder / "kept.zarr")
    return folder / "kept.zarr"


def _score(folder: Path, **how: Any) -> Any:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return cd.score(_cohort(folder), confounder="center", quiet=True, **how)


def _result(folder: Path, name: str) -> Path:
    save(_score(folder), folder / name)
    return folder / name


def _made_result(folder: Path, name: str) -> Path:
    """One that nobody had to score; of values that have checksums of their own in netCDF, too."""
    rng = np.random.default_rng(0)
    made = xr.Dataset(
        {"sample_values": ("sample", rng.standard_normal(9000)), "value": 0.5},
        {"label": ("sample", np.array(["a", "ä", ""] * 3000, dtype=object))},
        {"croma_dask_version": cd.__version__, "metric": "RI", "alpha": 0.1},
    )
    save(made, folder / name)
    return folder / name


def _scratch_arrays(folder: Path) -> Path:
    arrays = {"met": np.arange(9) < 4, "x": np.arange(60.0).reshape(12, 5), "name": np.array("ä")}
    with open(folder / "lists.npz", "wb") as file:
        write_arrays(file, arrays)
    return folder / "lists.npz"


def _scratch_rows(folder: Path) -> Path:
    write_rows(folder / "index.bin", np.arange(90_000, dtype=np.int32).reshape(-1, 3))
    return folder / "index.bin"


def _read_cohort(place: Path) -> dict[str, Any]:
    store = StoredCohort(place)
    found = {
        "attrs": _attrs(store.attrs),
        "one": _plain(store.read_tiles(5, 6)),
        "rows": _plain(store.read_tiles(0, store.n_tiles)),
        "tiles": _plain(store.tile_of_sample()),
    }
    for column in store.columns:
        found[column] = _plain(store.text(column)), _plain(store.codes(column)[0])
    return found


def _read_index(place: Path) -> dict[str, Any]:
    index = StoredIndex(str(place))
    found: dict[str, Any] = {"attrs": _attrs(index.attrs), "rows": _plain(index.read(0, N))}
    for name in index.partition.__dataclass_fields__:
        found[name] = _plain(getattr(index.partition, name))
    for number in range(index.partition.n_shards if index.kind == "pynndescent" else 0):
        group, found[f"parameters {number}"] = index.descent(number)
        for name, dtype in descent_arrays.ARRAYS.items():
            found[f"{name} {number}"] = _plain(descent_arrays.read(group, name, dtype))
    return found


def _read_kept(place: Path) -> dict[str, Any]:
    kept = find_kept(Location.of(place))
    if kept is None:  # as where there are none: they are searched anew
        raise StoreError("there are none")
    found = {"attrs": _attrs(kept.attrs), "sum": _plain(kept.profile.unit_sum)}
    for part, names in ARRAYS.items():
        for name in names:
            width = int(kept.array(name).shape[1])
            found[name] = _plain(kept.read(name, part, 0, N, width))
    return found


def _variables(dataset: Any) -> dict[str, Any]:
    return {
        str(name): (_plain(variable.values), _attrs(variable.attrs))
        for name, variable in dataset.variables.items()
    }


def _read_neighbors(place: Path) -> dict[str, Any]:
    with cd.open_neighbors(place) as found:
        return {"": _attrs(found.attrs), **_variables(found)}


def _read_result(place: Path) -> dict[str, Any]:
    result = open_result(place)
    try:
        nodes = getattr(result, "subtree", None)
        if nodes is None:
            return {"": _attrs(result.attrs), **_variables(result)}
        return {node.path: (_attrs(node.attrs), _variables(node)) for node in nodes}
    finally:
        result.close()


KINDS = {
    "cohort": Kind(_cohort, _read_cohort),
    "paired cohort": Kind(lambda folder: _cohort(folder, paired=True), _read_cohort),
    "ivf index": Kind(lambda folder: _index(folder, "ivf"), _read_index),
    "pynndescent index": Kind(lambda folder: _index(folder, "pynndescent"), _read_index),
    "kept neighbours": Kind(_kept, _read_kept),
    "kept neighbours, opened": Kind(_kept, _read_neighbors),
    "result.zarr": Kind(lambda folder: _result(folder, "result.zarr"), _read_result),
    "result.nc": Kind(lambda folder: _result(folder, "result.nc"), _read_result),
    "made.zarr": Kind(lambda folder: _made_result(folder, "made.zarr"), _read_result),
    "made.nc": Kind(lambda folder: _made_result(folder, "made.nc"), _read_result),
    "scratch arrays": Kind(_scratch_arrays, lambda path: {
        name: _plain(array) for name, array in read_arrays(path).items()
    }),
    "scratch rows": Kind(_scratch_rows, lambda path: {
        "": _plain(read_rows(path, np.int32, 0, 30_000, 3)),
        "some": _plain(read_rows(path, np.int32, 29_000, 29_001, 3)),
    }),
}  # fmt: skip


def _flipped(
    place: Path, read: Read, rng: np.random.Generator, per_file: int, most_files: int | None = None
) -> Iterator[str]:
    """Flip bits of all files, one at a time; yield what came of each."""
    expected = read(place)
    assert read(place) == expected
    files = sorted(p for p in (place.rglob("*") if place.is_dir() else [place]) if p.is_file())
    if most_files is not None and len(files) > most_files:
        files = [files[i] for i in rng.permutation(len(files))[:most_files]]
    for file in files:
        raw = file.read_bytes()
        for bit in rng.integers(0, 8 * len(raw), per_file if raw else 0).tolist():
            hurt = bytearray(raw)
            hurt[bit // 8] ^= 1 << bit % 8
            file.write_bytes(hurt)
            try:
                found = read(place)
            except StoreError:
                yield "refused"
            except OSError as err:
                # Of chunks of netCDF it is HDF5 that says so.
                if place.suffix != ".nc" or "filter returned failure" not in str(err):
                    raise
                yield "refused by HDF5"
            else:
                assert found == expected, (file, bit)
                yield "the same"
        file.write_bytes(raw)


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
def test_flipped_bit__in_any_file_is_an_error_or_changes_nothing(
    kind: str, tmp_path: Path, rng: np.random.Generator
) -> None:
    place = KINDS[kind].make(tmp_path)
    flips = FLIPS if place.is_dir() else 400
    found = Counter(_flipped(place, KINDS[kind].read, rng, flips))
    print(kind, dict(found))
    assert found["refused"] + found["refused by HDF5"] > found.total() // 4


@pytest.mark.parametrize("kind", ["cohort", "made.zarr", "made.nc", "scratch arrays"])
def test_flipped_bit__in_some_file_is_an_error_or_changes_nothing(
    kind: str, tmp_path: Path, rng: np.random.Generator
) -> None:
    place = KINDS[kind].make(tmp_path)
    flips = 1 if place.is_dir() else 8
    found = Counter(_flipped(place, KINDS[kind].read, rng, flips, most_files=8))
    assert found["refused"] > 0
