"""Metric table: cells are the benchmark's values, columns are coloured by themselves."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import pytest
import xarray as xr

from croma_dask.embedding.rank_report import with_ranks
from croma_dask.embedding.rank_statistics import rank_statistics
from croma_dask.embedding.ranks import rank_embeddings
from croma_dask.errors import SchemaError
from croma_dask.plotting import metric_table
from tests.plotting.conftest import by_gid, ticks

FAMILIES = {
    "cluster label concordance": ["NMI", "HOM", "COM", "FMI", "ARI"],
    "continuous cell type separation": ["ASW"],
    "local cell type neighborhood structure": ["cLISI", "Acc@kNN", "GC"],
    "batch mixing": ["kBET", "BRAS", "CiLISI"],
    "not ranked": ["iLISI"],
}


def grid(ax: Any) -> dict[tuple[str, float], str]:
    """(method, x) -> what is written in the cell."""
    methods = ticks(ax.yaxis)
    return {
        (methods[int(text.get_position()[1])], text.get_position()[0]): text.get_text()
        for text in ax.texts
        if text.get_transform() == ax.transData
    }


def heads(ax: Any) -> dict[float, str]:
    """x -> name of the column, of those that stand right above the table."""
    return {t.xy[0]: t.get_text() for t in ax.texts if getattr(t, "xyann", None) == (0.0, 3.0)}


def families(ax: Any) -> list[str]:
    found = [t.get_text() for t in ax.texts if getattr(t, "xyann", None) == (0.0, 19.0)]
    return [name.replace("\n", " ") for name in found]


def test_metric_table__cells_are_the_values(benchmark: xr.Dataset, ax: Any) -> None:
    assert metric_table(benchmark, "lung", ranks=False, ax=ax) is ax
    assert families(ax) == list(FAMILIES)
    assert list(heads(ax).values()) == [name for named in FAMILIES.values() for name in named]
    assert ticks(ax.yaxis) == ["PCA", "scVI", "Harmony", "UCE"]
    cells = grid(ax)
    for x, metric in heads(ax).items():
        for method in ticks(ax.yaxis):
            value = float(
                benchmark["value"].sel({"dataset": "lung", "method": method, "metric": metric})
            )
            if not np.isnan(value):
                assert cells[method, x] == f"{value:.3f}"
    assert len(cells) == 4 * 13
    assert ax.get_xlabel() == "lung"


def test_metric_table__missing_values_are_dashes_with_a_note(
    benchmark: xr.Dataset, ax: Any
) -> None:
    metric_table(benchmark, "lung", ranks=False, ax=ax)
    at = {metric: x for x, metric in heads(ax).items()}
    cells = grid(ax)
    assert cells["PCA", at["COM"]] == "– a"
    assert {cells["UCE", at[name]] for name in ("kBET", "BRAS", "CiLISI", "iLISI")} == {"– b"}
    (notes,) = by_gid(ax.texts, "notes")
    assert notes.get_text().splitlines() == [
        "a  COM: failed: ValueError: no clusters",
        "b  kBET, BRAS, CiLISI, iLISI: undefined: one batch only",
    ]


def test_metric_table__every_column_is_coloured_by_itself(benchmark: xr.Dataset, ax: Any) -> None:
    metric_table(benchmark, "lung", ranks=False, ax=ax)
    (image,) = by_gid(ax.images, "batch mixing")
    colors = np.asarray(image.get_array())
    assert colors.shape == (4, 3, 4)
    values = benchmark["value"].sel(dataset="lung", metric=["kBET", "BRAS", "CiLISI"]).values
    darkness = 1.0 - colors[:, :, :3].mean(axis=2)
    for column in range(3):
        order = np.argsort(values[:3, column])
        assert (np.diff(darkness[order, column]) > 0).all()
        assert (colors[3, column] == [0.95, 0.95, 0.95, 1.0]).all(), "missing"
    best = colors[values[:3].argmax(axis=0), range(3)]
    assert (best == best[0]).all(), "the best of every column has the same colour"


def test_metric_table__ranks_of_families_and_of_all(benchmark: xr.Dataset, ax: Any) -> None:
    metric_table(benchmark, "liver", ax=ax)
    ranks = rank_embeddings(benchmark.sel(dataset=["liver"]))
    aggregate = dict(
        zip(ranks["method"].values, ranks["aggregate_rank"].values[0].tolist(), strict=True)
    )
    assert ticks(ax.yaxis) == sorted(aggregate, key=lambda name: aggregate[name])
    assert families(ax) == [*FAMILIES, "all families"]
    cells, columns = grid(ax), [x for x, head in heads(ax).items() if head == "rank"]
    assert len(columns) == 5
    named = ranks["family"].values.tolist()
    for method in ticks(ax.yaxis):
        assert cells[method, columns[-1]] == f"{aggregate[method]:.2f}"
        for x, family in zip(columns[:-1], named, strict=True):
            value = float(ranks["family_rank"].sel({"method": method, "family": family}).item())
            assert cells[method, x] == ("–" if np.isnan(value) else f"{value:.2f}")


def test_metric_table__of_one_method_has_no_ranks(benchmark: xr.Dataset, ax: Any) -> None:
    metric_table(benchmark.isel({"dataset": [0], "method": [1]}), ax=ax)
    assert "rank" not in heads(ax).values()
    assert ticks(ax.yaxis) == ["scVI"]
    (image,) = by_gid(ax.images, "batch mixing")
    assert len(np.unique(np.asarray(image.get_array())[0], axis=0)) == 1


def test_metric_table__of_ranks_is_the_mean_over_data_sets(benchmark: xr.Dataset, ax: Any) -> None:
    ranks = rank_embeddings(benchmark)
    metric_table(ranks, ax=ax)
    assert ax.get_xlabel() == "ranks, mean over 2 data sets"
    order = ranks["method"].values[np.argsort(ranks["mean_rank"].values)].tolist()
    assert ticks(ax.yaxis) == order
    cells = grid(ax)
    for x, head in heads(ax).items():
        for method in order:
            if head == "rank":
                continue
            mean = float(ranks["metric_rank"].sel({"method": method, "metric": head}).mean())
            assert cells[method, x] == ("–" if np.isnan(mean) else f"{mean:.2f}")
    last = max(heads(ax))
    means = ranks["mean_rank"].to_series()
    assert [cells[method, last] for method in order] == [f"{means[name]:.2f}" for name in order]
    colors = np.asarray(by_gid(ax.images, "all families")[0].get_array())[:, 0, :3].mean(axis=1)
    assert (np.diff(colors) > 0).all(), "the least rank is the darkest"


def test_metric_table__of_ranks_with_statistics_and_of_one_data_set(
    benchmark: xr.Dataset, ax: Any
) -> None:
    ranks = rank_embeddings(benchmark)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        tree = with_ranks(ranks, rank_statistics(ranks, n_draws=10))
    metric_table(tree, "liver", ax=ax)
    assert ax.get_xlabel() == "ranks, liver"
    one = ranks["aggregate_rank"].sel(dataset="liver")
    assert [grid(ax)[name, max(heads(ax))] for name in ticks(ax.yaxis)] == [
        f"{value:.2f}" for value in np.sort(one.values)
    ]


def test_metric_table__what_cannot_be_drawn(
    benchmark: xr.Dataset, single: xr.DataTree, ax: Any
) -> None:
    with pytest.raises(SchemaError, match="several data sets: say which, dataset='lung', 'liver'"):
        metric_table(benchmark, ax=ax)
    with pytest.raises(SchemaError, match="dataset='brain': the result has 'lung', 'liver'"):
        metric_table(benchmark, "brain", ax=ax)
    with pytest.raises(SchemaError, match=r"rank_embeddings\(\); found a result of score"):
        metric_table(single, ax=ax)
    with pytest.raises(SchemaError, match="found a dict"):
        metric_table({}, ax=ax)  # type: ignore[arg-type]
    assert not ax.has_data()


def test_metric_table__of_ranks_leaves_out_what_was_never_computed(
    benchmark: xr.Dataset, ax: Any
) -> None:
    some = benchmark.sel(metric=["ARI", "GC", "kBET"])
    metric_table(rank_embeddings(some), ax=ax)
    assert list(heads(ax).values()) == ["ARI", "rank", "GC", "rank", "kBET", "rank", "rank"]
