"""Heat map of cells: the image and the texts are a groupby's numbers."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
import pytest
import xarray as xr

from croma_dask.errors import SchemaError
from croma_dask.plotting import cells
from tests.plotting.conftest import NAMES, by_gid, texts, ticks


def frame_of(one: xr.Dataset) -> pd.DataFrame:
    return pd.DataFrame(
        {
            "label": one.label.values,
            "confounder": one.confounder.values,
            "v": one.sample_values.values,
        }
    )


def table(frame: pd.DataFrame, how: Any, ax: Any) -> np.ndarray:
    """(labels, levels) in the order of the ticks; NaN where there is nothing."""
    found = frame.dropna().groupby(["label", "confounder"])["v"].apply(how).unstack()
    return found.reindex(index=ticks(ax.yaxis), columns=ticks(ax.xaxis)).to_numpy(float)


def test_cells__median_of_each_cell_and_counts(panel: xr.DataTree, ax: Any) -> None:
    assert cells(panel, m=3, model=NAMES[0], ax=ax) is ax
    frame = frame_of(panel["CRoMa"].to_dataset().sel(m=3, model=NAMES[0]))
    expected = table(frame, np.median, ax)
    (image,) = ax.images
    found = image.get_array()
    np.testing.assert_allclose(found.filled(np.nan), expected, rtol=0, atol=1e-15)
    assert sorted(ticks(ax.yaxis)) == sorted(frame["label"].unique())
    counts = table(frame, len, ax)
    wanted = []
    for value, count in zip(expected.ravel(), counts.ravel(), strict=True):
        if not np.isnan(value):
            text = f"{value:+.2f}".replace("-", "−")
            wanted += ["0.00" if text[1:] == "0.00" else text, f"n = {count:.0f}"]
    assert texts(ax) == wanted
    assert (ax.get_ylabel(), ax.get_xlabel()) == ("tissue", "center")
    assert ax.get_title(loc="left") == f"{NAMES[0]}: CRoMa, m = 3"


def test_cells__colours_are_centred_at_the_neutral_value(panel: xr.DataTree, ax: Any) -> None:
    cells(panel, "value", metric="RI", model=NAMES[1], ax=ax)
    (image,) = ax.images
    assert (image.norm.vmin + image.norm.vmax) / 2 == pytest.approx(0.5)
    reach = np.abs(image.get_array().compressed() - 0.5).max()
    assert image.norm.vmax - 0.5 == pytest.approx(reach)
    red, _, blue, _ = image.cmap(image.norm(image.norm.vmin))
    assert red > blue, "below neutral the confounder wins, in red"


def test_cells__empty_ones_are_hatched(panel: xr.DataTree, ax: Any) -> None:
    cells(panel, m=1, model=NAMES[0], ax=ax)
    (patch,) = by_gid(ax.patches, "empty")
    row, column = round(patch.get_y() + 0.5), round(patch.get_x() + 0.5)
    assert (ticks(ax.yaxis)[row], ticks(ax.xaxis)[column]) == ("a$b$", "C")
    assert patch.get_hatch()
    assert np.ma.getmaskarray(ax.images[0].get_array()).sum() == 1


@pytest.mark.parametrize("variable", ["n_samples", "n_defined", "support", "q_alpha"])
def test_cells__empty_ones_are_empty_of_every_variable(
    variable: str, panel: xr.DataTree, ax: Any
) -> None:
    """Counts have a 0 there, and no NaN: that is no number to be drawn, either."""
    cells(panel, variable, m=1, model=NAMES[0], ax=ax)
    (patch,) = by_gid(ax.patches, "empty")
    row, column = round(patch.get_y() + 0.5), round(patch.get_x() + 0.5)
    assert (ticks(ax.yaxis)[row], ticks(ax.xaxis)[column]) == ("a$b$", "C")
    assert "n = 0" not in texts(ax)
    assert len(texts(ax)) == 2 * 8


def test_cells__without_a_defined_sample_say_of_how_many(single: xr.DataTree, ax: Any) -> None:
    croma = single["CRoMa"].to_dataset().copy(deep=True)
    gone = ((croma.label == "tumour") & (croma.confounder == "B")).values
    croma["sample_values"][gone] = np.nan
    croma["defined"][gone] = False
    croma["undefined_type"][gone] = 1
    cells(croma, ax=ax)
    assert f"0 of {gone.sum()}" in texts(ax)
    (empty,), (undefined,) = (by_gid(ax.patches, gid) for gid in ("empty", "undefined"))
    assert empty.get_hatch() != undefined.get_hatch()
    row, column = round(undefined.get_y() + 0.5), round(undefined.get_x() + 0.5)
    assert (ticks(ax.yaxis)[row], ticks(ax.xaxis)[column]) == ("tumour", "B")
    assert ax.get_title(loc="left") == "CRoMa, m = 3"


def test_cells__shares_are_in_percent_from_none_to_all(panel: xr.DataTree, ax: Any) -> None:
    cells(panel, "f0", m=5, model=NAMES[2], ax=ax)
    (image,) = ax.images
    assert (image.norm.vmin, image.norm.vmax) == (0.0, 1.0)
    frame = frame_of(panel["CRoMa"].to_dataset().sel(m=5, model=NAMES[2]))
    expected = table(frame, lambda v: (v <= 0).mean(), ax)
    np.testing.assert_allclose(image.get_array().filled(np.nan), expected, rtol=0, atol=1e-15)
    assert all(text.endswith("%") for text in texts(ax)[::2])


def test_cells__text_is_readable_on_every_colour(panel: xr.DataTree, ax: Any) -> None:
    from matplotlib.colors import to_rgb

    def luminance(color: Any) -> float:
        parts = np.array(to_rgb(color))
        linear = np.where(parts <= 0.04045, parts / 12.92, ((parts + 0.055) / 1.055) ** 2.4)
        return float(linear @ [0.2126, 0.7152, 0.0722])

    cells(panel, m=3, model=NAMES[0], ax=ax)
    (image,) = ax.images
    for text in ax.texts:
        x, y = text.get_position()
        value = image.get_array()[round(y), round(x)]
        pair = sorted([luminance(text.get_color()), luminance(image.cmap(image.norm(value))[:3])])
        assert (pair[1] + 0.05) / (pair[0] + 0.05) > 4.5, "WCAG AA"


def test_cells__numbers_can_be_left_out(panel: xr.DataTree, ax: Any) -> None:
    ax.set_title("mine")
    cells(panel, m=3, model=NAMES[0], numbers=False, ax=ax)
    assert texts(ax) == []
    assert (ax.get_title(), ax.get_title(loc="left")) == ("mine", "")


@pytest.mark.parametrize(
    ("how", "part"),
    [
        ({"m": 1}, "one model, and the result has 3"),
        ({"model": NAMES[0]}, "several m"),
        ({"m": 1, "model": NAMES[0], "variable": "speed"}, "a breakdown of CRoMa has"),
    ],
    ids=str,
)
def test_cells__what_cannot_be_drawn(
    how: dict[str, Any], part: str, panel: xr.DataTree, ax: Any
) -> None:
    with pytest.raises(SchemaError, match=part):
        cells(panel, ax=ax, **how)
    assert not ax.has_data()
