"""Targets: what this library has written itself, and what somebody may have changed since.

Cohort stores, indexes and kept neighbours. A store comes from others as often as a manifest does.
"""

from __future__ import annotations

import contextlib
import functools
import json
import random
import shutil
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from tests.fuzz.harness import Target

__all__ = ["TARGETS"]

N = 60


def cohort() -> tuple[Any, pd.DataFrame]:
    rng = np.random.default_rng(1)
    at = np.arange(N)
    frame = pd.DataFrame(
        {
            "sample_id": [f"s{i}" for i in at],
            "label": np.array(["tumour", "é"], object)[at % 2],
            "center": np.array(["A", "B"], object)[at // 2 % 2],
            "scanner": np.array(["x", "y", ""], object)[at // 2 % 3],
            "group_id": [f"g{i // 3}" for i in at],
            "note": [f"text {i}" if i % 2 else "" for i in at],
        }
    )
    return rng.normal(size=(N, 4)).astype(np.float32), frame


@functools.cache
def made() -> Path:
    """Make a store with all that lies beside one, once a process."""
    import croma_dask as cd

    folder = Path(tempfile.mkdtemp(prefix="croma_dask_seeds_"))
    x, frame = cohort()
    cd.write_cohort(str(folder / "plain.zarr"), x, frame, chunk_rows=16)
    paired = pd.concat([frame.assign(subset="a"), frame.assign(subset="b")], ignore_index=True)
    cd.write_cohort(str(folder / "paired.zarr"), np.concatenate([x, x]), paired)
    cd.build_index(str(folder / "plain.zarr"), kind="ivf", cluster_rows=16, quiet=True)
    cd.score(
        cd.open_cohort(str(folder / "plain.zarr")), confounder="center", k_candidates=(3,), m=2,
        quiet=True, keep_neighbors=str(folder / "kept.zarr"), metrics=("RI", "CRoMa"),
    )  # fmt: skip
    return folder


def copy(name: str, *, into: str | None = None) -> Callable[[Path], None]:
    def seeds(folder: Path) -> None:
        shutil.copytree(made() / name, folder / (into or name))

    return seeds


# --- metadata that would like to be believed ---

HOSTILE_ROOT: list[dict[str, Any]] = [
    {"columns": json.dumps([{"name": "label", "kind": "category", "array": "../../outside"}])},
    {"columns": json.dumps([{"name": "label", "kind": "category", "array": "/etc"}])},
    {"columns": "[" * 100_000},
    {"columns": json.dumps([1, None, {}])},
    {"columns": json.dumps([{"name": n, "kind": "x", "array": "column_0"} for n in ("a", "a")])},
    {"columns": 7, "fingerprint": None, "source": [], "format_version": "1"},
    {"format_version": 1e999, "created_by": {"a": [1] * 1000}},
    {"source": "[" * 50_000},
]

HOSTILE_ARRAY: list[dict[str, Any]] = [
    {"shape": [10**15, 4]},
    {"shape": [N, 10**12]},
    {"shape": [-1, 4]},
    {"shape": [0, 0]},
    {"shape": []},
    {"shape": [N]},
    {"shape": [N, 4.5]},
    {"chunk_grid": {"name": "regular", "configuration": {"chunk_shape": [10**12, 4]}}},
    {"chunk_grid": {"name": "regular", "configuration": {"chunk_shape": [0, 4]}}},
    {"chunk_grid": {"name": "regular", "configuration": {"chunk_shape": [1]}}},
    {"codecs": []},
    {"codecs": [{"name": "numcodecs.pickle", "configuration": {}}]},
    {"codecs": [{"name": "os.system", "configuration": {"a": "b"}}]},
    {"data_type": "complex128"},
    {"data_type": "string"},
    {"data_type": {"name": "numpy.datetime64", "configuration": {"unit": "s", "scale_factor": 1}}},
    {"node_type": "group"},
    {"fill_value": 0},
    {"chunk_key_encoding": {"name": "default", "configuration": {"separator": ".."}}},
    {"chunk_key_encoding": {"name": "v2", "configuration": {"separator": "/"}}},
    {"dimension_names": ["../..", None]},
    {"storage_transformers": [{"name": "x"}], "must_understand": True},
    {
        "codecs": [
            {
                "name": "sharding_indexed",
                "configuration": {
                    "chunk_shape": [1, 1], "index_location": "end",
                    "codecs": [{"name": "bytes", "configuration": {"endian": "little"}}],
                    "index_codecs": [{"name": "bytes", "configuration": {"endian": "little"}}],
                },
            }
        ]
    },
]  # fmt: skip


def drop_checksum(about: dict[str, Any]) -> None:
    """Make metadata those of an older store, which nothing holds together."""
    if isinstance(about.get("attributes"), dict):
        about["attributes"].pop("layout_checksum", None)


def mutate_metadata(content: bytes, rng: random.Random) -> bytes:
    """Change the metadata of a Zarr node in ways that mean something."""
    try:
        about = json.loads(content)
    except (ValueError, RecursionError):
        return content
    if not isinstance(about, dict):
        return content
    nodes = [about]
    inline = about.get("consolidated_metadata")
    if isinstance(inline, dict) and isinstance(inline.get("metadata"), dict):
        nodes += [node for node in inline["metadata"].values() if isinstance(node, dict)]
    if rng.random() < 0.7:
        # Whoever forges the metadata forges this too, or leaves it out.
        drop_checksum(about)
    node = rng.choice(nodes)
    if node.get("node_type") == "array":
        node.update(rng.choice(HOSTILE_ARRAY))
    elif isinstance(node.get("attributes"), dict):
        attrs = node["attributes"]
        if "columns" in attrs and rng.random() < 0.5:
            attrs.update(rng.choice(HOSTILE_ROOT))
        elif attrs:
            name = rng.choice(list(attrs))
            attrs[name] = rng.choice(
                [None, True, -1, 1e308, 10**30, "", "x" * 5000, [], {}, [[]], "\u202e\x1b[2J", "[]",
                 "{}", "null", "1", '{"a": NaN}', 10**15, -(10**15), 0]
            )  # fmt: skip
            if rng.random() < 0.2:
                del attrs[name]
    text = json.dumps(about)
    if rng.random() < 0.1:
        # The same key twice, and a number that JSON does not have.
        text = text[:-1] + ', "attributes": {"format": NaN}, "shape": [Infinity]}'
    return text.encode()


def add_links(folder: Path, *names: str) -> None:
    """Make copies of an entry in which one file leads out of it."""
    for at, name in enumerate(names):
        entry = folder / f"linked-{at}.zarr"
        shutil.copytree(made() / "plain.zarr", entry)
        target = entry / name
        if target.is_dir():
            shutil.rmtree(target)
        else:
            target.unlink()
        target.symlink_to(made() / "paired.zarr" / name)


def _store_seeds(folder: Path) -> None:
    copy("plain.zarr")(folder)
    copy("paired.zarr")(folder)
    add_links(folder, "embedding/c/0/0", "embedding", "column_0", "column_0/c/0", "zarr.json")
    for at, change in enumerate(HOSTILE_ARRAY):
        _changed(folder / f"array-{at}.zarr", "embedding", change)
        _changed(folder / f"column-{at}.zarr", "column_1", change)
    for at, change in enumerate(HOSTILE_ROOT):
        _changed(folder / f"root-{at}.zarr", "", change)


def _changed(place: Path, array: str, change: dict[str, Any]) -> None:
    """Copy the plain store with one node's metadata changed, here and where it is consolidated."""
    shutil.copytree(made() / "plain.zarr", place)
    path = place / "zarr.json"
    about = json.loads(path.read_text())
    drop_checksum(about)
    if not array:
        about["attributes"].update(change)
        path.write_text(json.dumps(about))
        return
    about["consolidated_metadata"]["metadata"][array].update(change)
    path.write_text(json.dumps(about))
    path = place / array / "zarr.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), **change}))


def _read_store(path: Path, work: Path) -> None:
    import croma_dask as cd
    from croma_dask.cohort.store import StoredCohort
    from croma_dask.cohort.summary import describe, describe_text

    store = StoredCohort(str(path))
    store.n_samples, store.dtype, store.fingerprint  # noqa: B018
    json.dumps(describe(store))
    describe_text(store)
    for column in store.columns:
        store.text(column)
        store.codes(column)
    tiles = store.tile_of_sample()
    for lo in range(0, min(store.n_tiles, 256), 16):
        store.read_tiles(lo, min(lo + 16, store.n_tiles))
    if tiles is not None:
        store.read_samples(0, min(8, store.n_samples))
    dataset = cd.open_cohort(str(path))
    str(dataset.croma)
    dataset["label"].values  # noqa: B018
    store.verify()


def _read_index(path: Path, work: Path) -> None:
    from croma_dask.index.stored import StoredIndex

    index = StoredIndex(str(path))
    index.is_finished()
    index.matches("0" * 64) if index.embedding_fingerprint == "0" * 64 else None
    index.kind, index.build_id, index.parameters, index.step, index.dtype  # noqa: B018
    index.frame  # noqa: B018
    index.read(0, index.n_rows)
    index.read(index.n_rows // 2, index.n_rows)


def _read_kept(path: Path, work: Path) -> None:
    import croma_dask as cd
    from croma_dask.cohort.location import Location
    from croma_dask.index.kept_lists import KeptLists, find_kept
    from croma_dask.index.spec import ListSpec

    with cd.open_neighbors(str(path)) as dataset, contextlib.suppress(*OF_XARRAY):
        # The Dataset is xarray's from here on: where chunks carry no checksum, so are its errors.
        dataset.load()
    kept = find_kept(Location.of(path))
    if kept is None:
        return
    kept.profile  # noqa: B018
    lists = KeptLists(kept, 0, ListSpec(kept.n_global, kept.n_typed))
    lists.read(0, min(kept.n_rows, 32))
    lists.read_typed(0, min(kept.n_rows, 32))


OF_XARRAY = (ValueError, TypeError, RuntimeError, OSError, MemoryError, IndexError, KeyError)
"""What xarray and zarr raise when values are asked for that cannot be decoded."""

MUTATORS = {"zarr.json": mutate_metadata}

TARGETS = [
    Target("cohort-store", _store_seeds, _read_store, mutators=MUTATORS, quick=8),
    Target("index", copy("plain.ivf.zarr"), _read_index, mutators=MUTATORS, quick=8),
    Target("kept-neighbours", copy("kept.zarr"), _read_kept, mutators=MUTATORS, quick=8),
]
