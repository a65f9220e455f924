"""What a report says in words, and what it warns of."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import xarray as xr

from croma_dask.panel.models import as_panel, datasets_of, names_of
from croma_dask.report.cautions import cautions
from croma_dask.report.tables import empty_cells
from croma_dask.report.words import Words, listed, percent, signed

NAN = float("nan")
WORDS = Words(label="diagnosis", confounder="scanner", group="slide", paired=False)
MINUS = "\N{MINUS SIGN}"


@pytest.mark.parametrize(
    ("share", "text"),
    [
        (0.0, "0.0 %"), (1.0, "100.0 %"), (0.1234, "12.3 %"), (0.0001, "less than 0.1 %"),
        (0.9999, "more than 99.9 %"), (NAN, "an unknown share"),
    ],
)  # fmt: skip
def test_percent__claims_no_0_and_no_100_that_is_not(share: float, text: str) -> None:
    assert percent(share) == text


def test_signed__has_a_true_minus_sign() -> None:
    assert signed(-0.25) == f"{MINUS}0.250"
    assert signed(0.0) == "0.000"
    assert signed(1e-9) == "less than 0.001"


def test_listed__names_the_first_and_counts_the_rest() -> None:
    assert listed(["a"]) == "a"
    assert listed(["a", "b", "c"]) == "a, b and c"
    assert listed(list("abcd"), 2) == "a, b and 2 more"


def test_margin__says_who_prevails_and_how_sure_that_is() -> None:
    good = WORDS.margin([0.3, 0.2, 0.4], 5)
    assert "nearer to samples of the same diagnosis from another scanner than to samples" in good
    assert "the diagnosis prevails" in good
    assert good.endswith("The 95 % interval is 0.200 to 0.400.")
    poor = WORDS.margin([-0.3, -0.4, 0.1], 5)
    assert "nearer to samples of another diagnosis from the same scanner than to samples" in poor
    assert "the scanner prevails" in poor
    assert "includes 0: this cohort does not tell" in poor
    assert "interval" not in WORDS.margin([0.3, NAN, NAN], 5)
    assert "prevails" not in WORDS.margin([0.0, NAN, NAN], 5)
    assert "no value" in WORDS.margin([NAN, NAN, NAN], 5)


def test_wins__names_both_columns() -> None:
    text = WORDS.wins([0.25, 0.2, 0.3])
    assert text.startswith(
        "At 25.0 % (20.0 % to 30.0 %) of the samples the scanner wins over the d"
    )
    assert WORDS.wins([0.0, 0.0, 0.0]).startswith("At none of the samples the scanner wins")
    assert "(0.0 % to 1.0 %)" in WORDS.wins([0.0, 0.0, 0.01])


def test_share__speaks_of_the_neighbours_that_tell() -> None:
    assert "80.0 % share the diagnosis." in WORDS.share("RI", [0.8, NAN, NAN], 21, 1.0)
    assert "rests on 50.0 % of the samples" in WORDS.share("RI", [0.8, NAN, NAN], 21, 0.5)
    assert "says nothing here" in WORDS.share("RI", [0.5, NAN, NAN], 21, 0.0)
    assert "near ones count more" in WORDS.share("MaRI", [0.8, 0.7, 0.9], 21, 1.0)


def told(result: Any, **options: Any) -> list[tuple[str, str]]:
    panel = as_panel(result)
    found = cautions(datasets_of(panel), names_of(panel), WORDS, **{"empty": (0, []), **options})
    return [(one["title"], one["text"]) for one in found]


def titles(result: Any, **options: Any) -> list[str]:
    return [title for title, _ in told(result, **options)]


def with_croma(panel: xr.DataTree, **values: Any) -> xr.Dataset:
    return panel["CRoMa"].to_dataset().assign(**values)


def test_cautions__tell_that_two_models_are_one(panel: xr.DataTree) -> None:
    croma = panel["CRoMa"].to_dataset()
    prints = croma["embedding_fingerprint"].values.copy()
    prints[2] = prints[0]
    croma = croma.assign_coords(embedding_fingerprint=("model", prints))
    assert titles(croma) == ["good and plain/noise are the same embedding"]


def test_cautions__tell_of_an_approximate_search_and_its_errors(panel: xr.DataTree) -> None:
    croma = panel["CRoMa"].to_dataset().isel(m=0)
    croma = croma.assign_coords(
        index=("model", np.array(["exact", "ivf", "exact"], object)),
        recall=("model", [1.0, 0.97, 1.0]),
    )
    value = croma["value"]
    croma = croma.assign(value_error_low=value * 0 - 0.01, value_error_high=value * 0 + 0.02)
    ((title, text),) = told(croma)
    assert title == "poor: neighbours are approximate (ivf)"
    assert text.startswith("97.0 % of the true neighbours")
    exact = float(value[1])
    ends = f"CRoMa {exact - 0.02:.4f} to {exact + 0.01:.4f}".replace("-", MINUS)
    assert ends in text


def test_cautions__tell_of_rows_that_were_left_out_or_are_zero(single: xr.DataTree) -> None:
    croma = single["CRoMa"].to_dataset()
    croma.attrs |= {"n_rows": 200, "n_rows_used": 150, "n_zero_rows": 3}
    assert titles(croma) == ["50 of 200 rows were left out", "3 rows of the embedding are zero"]


def test_cautions__tell_of_support_and_why(single: xr.DataTree) -> None:
    title, text = told(single)[0]
    assert title.startswith("RI and MaRI speak for ")
    assert "mostly neighbours that share" in text


def test_cautions__of_many_models_share_one(panel: xr.DataTree) -> None:
    croma = panel["CRoMa"].to_dataset().isel(model=[0, 1, 2, 0, 1])
    croma = croma.assign_coords(
        model=np.array(list("abcde"), object),
        embedding_fingerprint=("model", np.array(list("abcde"), object)),
    )
    croma["support"] = croma["support"] * 0 + 0.5
    ((title, text),) = told(croma)
    assert title == "CRoMa speaks for a part of the samples only"
    assert "a 50.0 %, b 50.0 %" in text


def test_cautions__tell_that_k_differs_and_that_it_matters(panel: xr.DataTree) -> None:
    ri = panel["RI"].to_dataset()
    curve, accuracy = ri["curve"].values.copy(), ri["balanced_accuracy"].values.copy()
    accuracy[:] = [0.9, 0.5]
    accuracy[1] = [0.9, 0.899]
    curve[1] = [0.8, 0.5]
    ri = ri.assign(
        curve=(ri["curve"].dims, curve), balanced_accuracy=(ri["balanced_accuracy"].dims, accuracy)
    )
    ri = ri.assign_coords(k=("model", [3, 3, 3]))
    ri["support"] = ri["support"] * 0 + 1.0
    assert titles(ri) == ["poor: the choice of k matters to RI"]
    differing = titles(ri.assign_coords(k=("model", [3, 3, 7])))
    assert "RI and MaRI are read at different k" in differing


def test_cautions__tell_of_few_groups_empty_cells_and_no_intervals(panel: xr.DataTree) -> None:
    croma = panel["CRoMa"].to_dataset()
    few = croma.assign_coords(
        group_id=("sample", np.array([f"g{i % 5}" for i in range(croma.sizes["sample"])], object))
    )
    found = titles(few, empty=(7, [("tumour", "C")]), without_intervals="Not asked for.")
    assert found == [
        "Only 5 groups", "Label and confounder do not cover each other", "No intervals",
    ]  # fmt: skip


def test_cautions__of_a_clean_result_are_none(panel: xr.DataTree) -> None:
    assert titles(panel["CRoMa"].to_dataset()) == []


def test_cautions__name_subsets_without_a_value(paired: xr.DataTree) -> None:
    croma = paired["CRoMa"].to_dataset()
    values = croma["pair_values"].values.copy()
    values[1] = np.nan
    croma = croma.assign(pair_values=("subset", values))
    assert ("CRoMa has no value in 1 of 3 subsets", "They are left out of it: pair 1.") in told(
        croma
    )


def test_cautions__name_the_first_empty_cells(panel: xr.DataTree) -> None:
    ((title, text),) = told(panel["CRoMa"].to_dataset(), empty=(7, [("tumour", "C"), ("a", "D")]))
    assert title == "Label and confounder do not cover each other"
    assert "7 combinations of diagnosis and scanner hold no sample: tumour with C; a with D" in text
    assert "and 5 more" in text


def test_empty_cells__are_counted(panel: xr.DataTree) -> None:
    croma = panel["CRoMa"].to_dataset()
    assert empty_cells(as_panel(croma)) == (0, [])
    keep = (croma["label"] != "stroma") | (croma["confounder"] != "B")
    some = as_panel(croma.isel(sample=np.flatnonzero(keep.values)))
    assert empty_cells(some) == (1, [("stroma", "B")])


def test_cautions__tell_of_support_at_other_m(panel: xr.DataTree) -> None:
    croma = panel["CRoMa"].to_dataset().isel(model=[0])
    for support, title in ((0.5, "CRoMa speaks for 50.0 % of the samples only at m = 3"),
                           (0.0, "CRoMa without a value at m = 3")):  # fmt: skip
        values = croma["support"] * 0 + 1.0
        values[0, 1] = support
        assert titles(croma.assign(support=values)) == [title]
