"""The degradation curve: what is drawn is what was found, and nothing else is taken for it."""

from __future__ import annotations

import builtins
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
import xarray as xr

from croma_dask import downstream, schema
from croma_dask.errors import SchemaError
from croma_dask.plotting import degradation_curve
from tests.faces.conftest import ROOT
from tests.helpers.marks import first

V = [0.0, 0.25, 0.5, 1.0]
ACCURACY = [[0.9, 0.7, 0.8], [0.8, 0.8, 0.8], [0.6, 0.75, 0.9], [0.5, 0.3, 0.1]]
MEAN = [0.8, 0.8, 0.75, 0.3]
# Of three sorted values, the 2.5 % quantile lies 0.05 of the way from the first to the second.
LOW = [0.7 + 0.05 * 0.1, 0.8, 0.6 + 0.05 * 0.15, 0.1 + 0.05 * 0.2]
HIGH = [0.9 - 0.05 * 0.1, 0.8, 0.9 - 0.05 * 0.15, 0.5 - 0.05 * 0.2]


def sweep(v: Any = V, accuracy: Any = ACCURACY, n_classes: int = 4) -> xr.Dataset:
    """A result of a sweep, as far as a curve needs it."""
    dims = ("split", "iteration")
    found = np.asarray(accuracy)
    sets = {"in_domain": found, "elsewhere": found / 2}
    return xr.Dataset(
        {n: (dims, x, {"n_classes": n_classes, "test_set": n}) for n, x in sets.items()},
        {"split": np.arange(len(found)), "cramers_v": ("split", np.asarray(v))},
    )


@pytest.fixture
def ax() -> Iterator[Any]:
    pytest.importorskip("matplotlib")
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    canvas = FigureCanvasAgg(Figure())
    yield canvas.figure.subplots()
    canvas.draw()  # whatever was put there can be drawn, without a warning


def bands(ax: Any) -> list[tuple[np.ndarray, np.ndarray, np.ndarray]]:
    """V, lower and upper edge of each band."""
    found = []
    for band in ax.collections:
        corners = band.get_paths()[0].vertices
        v = np.unique(corners[:, 0])
        edges = [corners[corners[:, 0] == at, 1] for at in v]
        found.append((v, np.array([e.min() for e in edges]), np.array([e.max() for e in edges])))
    return found


def legend(ax: Any) -> list[str]:
    return [text.get_text() for text in ax.get_legend().get_texts()]


# ---- what is drawn ---------------------------------------------------------------------------


def test_degradation_curve__draws_means_band_and_chance(ax: Any) -> None:
    assert degradation_curve(sweep(), ax=ax) is ax
    line, chance = ax.lines
    assert line.get_xdata().tolist() == V
    np.testing.assert_allclose(line.get_ydata(), MEAN, rtol=0, atol=1e-15)
    ((v, low, high),) = bands(ax)
    assert v.tolist() == V
    np.testing.assert_allclose(low, LOW, rtol=0, atol=1e-15)
    np.testing.assert_allclose(high, HIGH, rtol=0, atol=1e-15)
    assert set(chance.get_ydata()) == {0.25}
    assert ax.get_xlabel() == "Cramer's V of label and confounder in the training rows"
    assert ax.get_ylabel() == "balanced accuracy of the probe"
    assert legend(ax) == ["in_domain", "chance (1/4)"]


def test_degradation_curve__all_of_it_is_in_sight(ax: Any) -> None:
    degradation_curve(sweep(), ax=ax)
    (left, right), (bottom, top) = ax.get_xlim(), ax.get_ylim()
    assert left < 0.0
    assert right > 1.0
    assert bottom < 0.1
    assert top > 0.9
    degradation_curve(sweep(accuracy=np.full((4, 3), 0.9), n_classes=50), ax=ax)
    assert ax.get_ylim()[0] < 0.02, "a line of chance far below"


def test_degradation_curve__of_a_test_set(ax: Any) -> None:
    degradation_curve(sweep(), test_set="elsewhere", ax=ax)
    np.testing.assert_allclose(ax.lines[0].get_ydata(), np.array(MEAN) / 2)
    assert legend(ax)[0] == "elsewhere"


def test_degradation_curve__of_a_data_array_in_any_order_of_dims(ax: Any) -> None:
    degradation_curve(sweep()["elsewhere"].T, ax=ax)
    np.testing.assert_allclose(ax.lines[0].get_ydata(), np.array(MEAN) / 2)
    np.testing.assert_allclose(bands(ax)[0][1], np.array(LOW) / 2)
    assert legend(ax)[0] == "elsewhere"


def test_degradation_curve__goes_from_left_to_right(ax: Any) -> None:
    """A schedule may walk up and down."""
    order = [2, 0, 3, 1]
    degradation_curve(sweep(np.array(V)[order], np.array(ACCURACY)[order]), ax=ax)
    assert ax.lines[0].get_xdata().tolist() == V
    np.testing.assert_allclose(ax.lines[0].get_ydata(), MEAN)
    np.testing.assert_allclose(bands(ax)[0][2], HIGH)


@pytest.mark.parametrize("how", [{"band": False}, {"replicates": 1}])
def test_degradation_curve__without_a_band(how: dict[str, Any], ax: Any) -> None:
    accuracy = np.array(ACCURACY)[:, : how.pop("replicates", 3)]
    degradation_curve(sweep(accuracy=accuracy), ax=ax, **how)
    assert len(ax.collections) == 0
    np.testing.assert_allclose(ax.lines[0].get_ydata(), accuracy.mean(axis=1))


def test_degradation_curve__several_on_one_axes(ax: Any) -> None:
    ax.set_ylabel("mine")
    degradation_curve(sweep(), ax=ax, label="model A")
    degradation_curve(sweep(), test_set="elsewhere", ax=ax, label="model B")
    degradation_curve(sweep(n_classes=2), ax=ax, label="two classes")
    curves = [line for line in ax.lines if len(line.get_xdata()) == len(V)]
    assert [line.get_label() for line in curves] == ["model A", "model B", "two classes"]
    assert len({line.get_color() for line in curves}) == 3
    for line, band in zip(curves, ax.collections, strict=True):
        from matplotlib.colors import to_rgb

        assert to_rgb(band.get_facecolor()[0][:3]) == to_rgb(line.get_color())
    # A line of chance for each number of classes, and not for each curve.
    assert legend(ax) == ["model A", "chance (1/4)", "model B", "two classes", "chance (1/2)"]
    assert ax.get_ylabel() == "mine"


def test_degradation_curve__without_axes_makes_a_figure() -> None:
    matplotlib = pytest.importorskip("matplotlib")
    with matplotlib.rc_context({"backend": "Agg"}):
        plt = pytest.importorskip("matplotlib.pyplot")
        before = plt.get_fignums()
        try:
            one, other = degradation_curve(sweep()), degradation_curve(sweep())
            assert one.figure is not other.figure
            assert len(plt.get_fignums()) == len(before) + 2
        finally:
            plt.close("all")


@pytest.mark.filterwarnings("error")
def test_degradation_curve__of_a_sweep_and_of_one_that_was_read_back(
    ax: Any, tmp_path: Any
) -> None:
    rng = np.random.default_rng(0)
    labels, confounders = np.tile([0, 1], 18), np.repeat([0, 1], 18)
    x = rng.normal(size=(36, 3)) + labels[:, None]
    found = downstream.probe_sweep_over_test_sets(
        x, confounders, labels, schedule=downstream.linear_schedule(2, 2, 4, 3), iterations=3,
        validation_fraction=0.5, test_sets={"all": (x, labels)}, threads=1, quiet=True,
        scratch=str(tmp_path / "scratch"),
    )  # fmt: skip
    found.to_netcdf(tmp_path / "r.nc", engine="h5netcdf")
    with xr.open_dataset(tmp_path / "r.nc", engine="h5netcdf") as back:
        for result in (found, back):
            degradation_curve(result, test_set="all", ax=ax)
    for line in (ax.lines[0], ax.lines[2]):
        assert line.get_xdata().tolist() == found.cramers_v.values.tolist()
        assert line.get_ydata().tolist() == found["all"].values.mean(axis=1).tolist()
    assert legend(ax) == ["all", "chance (1/2)", "all"]
    degradation_curve(found["in_domain"], ax=ax)
    assert legend(ax)[-1] == "in_domain"


def test_degradation_curve__says_what_the_schema_says(ax: Any) -> None:
    degradation_curve(sweep(), ax=ax)
    assert schema.SWEEP["cramers_v"].long_name in ax.get_xlabel()
    assert schema.ACCURACY.long_name in ax.get_ylabel()


# ---- what is refused -------------------------------------------------------------------------


def without(what: str) -> Any:
    found = sweep()["in_domain"]
    if what == "v":
        return found.drop_vars("cramers_v")
    if what == "n_classes":
        del found.attrs["n_classes"]
        return found
    return found.isel({what: 0})


@pytest.mark.parametrize(
    ("result", "part"),
    [
        (ACCURACY, "found list"),
        (None, "found NoneType"),
        (without("v"), "without the coordinate cramers_v"),
        (without("n_classes"), "without the attribute n_classes"),
        (without("iteration"), "without the dims split and iteration"),
        (without("split"), "dims split and iteration and the coordinate cramers_v"),
        (sweep()["in_domain"].isel(iteration=[]), "without values"),
        (sweep()["in_domain"].expand_dims(model=["a", "b"]), "without the dims"),
        (xr.Dataset({"value": 1.0}), "no test set 'in_domain'; it has 'value'"),
        (xr.Dataset(), "it has none"),
    ],
    ids=str,
)
def test_degradation_curve__what_is_no_sweep(result: Any, part: str, ax: Any) -> None:
    with pytest.raises(SchemaError, match=part):
        degradation_curve(result, ax=ax)
    assert len(ax.lines) == 0


def test_degradation_curve__an_unknown_test_set(ax: Any) -> None:
    with pytest.raises(SchemaError, match="no test set 'there'; it has 'in_domain', 'elsewhere'"):
        degradation_curve(sweep(), test_set="there", ax=ax)


def test_degradation_curve__a_coordinate_is_no_test_set(ax: Any) -> None:
    with pytest.raises(SchemaError, match="no test set 'cramers_v'"):
        degradation_curve(sweep(), test_set="cramers_v", ax=ax)


def test_degradation_curve__v_that_is_not_defined(ax: Any) -> None:
    result = sweep([0.0, np.nan, 0.5, np.nan])
    with pytest.raises(SchemaError, match=r"cramers_v is NaN in split 1, 3.*isel\(split=\.\.\.\)"):
        degradation_curve(result, ax=ax)
    degradation_curve(result.isel(split=[0, 2]), ax=ax)
    assert ax.lines[0].get_xdata().tolist() == [0.0, 0.5]
    with pytest.raises(SchemaError, match="in split 3,"):
        degradation_curve(result.isel(split=[2, 3]), ax=ax)


def test_degradation_curve__accuracies_that_are_not_finite(ax: Any) -> None:
    accuracy = np.array(ACCURACY)
    accuracy[1, 2] = np.nan
    with pytest.raises(SchemaError, match="1 of 12 accuracies are not finite"):
        degradation_curve(sweep(accuracy=accuracy), ax=ax)


# ---- matplotlib ------------------------------------------------------------------------------


def test_degradation_curve__without_matplotlib_says_what_to_install(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    real = builtins.__import__

    def gone(name: str, *args: Any, **kwargs: Any) -> Any:
        if name.partition(".")[0] == "matplotlib":
            raise ModuleNotFoundError(f"No module named {name!r}", name="matplotlib")
        return real(name, *args, **kwargs)

    monkeypatch.setattr(builtins, "__import__", gone)
    with pytest.raises(ImportError, match=r"pip install 'croma-dask\[plot\]'"):
        degradation_curve(sweep())
    with pytest.raises(
        SchemaError, match="no test set"
    ):  # what is wrong with the input comes first
        degradation_curve(sweep(), test_set="there")


def test_degradation_curve__a_broken_matplotlib_speaks_for_itself(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    real = builtins.__import__

    def broken(name: str, *args: Any, **kwargs: Any) -> Any:
        if name.partition(".")[0] == "matplotlib":
            raise ModuleNotFoundError("No module named 'contourpy'", name="contourpy")
        return real(name, *args, **kwargs)

    monkeypatch.setattr(builtins, "__import__", broken)
    with pytest.raises(ModuleNotFoundError, match="contourpy"):
        degradation_curve(sweep())


@pytest.mark.parametrize(
    "module", first(1, ["croma_dask.plotting", "croma_dask", "croma_dask.downstream"])
)
def test_import__does_not_load_matplotlib(module: str) -> None:
    """Neither with the package nor with the module that draws."""
    code = f"import sys, {module}\nprint(*(name.split('.')[0] for name in sys.modules))"
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=False, cwd=ROOT
    )
    assert done.returncode == 0, done.stderr
    assert "croma_dask" in done.stdout.split()
    assert "matplotlib" not in done.stdout.split()
