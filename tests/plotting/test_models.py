"""Models against each other: the Pareto front and the intervals of a bootstrap."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import pytest
import xarray as xr

import croma_dask as cd
from croma_dask.errors import SchemaError
from croma_dask.plotting import intervals, pareto
from tests.plotting.conftest import NAMES, by_gid, legend, texts, ticks


def made_up(values: list[float], tails: list[float]) -> xr.Dataset:
    """CRoMa of a panel, as far as a front needs it."""
    croma = xr.Dataset(
        {"value": ("model", np.array(values)), "ltm_alpha": ("model", np.array(tails))},
        {"model": [f"model {at}" for at in range(len(values))], "m": 5},
        {"metric": "CRoMa"},
    )
    croma["value"].attrs = {"long_name": "margin", "units": "1", "neutral_value": 0.0}
    croma["ltm_alpha"].attrs = {"long_name": "tail", "units": "1", "neutral_value": 0.0}
    return croma


def points(ax: Any) -> dict[str, list[tuple[float, float]]]:
    return {
        found.get_label(): [tuple(at) for at in found.get_offsets().tolist()]
        for found in ax.collections
        if not found.get_label().startswith("_")
    }


def test_pareto__of_hand_made_models(ax: Any) -> None:
    """0 and 3 and 4 are on the front; 1 is beaten by 0 and 2 by 4, in value alone."""
    x, y = [0.1, 0.05, 0.3, 0.2, 0.4], [-0.1, -0.2, -0.5, -0.3, -0.5]
    assert pareto(made_up(x, y), ax=ax) is ax
    assert points(ax) == {
        "beaten by another model": [(0.05, -0.2), (0.3, -0.5)],
        "not beaten in both": [(0.1, -0.1), (0.2, -0.3), (0.4, -0.5)],
    }
    (steps,) = (line for line in ax.lines if line.get_label() == "Pareto front")
    assert steps.get_drawstyle() == "steps-pre"
    assert steps.get_xdata().tolist() == [0.1, 0.2, 0.4]
    assert steps.get_ydata().tolist() == [-0.1, -0.3, -0.5]
    assert sorted(texts(ax)) == [f"model {at}" for at in range(5)]
    assert legend(ax) == ["Pareto front", "beaten by another model", "not beaten in both"]
    assert (ax.get_xlabel(), ax.get_ylabel()) == ("margin, m = 5", "tail")


def test_pareto__names_stand_beside_their_points(ax: Any) -> None:
    croma = made_up([0.1, 0.2, 0.3], [-0.1, -0.2, -0.3])
    pareto(croma, ax=ax)
    for text in ax.texts:
        at = text.get_text()
        one = croma.sel(model=at)
        assert text.xy == (float(one["value"]), float(one["ltm_alpha"]))


def test_pareto__crowded_names_do_not_cover_each_other() -> None:
    plt = pytest.importorskip("matplotlib.pyplot")
    rng = np.random.default_rng(0)
    try:
        with plt.rc_context({"backend": "Agg"}):
            ax = pareto(made_up(*(0.2 + 0.1 * rng.random((2, 12))).tolist()))
            ax.figure.draw_without_rendering()
            boxes = [text.get_window_extent() for text in ax.texts]
            crossings = sum(
                one.overlaps(other) for at, one in enumerate(boxes) for other in boxes[:at]
            )
            assert crossings <= 1
    finally:
        plt.close("all")


def test_pareto__is_that_of_the_panel(panel: xr.DataTree, ax: Any) -> None:
    pareto(panel, m=3, ax=ax)
    croma = panel["CRoMa"].to_dataset().sel(m=3)
    front = [
        (float(one.value), float(one.ltm_alpha))
        for one in (croma.sel(model=name) for name in NAMES)
        if bool(one.pareto_front)
    ]
    assert sorted(points(ax)["not beaten in both"]) == sorted(front)


def test_pareto__of_some_models_is_their_own(ax: Any) -> None:
    croma = made_up([0.1, 0.2, 0.3], [0.1, 0.2, 0.3])
    pareto(croma, model=["model 0", "model 1"], ax=ax)
    assert points(ax)["not beaten in both"] == [(0.2, 0.2)]


def test_pareto__with_intervals(panel: xr.DataTree, drawn: xr.DataTree, ax: Any) -> None:
    pareto(panel, m=5, model=[NAMES[2], NAMES[0]], bootstrap=drawn, ax=ax)
    found = drawn["CRoMa"].to_dataset().sel(m=5, model=[NAMES[2], NAMES[0]])
    across, up = (c for c in ax.collections if hasattr(c, "get_segments"))
    for at, one in enumerate(across.get_segments()):
        low, high = float(found.value_low[at]), float(found.value_high[at])
        assert one.tolist() == [[low, float(found.ltm_alpha[at])], [high, one[0, 1]]]
    for at, one in enumerate(up.get_segments()):
        assert one[:, 0].tolist() == [float(found.value[at])] * 2
        ends = [float(found.ltm_alpha_low[at]), float(found.ltm_alpha_high[at])]
        assert one[:, 1].tolist() == ends


@pytest.mark.parametrize(
    ("attrs", "note"),
    [
        (
            {"neighbors": "held fixed", "interval": "percentile"},
            "90 % interval over slide_id, neighbours held fixed",
        ),
        (
            {"neighbors": "of each half", "interval": "half samples, Student's t"},
            "90 % interval over slide_id, neighbours of each half",
        ),
    ],
)
def test_intervals__are_told_apart_by_what_became_of_the_neighbours(
    attrs: dict[str, str], note: str, panel: xr.DataTree, drawn: xr.DataTree, ax: Any
) -> None:
    found = drawn["CRoMa"].to_dataset().assign_attrs(attrs)
    intervals(found, m=1, ax=ax)
    assert legend(ax) == [note]
    other = ax.figure.add_subplot()
    pareto(panel, m=1, bootstrap=found, ax=other)
    assert [text.replace("\n", " ") for text in legend(other)][:2] == ["Pareto front", note]
    plain = ax.figure.add_subplot()
    pareto(panel, m=1, ax=plain)
    assert not any("interval" in text for text in legend(plain))


def test_pareto__models_without_a_value_are_named(ax: Any) -> None:
    pareto(made_up([0.1, np.nan], [-0.1, np.nan]), ax=ax)
    assert texts(ax) == ["model 0", "not drawn, without a value: 'model 1'"]


def test_pareto__what_cannot_be_drawn(
    panel: xr.DataTree, single: xr.DataTree, drawn: xr.DataTree, ax: Any
) -> None:
    with pytest.raises(SchemaError, match="compares models, and this result is of one"):
        pareto(single, ax=ax)
    with pytest.raises(SchemaError, match="several m: say which, m=1, 3, 5"):
        pareto(panel, ax=ax)
    with pytest.raises(SchemaError, match=r"half_samples\(\); found a result of score\(\)"):
        pareto(panel, m=3, bootstrap=panel, ax=ax)
    with pytest.raises(SchemaError, match="no model has both"):
        pareto(made_up([np.nan, np.nan], [0.0, 0.0]), ax=ax)
    other = panel["CRoMa"].to_dataset().assign_coords(model=["x", "y", "z"])
    with pytest.raises(SchemaError, match="model='x', 'y', 'z': the result has the models"):
        pareto(other, m=3, bootstrap=drawn, ax=ax)
    assert not ax.has_data()


@pytest.mark.parametrize(("statistic", "best"), [("value", -1), ("ltm_alpha", -1), ("f0", 0)])
def test_intervals__best_on_top(statistic: str, best: int, drawn: xr.DataTree, ax: Any) -> None:
    assert intervals(drawn, statistic, m=5, ax=ax) is ax
    found = drawn["CRoMa"].to_dataset().sel(m=5)
    top = found["model"].values[np.argsort(found[statistic].values)][best]
    assert ticks(ax.yaxis)[0] == top
    heights = dict(zip(ticks(ax.yaxis), ax.get_yticks(), strict=True))
    assert heights[top] == 2
    for name in NAMES:
        one = found.sel(model=name)
        (whisker,), (dot,) = (by_gid(ax.lines, f"{what}/{name}") for what in ("interval", "value"))
        ends = [float(one[f"{statistic}_low"]), float(one[f"{statistic}_high"])]
        assert list(whisker.get_xdata()) == ends
        assert list(whisker.get_ydata()) == [heights[name]] * 2
        assert (dot.get_xdata()[0], dot.get_ydata()[0]) == (float(one[statistic]), heights[name])


def test_intervals__writes_the_numbers(drawn: xr.DataTree, ax: Any) -> None:
    intervals(drawn, metric="RI", ax=ax)
    one = drawn["RI"].to_dataset().sortby("value", ascending=False).isel(model=0)
    interval = f"{float(one.value_low):.3f} to {float(one.value_high):.3f}"
    expected = ["value", "90 % interval", "rank", f"{float(one.value):.3f}", interval, "1–3"]
    assert texts(ax)[:6] == expected
    assert ax.get_xlabel() == "robustness index"


def test_intervals__neutral_line_only_where_it_is_in_view(drawn: xr.DataTree, ax: Any) -> None:
    intervals(drawn, "f0", m=1, ax=ax)
    assert not [line for line in ax.lines if (line.get_gid() or "").startswith("neutral")]
    near = drawn["CRoMa"].to_dataset().sel(m=1).copy(deep=True)
    near["value_low"][:] = -0.5
    near["value_high"][:] = 0.5
    other = ax.figure.add_subplot()
    intervals(near, ax=other)
    assert by_gid(other.lines, "neutral-x-0.0")


def test_intervals__what_cannot_be_drawn(panel: xr.DataTree, drawn: xr.DataTree, ax: Any) -> None:
    with pytest.raises(
        SchemaError, match=r"a result of bootstrap\(\) or half.*found a result of score"
    ):
        intervals(panel, m=1, ax=ax)
    with pytest.raises(SchemaError, match="RI of this result has no 'f0_low'"):
        intervals(drawn, "f0", metric="RI", ax=ax)
    with pytest.raises(SchemaError, match="several m"):
        intervals(drawn, ax=ax)


@pytest.mark.slow
def test_intervals__of_a_real_bootstrap(panel: xr.DataTree, single: xr.DataTree, ax: Any) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", cd.SupportWarning)
        of_panel, of_one = (cd.bootstrap(what, n_draws=20, seed=1) for what in (panel, single))
    intervals(of_panel, m=3, ax=ax)
    assert sorted(ticks(ax.yaxis)) == sorted(NAMES)
    intervals(of_panel["RI"].to_dataset(), metric="RI", ax=ax.figure.add_subplot())
    other = ax.figure.add_subplot()
    intervals(of_one, ax=other)
    assert ticks(other.yaxis) == []
    pareto(panel, m=3, bootstrap=of_panel, ax=ax.figure.add_subplot())
