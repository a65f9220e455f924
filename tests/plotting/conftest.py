"""Three embeddings of one small cohort, and axes that are drawn at the end of every test."""

from __future__ import annotations

import functools
import warnings
from collections.abc import Iterator
from typing import Any

import numpy as np
import pandas as pd
import pytest
import xarray as xr

import croma_dask as cd
from croma_dask.embedding.outcome import METRIC_NAMES
from croma_dask.embedding.rank_families import FAMILIES

N = 150
NAMES = ("raw", "lab/normalised", "random")
M = (1, 3, 5)


@functools.cache
def _models() -> tuple[dict[str, np.ndarray], pd.DataFrame]:
    rng = np.random.default_rng(3)
    at = np.arange(N)
    frame = pd.DataFrame(
        {
            "sample_id": [f"tile/{i:03d}" for i in at],
            "tissue": np.array(["tumour", "Überklasse", "a$b$"])[at % 3],
            "center": np.array(["A/1", "B", "C"])[rng.integers(0, 3, N)],
            "group_id": [f"slide-{i // 2}" for i in at],
        }
    )
    # No sample of one cell: it has to be drawn as empty.
    moved = (frame["tissue"] == "a$b$") & (frame["center"] == "C")
    frame.loc[moved, "center"] = "B"
    label, center = at % 3, frame["center"].map({"A/1": 0, "B": 1, "C": 2}).to_numpy()
    noise = rng.normal(size=(N, 6))
    corners = 3.0 * np.eye(6)
    models = {
        NAMES[0]: noise + 0.2 * corners[label] + 0.7 * corners[3 + center],
        NAMES[1]: noise + 0.5 * corners[label],
        NAMES[2]: noise[::-1],
    }
    return {name: x.astype(np.float32) for name, x in models.items()}, frame


@functools.cache
def _scored(which: tuple[str, ...], m: Any) -> xr.DataTree:
    models, frame = _models()
    one = which[0] if len(which) == 1 else None
    chosen: Any = models[one] if one else {name: models[name] for name in which}
    with warnings.catch_warnings():
        # A few samples are undefined, as in most cohorts.
        warnings.simplefilter("ignore", cd.SupportWarning)
        return cd.score(
            chosen, frame, confounder="center", label="tissue", k_candidates=(11, 21, 31), m=m
        )


@pytest.fixture(scope="session")
def panel() -> xr.DataTree:
    """Three models at three radii."""
    return _scored(NAMES, M)


@pytest.fixture(scope="session")
def single() -> xr.DataTree:
    """One model without a name, at one radius."""
    return _scored(NAMES[:1], 3)


@pytest.fixture(scope="session")
def drawn(panel: xr.DataTree) -> xr.DataTree:
    """What bootstrap() returns of the panel, as far as a plot needs it; made up, as it is fast."""
    rng = np.random.default_rng(4)
    nodes = {}
    for metric, node in panel.children.items():
        dataset = node.to_dataset()
        values = {}
        for name in ("value", "ltm_alpha", "f0") if metric == "CRoMa" else ("value",):
            at = dataset[name]
            values |= {
                name: at,
                f"{name}_low": at - rng.uniform(0.01, 0.1, at.shape),
                f"{name}_high": at + rng.uniform(0.01, 0.1, at.shape),
                f"{name}_rank_low": xr.ones_like(at),
                f"{name}_rank_high": 3.0 * xr.ones_like(at),
            }
        attrs = {
            "metric": "bootstrap", "resampled_metric": metric, "level": 0.9, "n_draws": 50,
            "resampled": "slide_id", "interval": "percentile", "neighbors": "held fixed",
        }  # fmt: skip
        nodes[metric] = xr.Dataset(values, attrs=attrs)
    return xr.DataTree.from_dict(nodes)


@pytest.fixture(scope="session")
def benchmark() -> xr.Dataset:
    """What embedding_benchmark returns, as far as a table needs it, with holes."""
    rng = np.random.default_rng(0)
    shape = (2, 4, len(METRIC_NAMES))
    value, status = rng.random(shape), np.full(shape, "ok", dtype=object)
    value[:, 3, 9:], status[:, 3, 9:] = np.nan, "undefined: one batch only"
    value[0, 0, 2], status[0, 0, 2] = np.nan, "failed: ValueError: no clusters"
    family_of = {metric: family for family, named in FAMILIES.items() for metric in named}
    dims = ("dataset", "method", "metric")
    return xr.Dataset(
        {"value": (dims, value), "status": (dims, status)},
        {
            "dataset": ["lung", "liver"],
            "method": ["PCA", "scVI", "Harmony", "UCE"],
            "metric": list(METRIC_NAMES),
            "family": ("metric", [family_of.get(name, "") for name in METRIC_NAMES]),
        },
        {"metric": "embedding_benchmark"},
    )


@pytest.fixture
def ax() -> Iterator[Any]:
    pytest.importorskip("matplotlib")
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    canvas = FigureCanvasAgg(Figure(figsize=(8, 5)))
    yield canvas.figure.subplots()
    canvas.draw()  # whatever was put there can be drawn, without a warning


def texts(ax: Any) -> list[str]:
    """All that is written on the axes, in the order in which it was written."""
    return [text.get_text() for text in ax.texts]


def legend(ax: Any) -> list[str]:
    return [text.get_text() for text in ax.get_legend().get_texts()]


def by_gid(artists: Any, gid: str) -> list[Any]:
    return [artist for artist in artists if artist.get_gid() == gid]


def ticks(axis: Any) -> list[str]:
    """Names along an axis, as they are read."""
    return [label.get_text().replace(r"\$", "$") for label in axis.get_ticklabels()]
