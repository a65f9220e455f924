"""Compute every number that the captured table holds, in this process and its environment."""

from __future__ import annotations

import hashlib
import io
import logging
import re
import tempfile
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

from tests.drift.data import Made, cohort

SCORE = {"confounder": "center", "k_candidates": [5, 11, 21], "m": [1, 5], "quiet": True}
Values = dict[str, Any]


def capture() -> Values:
    """Every array by name, ``part/what/node/variable``; texts as strings."""
    logging.getLogger("croma_dask").setLevel(logging.ERROR)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        found: Values = {}
        for part in PARTS:
            found |= {f"{part.__name__}/{name}": value for name, value in part()}
    return found


def exact() -> Iterator[tuple[str, Any]]:
    """RI, MaRI, CRoMa and the lists behind them, of each dtype, engine and design."""
    for dtype in ("float16", "float32", "float64"):
        for engine in ("small", "direct", "streamed"):
            yield from of_engine(engine, dtype)
        yield from of_pairs(dtype)


def of_engine(engine: str, dtype: str) -> Iterator[tuple[str, Any]]:
    """One engine's part of :func:`exact`."""
    import croma_dask as cd

    made = cohort(dtype)
    with searched_by(engine), tempfile.TemporaryDirectory() as folder:
        kept = f"{folder}/kept.zarr"
        found = cd.score(made.x, made.frame, keep_neighbors=kept, **SCORE)
        yield from arrays(f"{engine} {dtype}", found)
        with cd.open_neighbors(kept) as lists:
            yield from arrays(f"{engine} {dtype} lists", lists)


def of_pairs(dtype: str) -> Iterator[tuple[str, Any]]:
    """The paired design's part of :func:`exact`."""
    import croma_dask as cd

    made = cohort(dtype)
    found = cd.score(made.paired_x, made.paired_frame, design="paired_2x2", **SCORE)
    yield from arrays(f"paired {dtype}", found)


def resampled() -> Iterator[tuple[str, Any]]:
    """Bootstrap with its draws, half samples."""
    import croma_dask as cd

    made = cohort("float32")
    scored = cd.score(made.x, made.frame, **SCORE)
    yield from arrays("bootstrap", cd.bootstrap(scored, n_draws=200, keep_draws=True))
    halves = cd.half_samples(scored, made.x, made.frame, n_pairs=2, quiet=True)
    yield from arrays("half samples", halves)


def breakdowns() -> Iterator[tuple[str, Any]]:
    """By label, and the worst groups."""
    import croma_dask as cd

    made = cohort("float64")
    scored = cd.score(made.x, made.frame, **SCORE)
    yield from arrays("label", cd.breakdown(scored, "label"))
    yield from arrays("worst", cd.worst_groups(scored, 7))


def texts() -> Iterator[tuple[str, Any]]:
    """What users read and other programs parse: tables, summaries, fingerprints."""
    import croma_dask as cd

    made = cohort("float32")
    scored = cd.score(made.x, made.frame, **SCORE)
    for suffix in ("csv", "json"):
        with tempfile.TemporaryDirectory() as folder:
            place = Path(folder) / f"result.{suffix}"
            cd.results.save(scored, place)
            text = place.read_bytes().decode("utf-8")
            # Which release, and when, are no numbers.
            text = re.sub(r'"created": "[^"]*"', "", text).replace(cd.__version__, "")
            yield suffix, text
    yield "summary", cd.results.summary(scored).replace(cd.__version__, "")
    with tempfile.TemporaryDirectory() as folder:
        store = cd.write_cohort(f"{folder}/c.zarr", made.x, made.frame, progress=False)
        opened = cd.open_cohort(store)
        for name in ("embedding_fingerprint", "manifest_fingerprint", "fingerprint"):
            if name in opened.attrs:
                yield name, str(opened.attrs[name])
        for column in ("label", "center"):
            yield f"order of {column}", "|".join(np.unique(opened[column].values.astype(str)))


def approximate() -> Iterator[tuple[str, Any]]:
    """Through an index of k-means clusters."""
    import croma_dask as cd

    made = cohort("float32", n=720)
    with tempfile.TemporaryDirectory() as folder:
        store = cd.write_cohort(f"{folder}/c.zarr", made.x, made.frame, progress=False)
        cd.build_index(store, "ivf", cluster_rows=60, quiet=True)
        found = cd.score(store, index="ivf", recall=0.9, calibration=100, **SCORE)
        yield from arrays("ivf", found)


def probes() -> Iterator[tuple[str, Any]]:
    """A probe sweep: logistic regressions, by scikit-learn."""
    from croma_dask.probe.cohorts import sweep_cohort
    from croma_dask.probe.linear import linear_schedule

    made = cohort("float32")
    found = sweep_cohort(
        made.x, made.frame, confounder="center", schedule=linear_schedule(2, 2, 10, 4),
        confounder_order=["UMCU", "örtlich"], label_order=["Igel", "zebra"], iterations=5,
        validation_fraction=0.2, quiet=True,
    )  # fmt: skip
    yield from arrays("sweep", found)


def benchmarks() -> Iterator[tuple[str, Any]]:
    """Every metric of the embedding benchmark, with both ways to cluster; ranks of it."""
    import croma_dask as cd

    ways: dict[str, Any] = {}
    first = cohort("float32", n=240, zero=False)
    second = cohort("float64", n=240, seed=9, zero=False)
    cells = {("set", "one"): (first.x, first.frame), ("set", "two"): (second.x, second.frame)}
    for clustering in ("kmeans", "leiden"):
        found = cd.embedding_benchmark(
            cells, label="label", batch="center", clustering=clustering, quiet=True
        )
        ways[clustering] = found
        yield from arrays(clustering, found)
    interval = cd.embedding_benchmark(
        cells, label="label", metrics=["ASW"], asw="interval", quiet=True
    )
    yield from arrays("interval", interval)
    yield from arrays("ranks", cd.rank_embeddings(ways["kmeans"]))


PARTS: tuple[Callable[[], Iterator[tuple[str, Any]]], ...] = (
    exact, resampled, breakdowns, texts, approximate, probes, benchmarks,
)  # fmt: skip


@contextmanager
def searched_by(engine: str) -> Iterator[None]:
    """Search with one engine, whatever the size of the scope; ranges of 97 rows if streamed."""
    from croma_dask import layout

    large = 1 << 62 if engine == "small" else 0
    wanted = {"SMALL_PAIRS": large, "SMALL_PAIRS_COMPILED": large}
    if engine == "streamed":
        wanted = {"DIRECT_ROWS": 0, "LARGEST_RANGE": 97}
    before = {name: getattr(layout, name) for name in wanted}
    for name, value in wanted.items():
        setattr(layout, name, value)
    try:
        yield
    finally:
        for name, value in before.items():
            setattr(layout, name, value)


def arrays(prefix: str, result: Any) -> Iterator[tuple[str, Any]]:
    """Yield the variables of a Dataset, or of each node of a tree."""
    is_tree = hasattr(result, "subtree")
    for node in result.subtree if is_tree else [result]:
        dataset = node.to_dataset(inherit=False) if is_tree else node
        if not hasattr(dataset, "data_vars"):
            dataset = dataset.to_dataset(name="value")
        path = node.path.strip("/") if is_tree else ""
        for name, variable in sorted(dataset.variables.items()):
            yield "/".join(filter(None, (prefix, path, str(name)))), np.asarray(variable.values)


def digest(value: Any) -> str:
    """SHA-256 of an array or a text, the same on every machine: little-endian, NaN as one NaN."""
    out = io.BytesIO()
    if isinstance(value, str):
        out.write(value.encode())
    else:
        array = np.asarray(value)
        if array.dtype.kind == "f":
            array = np.where(np.isnan(array), np.nan, array).astype(array.dtype)
        if array.dtype.kind in "fiub":
            out.write(f"{array.dtype.kind}{array.dtype.itemsize}{array.shape}".encode())
            out.write(array.astype(array.dtype.newbyteorder("<")).tobytes())
        else:
            out.write("\0".join([str(array.shape), *(str(v) for v in array.ravel())]).encode())
    return hashlib.sha256(out.getvalue()).hexdigest()[:32]


__all__ = ["PARTS", "Made", "Values", "capture", "digest"]
