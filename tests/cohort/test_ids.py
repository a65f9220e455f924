"""Ids that come with the features decide which rows belong together, in every kind of input."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pandas as pd
import pytest
import zarr

from croma_dask.cohort.ingestion import ingest, write_cohort
from croma_dask.cohort.store import StoredCohort
from croma_dask.errors import SchemaError, StoreError

N, D = 11, 3
IDS = [f"tile-{i}" for i in range(N)]


def values() -> np.ndarray:
    """Row i holds i, so that a row tells which sample it is."""
    return np.repeat(np.arange(1.0, N + 1), D).reshape(N, D)


def shuffled() -> pd.DataFrame:
    frame = pd.DataFrame({"sample_id": IDS, "label": [f"l{i}" for i in range(N)], "group_id": "g"})
    return frame.iloc[np.random.default_rng(3).permutation(N)].reset_index(drop=True)


def store(path: Path) -> Path:
    write_cohort(
        path, values(), shuffled().sort_values("label", key=lambda s: s.str[1:].astype(int))
    )
    return path


def hdf5(path: Path, name: str = "sample_id", ids: Any = IDS, group: str = "") -> Path:
    with h5py.File(path, "w") as file:
        file[f"{group}features"] = values()
        file[f"{group}{name}"] = ids
    return path


def npz(path: Path, **ids: Any) -> Path:
    np.savez(path, **ids, x=values())
    return path


def group(path: Path, name: str) -> Path:
    root = zarr.create_group(path)
    root.create_array("inner/x", data=values())
    ids = root.create_array(f"inner/{name}", shape=(N,), dtype="string")
    ids[:] = np.array(IDS, dtype=object)
    return path


INPUTS = {
    "store": lambda p: store(p / "x.zarr"),
    "hdf5": lambda p: hdf5(p / "x.h5"),
    "hdf5 bytes": lambda p: hdf5(p / "x.h5", "sample_ids", np.array(IDS, dtype="S")),
    "hdf5 group": lambda p: hdf5(p / "x.h5", group="a/b/"),
    "npz": lambda p: npz(p / "x.npz", sample_id=np.array(IDS)),
    "npz bytes": lambda p: npz(p / "x.npz", sample_ids=np.array(IDS, dtype="S")),
    "zarr group": lambda p: group(p / "x.zarr", "sample_ids"),
}


@pytest.mark.parametrize("kind", INPUTS)
def test_ingest__shuffled_manifest_is_matched_by_the_ids_of_the_file(tmp_path: Path, kind: str):
    source = INPUTS[kind](tmp_path)
    made = StoredCohort(ingest(source, shuffled(), tmp_path / "c.zarr"))
    assert made.text("sample_id").tolist() == IDS
    assert made.text("label").tolist() == [f"l{i}" for i in range(N)]
    np.testing.assert_array_equal(made.read_samples(0, N), values())


@pytest.mark.parametrize("kind", INPUTS)
def test_ingest__other_ids_are_counted_both_ways(tmp_path: Path, kind: str):
    source = INPUTS[kind](tmp_path)
    other = shuffled().replace({"sample_id": {"tile-4": "new"}})
    with pytest.raises(
        SchemaError, match=r"1 only in the embedding \('tile-4'\); 1 only in the ma"
    ):
        ingest(source, other, tmp_path / "c.zarr")
    with pytest.raises(SchemaError, match="embedding .11 rows. and manifest .10 rows."):
        ingest(source, shuffled().iloc[1:], tmp_path / "c.zarr")


def test_ingest__whole_numbers_are_ids_and_other_lengths_are_not(tmp_path: Path):
    numbers = shuffled().assign(sample_id=lambda f: f["sample_id"].str[5:])
    source = hdf5(tmp_path / "x.h5", ids=np.arange(N))
    made = StoredCohort(ingest(source, numbers, tmp_path / "c.zarr"))
    assert made.text("label").tolist() == [f"l{i}" for i in range(N)]
    source = npz(tmp_path / "x.npz", sample_id=np.array(IDS[:-1]))
    made = StoredCohort(ingest(source, shuffled(), tmp_path / "d.zarr"))
    assert made.text("sample_id").tolist() == shuffled()["sample_id"].tolist()


def test_ingest__store_that_repeats_tiles_is_matched_by_the_tiles_ids(tmp_path: Path):
    paired = pd.concat([shuffled().assign(subset="a"), shuffled()[::-1].assign(subset="b")])
    wide = values()[[int(text[5:]) for text in paired["sample_id"]]]
    first = write_cohort(tmp_path / "p.zarr", wide, paired)
    assert StoredCohort(first).n_tiles == N
    made = StoredCohort(ingest(first, shuffled()[::-1], tmp_path / "c.zarr"))
    rows = made.read_samples(0, N)[:, 0].astype(int) - 1
    assert made.text("sample_id").tolist() == [IDS[row] for row in rows]


def test_ingest__unfinished_store_is_no_source(tmp_path: Path):
    path = store(tmp_path / "x.zarr")
    zarr.open_group(path, mode="r+").attrs["status"] = "writing"
    with pytest.raises(StoreError, match="not finished"):
        ingest(path, shuffled(), tmp_path / "c.zarr")


def test_write__frame_with_an_index_of_text_is_matched_by_it(tmp_path: Path):
    features = pd.DataFrame(values(), index=IDS)
    made = StoredCohort(write_cohort(tmp_path / "c.zarr", features, shuffled()))
    assert made.text("label").tolist() == [f"l{i}" for i in range(N)]
    with pytest.raises(SchemaError, match="2 only in the embedding"):
        write_cohort(tmp_path / "d.zarr", features, shuffled().iloc[2:])
    made = StoredCohort(
        write_cohort(tmp_path / "e.zarr", features.reset_index(drop=True), shuffled())
    )
    assert made.text("label").tolist() == shuffled()["label"].tolist()
