"""Targets: every reader of features, opened by its kind and read to the end as an ingest would."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from tests.fuzz import seeds_features as seeds
from tests.fuzz.harness import CANARY, Target

__all__ = ["TARGETS", "read_features"]

# An ingest goes on to the end; a header may truly claim many rows (of fill values), which is no
# fault of the reader. What it has to do is to open at once and to read a chunk at once.
CHUNKS = 4


def read_features(path: Path, key: str | None = None) -> None:
    """Open features, read some chunks, and check that they are what the reader said."""
    from croma_dask.cohort.layout import chunk_rows_for
    from croma_dask.cohort.readers import open_reader
    from croma_dask.cohort.readers.base import convert, stored_dtype
    from croma_dask.cohort.text import to_text

    # links of slides are followed, with a warning
    linked = path.is_dir() and any(child.is_symlink() for child in path.iterdir())
    reader = open_reader(path, key=key)
    try:
        n_rows, n_features = reader.shape
        target = stored_dtype(reader.dtype, None, "features")
        if reader.ids is not None:
            assert len(reader.ids) == n_rows, "as many ids as rows"
            _check_text(reader.ids)
        if reader.manifest is not None:
            assert len(reader.manifest) == n_rows, "as many manifest rows as rows"
            for column in reader.manifest.columns:
                _check_text(to_text(reader.manifest[column], str(column)))
        step = chunk_rows_for(n_features, target.itemsize)
        starts = range(0, n_rows, step)
        for lo in [*starts[: CHUNKS - 1], *starts[-1:]]:
            hi = min(n_rows, lo + step)
            rows = convert(reader.read(lo, hi), target)
            assert rows.shape == (hi - lo, n_features), "as many rows as were asked for"
            assert not (rows.astype("f8") == CANARY).any() or linked, "reads a file outside"
    finally:
        reader.close()


def _check_text(texts: Any) -> None:
    assert all(isinstance(text, str) for text in texts), "ids and cells are text"
    assert "canary" not in set(texts), "reads a file outside of the input"


def _target(
    name: str, make: Callable[[Path], None], key: str | None = None, *, follows_links: bool = False
) -> Target:
    def run(path: Path, work: Path) -> None:
        with np.errstate(all="ignore"):
            read_features(path, key)

    return Target(name, make, run, follows_links=follows_links)


TARGETS = [
    _target("npy", seeds.npy),
    _target("npz", seeds.npz),
    _target("hdf5", seeds.hdf5),
    _target("h5ad", seeds.h5ad),
    _target("h5ad X", seeds.h5ad, "X"),
    _target("parquet", seeds.parquet),
    _target("zarr array", seeds.zarr),
    _target("zarr zip", seeds.zarr_zip),
    _target("folder", seeds.folders, follows_links=True),
]
