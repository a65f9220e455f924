"""The accessor of plots: what suits a result is listed, and forwarded as it stands."""

from __future__ import annotations

import builtins
import inspect
import sys
from typing import Any

import numpy as np
import pytest
import xarray as xr

import croma_dask as cd
from croma_dask import plotting
from croma_dask.errors import SchemaError
from croma_dask.plotting import PlotAccessor, theme

PLOTS = [name for name in plotting.__all__ if name != "PlotAccessor"]


def sweep() -> xr.Dataset:
    return xr.Dataset(
        {"in_domain": (("split", "iteration"), np.full((2, 2), 0.7), {"n_classes": 2})},
        {"split": [0, 1], "cramers_v": ("split", [0.0, 1.0])},
        {"metric": "probe_sweep"},
    )


def suited(result: Any) -> set[str]:
    return {name for name in dir(PlotAccessor(result)) if name in PLOTS}


@pytest.mark.parametrize("name", PLOTS)
def test_accessor__forwards_with_the_same_signature(name: str, monkeypatch: Any) -> None:
    function, method = getattr(plotting, name), getattr(PlotAccessor, name)
    own = list(inspect.signature(method).parameters.values())[1:]
    its = list(inspect.signature(function).parameters.values())[1:]
    assert [(p.name, p.kind, p.default) for p in own] == [(p.name, p.kind, p.default) for p in its]
    assert f"croma_dask.plotting.{name}" in (method.__doc__ or "")
    said: dict[str, Any] = {}

    def instead(*arguments: Any, **named: Any) -> str:
        said.update(inspect.signature(function).bind(*arguments, **named).arguments)
        return "drawn"

    monkeypatch.setattr(sys.modules[function.__module__], name, instead)
    monkeypatch.setattr(PlotAccessor, "_of", lambda self, name: self._result)
    given = {p.name: object() for p in own}
    assert method(PlotAccessor("result"), **given) == "drawn"
    (first,) = set(said) - set(given)
    assert said == {first: "result", **given}


def test_accessor__lists_what_suits(
    panel: xr.DataTree, single: xr.DataTree, drawn: xr.DataTree, benchmark: xr.Dataset
) -> None:
    assert suited(panel) == {"margins", "m_sweep", "k_curve", "cells", "pareto"}
    assert suited(single) == {"margins", "k_curve", "cells"}
    assert suited(panel["CRoMa"].to_dataset()) == {"margins", "m_sweep", "cells", "pareto"}
    assert suited(panel["RI"].to_dataset()) == {"margins", "k_curve", "cells"}
    assert suited(drawn) == suited(drawn["RI"].to_dataset()) == {"intervals"}
    assert suited(benchmark) == {"metric_table"}
    assert suited(sweep()) == {"degradation_curve"}
    assert suited(xr.Dataset()) == set()
    assert repr(PlotAccessor(drawn)) == "<plots of this result: intervals>"
    assert repr(PlotAccessor(xr.Dataset())) == "<plots of this result: none>"


@pytest.mark.parametrize("name", PLOTS)
def test_accessor__an_unsuitable_plot_says_what_it_needs(name: str) -> None:
    told = f"^{name} is drawn of a .*; this is no object of croma-dask, of which there are no plots"
    with pytest.raises(SchemaError, match=told):
        getattr(PlotAccessor(xr.Dataset()), name)()


def test_accessor__unsuitable_kinds_are_told_apart(single: xr.DataTree, drawn: xr.DataTree) -> None:
    with pytest.raises(
        SchemaError, match=r"this is a result of score\(\), of which .* plots: margins, k"
    ):
        PlotAccessor(single).degradation_curve()
    with pytest.raises(
        SchemaError, match=r"margins is drawn of .* score\(\); this is a resampling of a r"
    ):
        PlotAccessor(drawn).margins()
    with pytest.raises(SchemaError, match="two m or more"):
        PlotAccessor(single).m_sweep()
    with pytest.raises(SchemaError, match="compares models"):
        PlotAccessor(single).pareto()


def test_accessor__there_are_no_plots_of_a_breakdown(panel: xr.DataTree) -> None:
    """It has the metric of the result in its attrs, and statistics of the same names."""
    for found in (cd.breakdown(panel["CRoMa"], "label"), cd.worst_groups(panel, 2, metric="RI")):
        assert suited(found) == set()
        assert repr(PlotAccessor(found)) == "<plots of this result: none>"
        with pytest.raises(SchemaError, match="a breakdown of a result, of which .* no plots"):
            PlotAccessor(found).margins()
        with pytest.raises(SchemaError, match=r"a result of score\(\); found a breakdown"):
            plotting.margins(found)


def test_accessor__draws(panel: xr.DataTree, ax: Any) -> None:
    assert PlotAccessor(panel).margins(m=1, ax=ax) is ax
    assert PlotAccessor(sweep()).degradation_curve(ax=ax.figure.add_subplot()) is not ax


# ---- what all plots have in common -----------------------------------------------------------


def draw_all(
    panel: xr.DataTree, drawn: xr.DataTree, benchmark: xr.Dataset, ax: Any
) -> dict[str, Any]:
    plots = {
        "margins": lambda: plotting.margins(panel, m=1, ax=ax),
        "m_sweep": lambda: plotting.m_sweep(panel, ax=ax),
        "k_curve": lambda: plotting.k_curve(panel, ax=ax),
        "cells": lambda: plotting.cells(panel, m=1, model="raw", ax=ax),
        "pareto": lambda: plotting.pareto(panel, m=1, ax=ax),
        "intervals": lambda: plotting.intervals(drawn, m=1, ax=ax),
        "degradation_curve": lambda: plotting.degradation_curve(sweep(), ax=ax),
        "metric_table": lambda: plotting.metric_table(benchmark, "lung", ax=ax),
    }
    assert set(plots) == set(PLOTS)
    return plots


@pytest.mark.parametrize("name", PLOTS)
def test_plots__make_axes_change_no_setting_and_show_nothing(
    name: str, panel: xr.DataTree, drawn: xr.DataTree, benchmark: xr.Dataset, monkeypatch: Any
) -> None:
    matplotlib = pytest.importorskip("matplotlib")
    with matplotlib.rc_context({"backend": "Agg"}):
        plt = pytest.importorskip("matplotlib.pyplot")
        monkeypatch.setattr(plt, "show", lambda: pytest.fail("shown"))
        before, figures = dict(matplotlib.rcParams), len(plt.get_fignums())
        try:
            found = draw_all(panel, drawn, benchmark, None)[name]()
            assert len(plt.get_fignums()) == figures + 1
            assert found.get_figure().get_layout_engine() is not None
            found.get_figure().canvas.draw()
            assert dict(matplotlib.rcParams) == before
        finally:
            plt.close("all")


@pytest.mark.parametrize("name", PLOTS)
def test_plots__what_somebody_wrote_stays(
    name: str, panel: xr.DataTree, drawn: xr.DataTree, benchmark: xr.Dataset, ax: Any
) -> None:
    ax.set(xlabel="x of mine", ylabel="y of mine", title="title of mine")
    draw_all(panel, drawn, benchmark, ax)[name]()
    assert (ax.get_xlabel(), ax.get_ylabel()) == ("x of mine", "y of mine")
    assert (ax.get_title(), ax.get_title(loc="left")) == ("title of mine", "")


@pytest.mark.parametrize("name", PLOTS)
def test_plots__say_what_to_install(
    name: str, panel: xr.DataTree, drawn: xr.DataTree, benchmark: xr.Dataset,
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    real = builtins.__import__

    def without_matplotlib(module: str, *rest: Any) -> Any:
        if module.partition(".")[0] == "matplotlib":
            raise ModuleNotFoundError("No module named 'matplotlib'", name="matplotlib")
        return real(module, *rest)

    monkeypatch.setattr(builtins, "__import__", without_matplotlib)
    with pytest.raises(ImportError, match=r"pip install 'croma-dask\[plot\]'"):
        draw_all(panel, drawn, benchmark, None)[name]()


# ---- theme -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("value", "how", "text"),
    [
        (-0.25, {"signed": True}, "−0.25"),
        (0.25, {"signed": True}, "+0.25"),
        (0.25, {}, "0.25"),
        (-0.001, {"signed": True}, "0.00"),
        (0.0, {"signed": True}, "0.00"),
        (-0.0012, {"digits": 3}, "−0.001"),
        (float("nan"), {}, "–"),
    ],
)
def test_theme__numbers(value: float, how: dict[str, Any], text: str) -> None:
    assert theme.number(value, **how) == text


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (0.0, "0 %"), (0.001, "<1 %"), (0.5, "50 %"), (0.999, ">99 %"), (1.0, "100 %"),
        (float("nan"), "–"),
    ],
)  # fmt: skip
def test_theme__percent(value: float, text: str) -> None:
    assert theme.percent(value) == text


def test_theme__colours_can_be_told_apart_without_colour() -> None:
    """Their tints and they themselves are of different lightness, as tail and body have to be."""
    pytest.importorskip("matplotlib")
    from matplotlib.colors import to_rgb

    def grey(color: Any) -> float:
        return float(np.dot(to_rgb(color), [0.299, 0.587, 0.114]))

    for at in range(7):
        color = theme.look_of(at).color
        assert grey(theme.tint(color, 0.35)) - grey(color) > 0.2
