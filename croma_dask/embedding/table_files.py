"""Where the tables of the embedding benchmark lie, and those that hold more than metrics of one."""

from __future__ import annotations

import logging
import os
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from croma_dask.cohort.location import Location
from croma_dask.cohort.remote_path import RemotePath
from croma_dask.cohort.uploads import check_writable
from croma_dask.embedding.inputs import check_names
from croma_dask.embedding.outcome import Scores
from croma_dask.embedding.tables import (
    GROUPS,
    Group,
    frame_lines,
    long_table,
    table_lines,
    wide_table,
)
from croma_dask.errors import SchemaError
from croma_dask.memory import TEXT_BLOCK, id_bytes
from croma_dask.whole_files import write_lines

__all__ = [
    "AnyPath", "Clustering", "Outdir", "Places", "Texts", "check_outdir", "write_combined",
    "write_predictions",
]  # fmt: skip

log = logging.getLogger("croma_dask")

Clustering = Literal["leiden", "kmeans"]

AnyPath = Path | RemotePath
"""A file or folder on this machine, or at a URL."""

Outdir = str | os.PathLike[str] | RemotePath
"""Folder of the results, as :func:`check_outdir` returns it."""

Texts = Sequence[Any] | NDArray[Any] | Callable[[int, int], Sequence[Any] | NDArray[Any]]
"""One text a row of the manifest: all of them, or a function that reads rows lo to hi."""

_BLOCK = 2**16
_FIRST = 2**12
"""Rows that are named together, and at first, when the length of their names is not known."""


class Places:
    """Paths of the files of a benchmark.

    Parameters
    ----------
    outdir
        Folder of the results; everything lies in its ``benchmark``.
    clustering
        What the clusters were made by: part of the names of folders and files.
    """

    def __init__(self, outdir: Outdir, clustering: Clustering) -> None:
        place = outdir if isinstance(outdir, RemotePath) else Path(outdir)
        self.root: AnyPath = place / "benchmark"
        self.clustering = clustering

    def folder(self, group: Group) -> str:
        """Name of a group of metrics with that of the clustering, as it is part of paths."""
        return f"{group}_leiden" if self.clustering == "leiden" else group

    def metrics(self, group: Group, method: str, sample: str) -> AnyPath:
        """Long table of one embedding."""
        check_names(sample=sample, method=method)
        return self.root / f"{self.folder(group)}_metrics" / method / f"{sample}_{method}.csv"

    def predictions(self, method: str, sample: str) -> AnyPath:
        """Clusters of the rows of one embedding."""
        check_names(sample=sample, method=method)
        name = f"{sample}_{method}_{self.clustering}_labels.tsv"
        return self.root / f"{self.folder('bio_conservation')}_predictions" / method / name

    def combined(self, group: Group, method: str, shape: Literal["long", "wide"]) -> AnyPath:
        """Table of all embeddings of a method."""
        check_names(method=method)
        return self.root / f"{method}_{self.folder(group)}_metrics_{shape}.csv"

    def record(self, method: str, sample: str) -> AnyPath:
        """Folder of what is needed to go on from the tables: hidden, as no one else reads it."""
        check_names(sample=sample, method=method)
        return self.root / ".croma" / self.clustering / method / f"{sample}_{method}"


def check_outdir(
    outdir: str | os.PathLike[str], *, storage_options: Mapping[str, Any] | None = None
) -> str | RemotePath:
    """Make the folder of the results, and make sure that tables can be written to it.

    Returns
    -------
    str or RemotePath
        Its absolute path; or the URL, with its options.

    Raises
    ------
    SchemaError
        It is a file, or nothing can be written there.
    StoreError
        Nothing can be written to the URL.
    """
    place = Location.of(outdir, storage_options)
    if not place.is_local:
        check_writable(place.joined("benchmark"))
        return RemotePath(place)
    root = Path(place.url) / "benchmark"
    try:
        root.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=root):
            pass
    except OSError as err:
        said = f"no tables can be written to {root} (--output-dir): {err.strerror}"
        raise SchemaError(said) from err
    return place.url


def write_predictions(
    path: AnyPath, scores: Scores, *, clustering: Clustering, ids: Texts, labels: Texts
) -> str:
    """Write the cluster of every row that was clustered, and return the digest of the file.

    Parameters
    ----------
    path
        Tab-separated: `sample_id`, `method`, `barcode`, `true_label` and the cluster as text, in
        the order of the manifest. Rows that were left out are absent.
    scores
        With predictions.
    clustering
        Names the last column, ``leiden_label`` or ``kmeans_label``.
    ids, labels
        Barcode and label of every row of the manifest. Functions are asked for at most 65,536 rows
        at once, and for fewer where barcodes are long.
    """
    clusters = scores.predictions
    if clusters is None:
        raise ValueError(f"{scores.dataset} of {scores.method} was not clustered")
    n = clusters.shape[0]
    columns = ("sample_id", "method", "barcode", "true_label", f"{clustering}_label")

    def rows() -> Iterator[tuple[str, ...]]:
        hi, step = 0, _FIRST
        while hi < n:
            lo, hi = hi, min(n, hi + step)
            block = clusters[lo:hi]
            kept = np.flatnonzero(block >= 0).tolist()
            if not kept:
                continue
            barcode = _block(ids, lo, hi, n, "ids")
            length = sum(len(str(name)) for name in barcode) / len(barcode)
            step = max(1, min(_BLOCK, TEXT_BLOCK // id_bytes(1, length)))
            label = _block(labels, lo, hi, n, "labels")
            for at in kept:
                yield (
                    scores.dataset, scores.method, str(barcode[at]), str(label[at]),
                    str(int(block[at])),
                )  # fmt: skip

    return write_lines(path, table_lines(columns, rows(), "\t"))


def _block(texts: Texts, lo: int, hi: int, n: int, what: str) -> list[Any]:
    if callable(texts):
        block, wanted = texts(lo, hi), hi - lo
        found = len(block)
    else:
        found, wanted = len(texts), n
        block = texts[lo:hi]
    if found != wanted:
        raise ValueError(f"{found} {what} for {wanted} rows")
    # Through an array: entries of a Series would be looked up by its index, not by position.
    values: list[Any] = np.asarray(block, dtype=object).tolist()
    return values


def write_combined(
    outdir: Outdir,
    method: str,
    scores: Sequence[Scores],
    *,
    clustering: Clustering,
) -> list[AnyPath]:
    """Write the tables of all embeddings of a method: of each group a long and a wide one.

    Parameters
    ----------
    outdir
        Folder of the results.
    method
        The method that all of them are of.
    scores
        In the order of the rows of the long table (the wide one is sorted).
    clustering
        As of :class:`Places`.

    Returns
    -------
    list of Path or RemotePath
        What was written. A group that none of them has metrics of gets no tables.

    Raises
    ------
    SchemaError
        A sample is there twice.
    """
    places = Places(outdir, clustering)
    if any(one.method != method for one in scores):
        raise ValueError(f"scores of {sorted({one.method for one in scores})} as those of {method}")
    names = [one.dataset for one in scores]
    if len(set(names)) < len(names):
        twice = sorted({name for name in names if names.count(name) > 1})
        raise SchemaError(f"method {method!r} has sample {twice[0]!r} more than once")
    written: list[AnyPath] = []
    for group in GROUPS:
        frames = [frame for one in scores if len(frame := long_table(one, group))]
        if not frames:
            continue
        tables: dict[Literal["long", "wide"], pd.DataFrame] = {
            "long": pd.concat(frames, ignore_index=True),
            "wide": wide_table(frames, group),
        }
        for shape, table in tables.items():
            path = places.combined(group, method, shape)
            write_lines(path, frame_lines(table))
            written.append(path)
        _tell_others(places, group, method, names)
    return written


def _tell_others(places: Places, group: Group, method: str, names: Sequence[str]) -> None:
    """Say that there are tables of other embeddings: whoever added one may miss the others."""
    mine = {places.metrics(group, method, name).name for name in names}
    folder = places.metrics(group, method, names[0]).parent
    others = sorted({path.name for path in folder.glob("*.csv")} - mine)
    if others:
        log.warning(
            "%s tables of method %s: of the embeddings that this run names (%d), and not of others "
            "that are in %s (%d); name all of them in one run, what is done is not scored again",
            group, method, len(names), folder, len(others),
        )  # fmt: skip
