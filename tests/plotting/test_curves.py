"""Curves over m and k: the lines are the result's numbers, in order, with the choice marked."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import xarray as xr

from croma_dask.errors import SchemaError
from croma_dask.plotting import k_curve, m_sweep
from tests.plotting.conftest import NAMES, M, by_gid, legend


@pytest.mark.parametrize("variable", ["value", "ltm_alpha", "f0", "support"])
def test_m_sweep__a_line_a_model(variable: str, panel: xr.DataTree, ax: Any) -> None:
    assert m_sweep(panel, variable, ax=ax) is ax
    lines = {line.get_label(): line for line in ax.lines}
    for name in NAMES:
        expected = panel["CRoMa"][variable].sel(model=name).values
        assert lines[name].get_xdata().tolist() == list(M)
        assert lines[name].get_ydata().tolist() == expected.tolist()
    assert len({line.get_color() for line in ax.lines}) == len(ax.lines)
    assert panel["CRoMa"][variable].attrs["long_name"] in ax.get_ylabel().replace("\n", " ")
    assert ax.get_xlabel() == "nearest neighbours of each type (SO, OS), m"
    # Shares have no value of an embedding that favours neither side.
    assert bool(by_gid(ax.lines, "neutral-y-0.0")) == (variable in ("value", "ltm_alpha"))


def test_m_sweep__legend_goes_from_the_highest_line_down(panel: xr.DataTree, ax: Any) -> None:
    m_sweep(panel, "ltm_alpha", ax=ax)
    last = panel["CRoMa"].ltm_alpha.isel(m=-1)
    assert legend(ax)[:3] == last.sortby(last, ascending=False)["model"].values.tolist()
    assert legend(ax)[3:] == ["neutral (0)"]


def test_m_sweep__m_in_any_order_are_drawn_in_theirs(panel: xr.DataTree, ax: Any) -> None:
    one = panel["CRoMa"].to_dataset().isel(model=0, m=[2, 0, 1])
    m_sweep(one, ax=ax)
    assert ax.lines[0].get_xdata().tolist() == list(M)
    assert ax.lines[0].get_ydata().tolist() == one.value.sortby("m").values.tolist()


def test_m_sweep__what_cannot_be_drawn(panel: xr.DataTree, single: xr.DataTree, ax: Any) -> None:
    with pytest.raises(SchemaError, match="two m or more, and the result has m=3 only"):
        m_sweep(single, ax=ax)
    with pytest.raises(
        SchemaError, match="'sample_values' is not one number at each m; expected one"
    ):
        m_sweep(panel, "sample_values", ax=ax)
    with pytest.raises(SchemaError, match="no 'speed'; it has"):
        m_sweep(panel, "speed", ax=ax)
    with pytest.raises(SchemaError, match="no metric 'CRoMa'; it has 'RI'"):
        m_sweep(panel["RI"], ax=ax)
    assert not ax.has_data()


def test_k_curve__lines_and_operating_k(panel: xr.DataTree, ax: Any) -> None:
    assert k_curve(panel, ax=ax) is ax
    for metric in ("RI", "MaRI"):
        node = panel[metric].to_dataset()
        for name in NAMES:
            one = node.sel(model=name)
            (line,) = by_gid(ax.lines, f"{metric}/{name}")
            assert line.get_xdata().tolist() == [11, 21, 31]
            assert line.get_ydata().tolist() == one.curve.values.tolist()
            (ring,) = by_gid(ax.lines, f"operating_k/{metric}/{name}")
            assert ring.get_xdata().tolist() == [int(one.k)]
            assert ring.get_ydata().tolist() == [float(one.curve.sel(k_candidate=int(one.k)))]
    assert by_gid(ax.lines, "neutral-y-0.5")
    assert legend(ax) == [*NAMES, "RI", "MaRI", "operating k", "neutral (0.5)"]
    assert ax.get_xticks().tolist() == [11, 21, 31]
    assert ax.get_ylabel() == "RI and MaRI at every candidate k"


def test_k_curve__candidates_in_any_order_are_drawn_in_theirs(panel: xr.DataTree, ax: Any) -> None:
    order = [1, 2, 0]
    mixed = {name: panel[name].to_dataset().isel(k_candidate=order) for name in ("RI", "MaRI")}
    k_curve(xr.DataTree.from_dict(mixed), balanced_accuracy=True, ax=ax)
    for gid, variable in (("RI/raw", "curve"), ("balanced_accuracy/raw", "balanced_accuracy")):
        (line,) = by_gid(ax.lines, gid)
        assert line.get_xdata().tolist() == [11, 21, 31]
        assert line.get_ydata().tolist() == panel["RI"][variable].sel(model="raw").values.tolist()


def test_k_curve__with_balanced_accuracy(single: xr.DataTree, ax: Any) -> None:
    k_curve(single, "RI", balanced_accuracy=True, ax=ax)
    (line,) = by_gid(ax.lines, "balanced_accuracy/")
    assert line.get_ydata().tolist() == single["RI"].balanced_accuracy.values.tolist()
    assert legend(ax) == ["RI", "operating k", "balanced accuracy of the label", "neutral (0.5)"]
    assert ax.get_ylabel() == "robustness index at every candidate k"


def test_k_curve__default_takes_the_metrics_that_are_there(panel: xr.DataTree, ax: Any) -> None:
    k_curve(panel["MaRI"].to_dataset(), model=NAMES[1], ax=ax)
    lines = [line.get_gid() for line in ax.lines if line.get_gid().startswith("MaRI")]
    assert lines == [f"MaRI/{NAMES[1]}"]
    assert not [line for line in ax.lines if line.get_gid().startswith("RI/")]


def test_k_curve__what_cannot_be_drawn(panel: xr.DataTree, ax: Any) -> None:
    with pytest.raises(SchemaError, match="metrics='CRoMa': RI and MaRI have a curve"):
        k_curve(panel, "CRoMa", ax=ax)
    with pytest.raises(SchemaError, match="no metric 'RI'; it has 'CRoMa'"):
        k_curve(panel["CRoMa"], ax=ax)
    with pytest.raises(SchemaError, match="no metric 'MaRI'; it has 'RI'"):
        k_curve(panel["RI"], ["MaRI"], ax=ax)
    assert not ax.has_data()


@pytest.mark.parametrize("draw", [m_sweep, k_curve])
def test_curves__labels_that_somebody_wrote_stay(draw: Any, panel: xr.DataTree, ax: Any) -> None:
    ax.set_xlabel("mine")
    ax.set_ylabel("mine too")
    draw(panel, ax=ax)
    assert (ax.get_xlabel(), ax.get_ylabel()) == ("mine", "mine too")


def test_curves__twenty_models_do_not_look_alike() -> None:
    from croma_dask.plotting.theme import look_of

    looks = [look_of(at) for at in range(28)]
    assert len(set(looks)) == 28
    assert len({(look.color, look.marker) for look in looks}) == 28
    assert np.isclose(len({look.color for look in looks}), 7)
