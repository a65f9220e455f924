"""Distributions: bars are counts, the tail ends at q(alpha), the numbers are the result's."""

from __future__ import annotations

import tracemalloc
from typing import Any

import numpy as np
import pandas as pd
import pytest
import xarray as xr

from croma_dask.errors import SchemaError
from croma_dask.plotting import inputs, margins
from croma_dask.plotting.distribution_rows import rows_of_groups
from tests.plotting.conftest import NAMES, by_gid, legend, texts, ticks

ROW = 0.86


def bars(line: Any) -> tuple[np.ndarray, np.ndarray]:
    """Edges and heights of the steps of a line, above where the line begins."""
    x, y = line.get_xdata(), line.get_ydata()
    return np.append(x[::2], x[-1]), y[::2]


def dark(tail: Any) -> tuple[np.ndarray, np.ndarray]:
    """Edges and heights of the steps of a filled tail, which stands on 0."""
    corners = tail.get_paths()[0].vertices
    edges = np.unique(corners[:, 0])
    middles = (edges[1:] + edges[:-1]) / 2
    sides = zip(corners, corners[1:], strict=False)
    flat = [(a[0], b[0], a[1]) for a, b in sides if a[1] == b[1] and a[0] != b[0]]
    heights = [max(y for x, z, y in flat if min(x, z) < at < max(x, z)) for at in middles]
    return edges, np.array(heights)


def defined(values: Any) -> np.ndarray:
    values = np.asarray(values, float)
    return values[~np.isnan(values)]


def test_margins__of_one_model_are_shares_of_the_defined_samples(
    single: xr.DataTree, ax: Any
) -> None:
    assert margins(single, bins=20, ax=ax) is ax
    edges, heights = bars(by_gid(ax.lines, "")[0])
    values = defined(single["CRoMa"].sample_values)
    counts, _ = np.histogram(values, edges)
    np.testing.assert_allclose(heights, counts / values.size, rtol=0, atol=1e-15)
    assert heights.sum() == pytest.approx(1.0)
    assert 20 <= edges.size - 1 <= 21
    # No bin holds margins of both sides.
    assert np.abs(edges).min() < 1e-12
    assert ax.get_ylabel() == "share of the samples"
    assert ax.get_xlabel() == "cross-confounder robustness margin of each sample, m = 3"


def test_margins__marks_median_tail_and_neutral(single: xr.DataTree, ax: Any) -> None:
    margins(single, ax=ax)
    croma = single["CRoMa"]
    (median,) = by_gid(ax.collections, "median")
    assert median.get_segments()[0][:, 0].tolist() == [float(croma.median_value)] * 2
    (tail,) = by_gid(ax.collections, "tail")
    edges, heights = dark(tail)
    values = defined(croma.sample_values)
    lowest = values[values <= float(croma.q_alpha)]
    np.testing.assert_allclose(heights, np.histogram(lowest, edges)[0] / values.size, atol=1e-15)
    assert heights.sum() == pytest.approx(lowest.size / values.size)
    assert edges[-2] <= float(croma.q_alpha) <= edges[-1]
    (neutral,) = by_gid(ax.lines, "neutral-x-0.0")
    assert set(neutral.get_xdata()) == {0.0}
    assert legend(ax) == ["median", "up to the 10 % quantile (LTM: their mean)", "neutral (0)"]


@pytest.mark.parametrize(("n_tied", "bins"), [(30, 20), (30, 3), (150, 20)])
def test_margins__ties_at_the_quantile_are_in_the_tail(
    n_tied: int, bins: int, single: xr.DataTree, ax: Any
) -> None:
    """A robustness index of few neighbours: many samples have none that is good."""
    croma = single["CRoMa"].to_dataset().copy(deep=True)
    croma["sample_values"][:] = np.where(np.arange(150) < n_tied, -0.5, 0.5)
    croma["q_alpha"][()] = -0.5
    margins(croma, bins=bins, ax=ax)
    (tail,) = by_gid(ax.collections, "tail")
    edges, heights = dark(tail)
    assert heights.max() == heights.sum() == pytest.approx(n_tied / 150)
    assert edges[0] <= -0.5 < edges[-1]


def test_margins__writes_the_numbers_of_the_result(panel: xr.DataTree, ax: Any) -> None:
    margins(panel, m=5, ax=ax)
    croma = panel["CRoMa"].to_dataset().sel(m=5)
    columns = [
        [f"{v:+.2f}".replace("-", "−") for v in croma.value.values],
        [f"{v:+.2f}".replace("-", "−") for v in croma.ltm_alpha.values],
        [f"{100 * v:.0f} %" for v in croma.f0.values],
        [f"{100 * v:.0f} %" for v in croma.support.values],
    ]
    expected = []
    for head, column in zip(("value", "LTM", "F(0)", "support"), columns, strict=True):
        expected += [head, *column]
    assert texts(ax) == expected
    assert ticks(ax.yaxis) == list(NAMES)


def test_margins__a_row_a_model_the_first_on_top(panel: xr.DataTree, ax: Any) -> None:
    margins(panel, m=1, bins=[-1.0, -0.5, -0.1, 0.0, 0.2, 1.0], ax=ax)
    for at, name in enumerate(NAMES):
        (line,) = by_gid(ax.lines, name)
        edges, heights = bars(line)
        assert edges.tolist() == [-1.0, -0.5, -0.1, 0.0, 0.2, 1.0]
        values = defined(panel["CRoMa"].sample_values.sel(m=1, model=name))
        counts = np.histogram(values, edges)[0]
        base = len(NAMES) - 1 - at
        np.testing.assert_allclose(heights - base, ROW * counts / counts.max(), atol=1e-12)
        assert line.get_ydata().min() >= base
    assert ax.get_ylim()[1] >= len(NAMES) - 1 + ROW


def test_margins__chosen_models_keep_their_colours(panel: xr.DataTree, ax: Any) -> None:
    margins(panel, m=1, model=[NAMES[2], NAMES[0]], ax=ax)
    assert ticks(ax.yaxis) == [NAMES[2], NAMES[0]]
    chosen = by_gid(ax.lines, NAMES[2])[0].get_color()
    other = ax.figure.add_subplot()
    margins(panel, m=1, ax=other)
    assert by_gid(other.lines, NAMES[2])[0].get_color() == chosen


@pytest.mark.parametrize("by", ["label", "confounder"])
def test_margins__by_label_equal_a_groupby(panel: xr.DataTree, by: str, ax: Any) -> None:
    margins(panel, m=3, model=NAMES[1], by=by, bins=30, ax=ax)
    one = panel["CRoMa"].to_dataset().sel(m=3, model=NAMES[1])
    frame = pd.DataFrame({"by": one[by].values, "v": one.sample_values.values}).dropna()
    groups = frame.groupby("by")["v"]
    assert sorted(ticks(ax.yaxis)) == sorted(groups.groups)
    found = texts(ax)
    n_rows = len(groups.groups)
    columns = {
        found[at]: found[at + 1 : at + 1 + n_rows] for at in range(0, len(found), n_rows + 1)
    }
    assert list(columns) == ["median", "LTM", "F(0)", "support", "n"]
    for at, name in enumerate(ticks(ax.yaxis)):
        values = groups.get_group(name).to_numpy()
        assert columns["n"][at] == str(values.size)
        assert columns["median"][at] == f"{np.median(values):+.2f}".replace("-", "−")
        tail = values[values <= np.quantile(values, 0.1)].mean()
        assert columns["LTM"][at] == f"{tail:+.2f}".replace("-", "−")
        edges, heights = bars(by_gid(ax.lines, name)[0])
        counts = np.histogram(values, edges)[0]
        base = n_rows - 1 - at
        np.testing.assert_allclose(heights - base, ROW * counts / counts.max(), atol=1e-12)
    assert ax.get_title(loc="left") == f"{NAMES[1]}: CRoMa, m = 3"
    assert ax.get_ylabel() == {"label": "tissue", "confounder": "center"}[by]


@pytest.mark.parametrize(("column", "name"), [("tissue", "label"), ("center", "confounder")])
def test_margins__by_the_name_of_the_column_as_a_breakdown(
    panel: xr.DataTree, column: str, name: str, ax: Any
) -> None:
    margins(panel, m=3, model=NAMES[1], by=column, ax=ax)
    other = ax.figure.add_subplot()
    margins(panel, m=3, model=NAMES[1], by=name, ax=other)
    assert (ticks(ax.yaxis), texts(ax)) == (ticks(other.yaxis), texts(other))
    assert ax.get_ylabel() == other.get_ylabel() == column


def test_margins__of_an_index_have_no_f0_and_their_own_neutral(panel: xr.DataTree, ax: Any) -> None:
    margins(panel["RI"], metric="RI", ax=ax)
    assert [text for text in texts(ax) if text[0].isalpha()] == ["value", "LTM", "support"]
    assert by_gid(ax.lines, "neutral-x-0.5")
    assert "robustness index of each sample" in ax.get_xlabel()


def test_margins__a_model_without_a_value_has_an_empty_row(panel: xr.DataTree, ax: Any) -> None:
    croma = panel["CRoMa"].to_dataset().sel(m=1).copy(deep=True)
    for name in ("sample_values", "value", "median_value", "q_alpha", "ltm_alpha", "f0"):
        croma[name][0] = np.nan
    croma["support"][0] = 0.0
    margins(croma, ax=ax)
    assert set(by_gid(ax.lines, NAMES[0])[0].get_ydata()) == {2.0}
    assert len(by_gid(ax.collections, "median")) == 2
    assert texts(ax)[1] == "–"
    croma["sample_values"][:] = np.nan
    with pytest.raises(SchemaError, match="no sample value is defined"):
        margins(croma, ax=ax)


def test_margins__all_values_equal(single: xr.DataTree, ax: Any) -> None:
    croma = single["CRoMa"].to_dataset().copy(deep=True)
    croma["sample_values"][:] = 0.0
    margins(croma, ax=ax, bins=7)
    assert by_gid(ax.lines, "")[0].get_ydata().max() == 1.0


@pytest.mark.parametrize("n_bins", [1, 7, 60, 500, None])
def test_margins__every_value_is_in_a_bin(n_bins: int | None, single: xr.DataTree, ax: Any) -> None:
    margins(single, bins=n_bins, ax=ax)
    heights = bars(by_gid(ax.lines, "")[0])[1]
    assert heights.sum() == pytest.approx(1.0)
    # 150 samples: 3 times their cube root is 15.9.
    assert (n_bins or 15) <= heights.size <= (n_bins or 15) + 2


def test_margins__of_a_million_samples_draw_no_more_than_of_a_few(
    single: xr.DataTree, ax: Any
) -> None:
    croma = single["CRoMa"].to_dataset()
    rng = np.random.default_rng(0)
    many = xr.Dataset(
        {
            "sample_values": ("sample", rng.normal(0.1, 0.2, 1_000_000).clip(-1, 1)),
            **{n: croma[n] for n in ("value", "median_value", "q_alpha", "ltm_alpha", "f0")},
            "support": croma["support"],
        },
        {"m": croma["m"]},
        croma.attrs,
    )
    margins(many, ax=ax)
    points = sum(len(line.get_xdata()) for line in ax.lines)
    corners = sum(len(p.vertices) for c in ax.collections for p in c.get_paths())
    assert points + corners < 2_000
    assert bars(by_gid(ax.lines, "")[0])[1].sum() == pytest.approx(1.0)


def test_margins__too_many_rows_are_refused_before_anything_is_made_of_them(
    single: xr.DataTree, ax: Any, monkeypatch: Any
) -> None:
    from croma_dask.plotting import distribution_rows

    croma = single["CRoMa"].to_dataset()
    many = croma.assign_coords(label=("sample", [f"label {at // 2}" for at in range(150)]))
    monkeypatch.setattr(distribution_rows, "breakdown", lambda *_, **__: pytest.fail("broken down"))
    with pytest.raises(SchemaError, match="75 rows are more than anybody can read"):
        margins(many, by="label", ax=ax)
    names = [f"model {at}" for at in range(61)]
    with pytest.raises(SchemaError, match=r"61 rows .*\(at most 60\)"):
        margins(croma.expand_dims(model=names), ax=ax)
    assert not ax.has_data()


def test_margins__long_names_of_labels_take_no_room_a_sample(single: xr.DataTree, ax: Any) -> None:
    croma = single["CRoMa"].to_dataset()
    names = np.array([f"{'n' * 100_000}{at}" for at in range(2)], object)
    long = croma.assign_coords(label=("sample", names[np.arange(150) % 2]))
    tracemalloc.start()
    try:
        rows, _ = rows_of_groups(inputs.of_metric(long, "CRoMa").isel(model=0), "CRoMa", "label")
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert [row.name for row in rows] == names.tolist()
    for at, row in enumerate(rows):
        expected = defined(croma.sample_values.values[np.arange(150) % 2 == at])
        assert row.values().tolist() == expected.tolist()
    # As text of one width they would be 150 times 400 kB.
    assert peak < 20e6


@pytest.mark.parametrize(
    ("how", "part"),
    [
        ({}, "several m: say which, m=1, 3, 5"),
        ({"m": 2}, "m=2 is not in the result; it has 1, 3, 5"),
        ({"m": 1, "by": "label"}, "one model, and the result has 3: say which, model='raw'"),
        (
            {"m": 1, "by": "slide"},
            "by='slide': .* label .tissue., confounder .center., subset",
        ),
        ({"m": 1, "by": "group"}, "by='group': expected one of label .tissue."),
        ({"m": 1, "by": ["label"]}, "expected one of label .tissue."),
        ({"m": 1, "model": "none"}, "model='none': the result has the models 'raw', "),
        ({"m": 1, "model": []}, "model=none"),
        ({"m": 1, "metric": "ASW"}, "no metric 'ASW'; it has 'RI', 'MaRI', 'CRoMa'"),
        ({"metric": "RI", "m": 1}, "RI has no m; leave it out"),
        ({"m": 1, "bins": 0}, "bins must be at least 1"),
        ({"m": 1, "bins": [1.0, 0.0]}, "edges in ascending order"),
    ],
    ids=str,
)
def test_margins__what_cannot_be_drawn(
    how: dict[str, Any], part: str, panel: xr.DataTree, ax: Any
) -> None:
    with pytest.raises(SchemaError, match=part):
        margins(panel, ax=ax, **how)
    assert not ax.has_data()


def test_margins__of_something_else(drawn: xr.DataTree, single: xr.DataTree, ax: Any) -> None:
    with pytest.raises(SchemaError, match=r"a result of score\(\); found a resampling of a r"):
        margins(drawn, ax=ax)
    with pytest.raises(SchemaError, match=r"a result of score\(\); found a list"):
        margins([1.0], ax=ax)  # type: ignore[arg-type]
    with pytest.raises(SchemaError, match="leave model= out"):
        margins(single, model="raw", ax=ax)


def test_margins__one_model_of_a_panel_by_sel_keeps_its_name(panel: xr.DataTree, ax: Any) -> None:
    margins(panel["CRoMa"].to_dataset().sel(model=NAMES[1], m=3), ax=ax)
    assert ticks(ax.yaxis) == [NAMES[1]]
