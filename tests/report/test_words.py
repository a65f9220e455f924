"""What a report says in words, and what it warns of."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import xarray as xr

import croma_dask as cd
from croma_dask.breakdown.leaning import Leaning
from croma_dask.panel.models import as_panel, datasets_of, names_of
from croma_dask.report.about import definitions, lead
from croma_dask.report.caution_leaning import index_leaning
from croma_dask.report.cautions import cautions
from croma_dask.report.summary import readings, summary_table
from croma_dask.report.tables import empty_cells
from croma_dask.report.words import Words, isolated, listed, percent, signed
from tests.helpers.report_page import Page
from tests.report.conftest import rows_of, score

NAN = float("nan")
WORDS = Words(label="diagnosis", confounder="scanner", group="slide", paired=False)
MINUS = "\N{MINUS SIGN}"


@pytest.mark.parametrize(
    ("share", "text"),
    [
        (0.0, "0.0 %"), (1.0, "100.0 %"), (0.1234, "12.3 %"), (0.0001, "less than 0.1 %"),
        (0.9999, "more than 99.9 %"), (0.9995, "more than 99.9 %"), (0.9994, "99.9 %"),
        (NAN, "an unknown share"),
    ],
)  # fmt: skip
def test_percent__claims_no_0_and_no_100_that_is_not(share: float, text: str) -> None:
    assert percent(share) == text


def test_signed__has_a_true_minus_sign() -> None:
    assert signed(-0.25) == f"{MINUS}0.250"
    assert signed(0.0) == "0.000"
    assert signed(1e-9) == "just above 0"
    assert signed(-1e-5) == "just below 0"


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
    assert WORDS.margin([0.0, NAN, NAN], 5).startswith("CRoMa is 0: for a typical sample, samples")
    assert "prevails" not in WORDS.margin([0.0, NAN, NAN], 5)
    assert "no value" in WORDS.margin([NAN, NAN, NAN], 5)
    assert "(the 5 nearest of each are looked at)" in good
    assert "(the nearest of each is looked at)" in WORDS.margin([0.3, NAN, NAN], 1)


def test_wins__names_both_columns() -> None:
    text = WORDS.wins([0.25, 0.2, 0.3])
    assert text.startswith(
        "At 25.0 % (20.0 % to 30.0 %) of the samples the scanner wins over the d"
    )
    assert WORDS.wins([0.0, 0.0, 0.0]) == (
        "At none of the samples the scanner wins over the diagnosis: everywhere those that share "
        "only the diagnosis are nearer than samples that share only the scanner."
    )
    assert "(0.0 % to 1.0 %)" in WORDS.wins([0.0, 0.0, 0.01])


def test_sentences__of_a_part_speak_of_that_part() -> None:
    """With support below 1 a margin is typical of those that have one, and of no others."""
    margin = WORDS.margin([0.3, 0.2, 0.4], 5, 0.1)
    assert "a typical sample that has a margin lies nearer" in margin
    assert margin.endswith("It rests on 10.0 % of the samples; the others have no margin.")
    assert "10.0 % of the samples that have a margin the scanner" in WORDS.wins(
        [0.1, NAN, NAN], 0.5
    )
    assert "none of the samples that have a margin the" in WORDS.wins([0.0, NAN, NAN], 0.5)
    assert "worst 10 % of the samples that have a margin" in WORDS.tail([0.1, NAN, NAN], 0.1, 0.5)
    for text in (WORDS.margin([0.3, NAN, NAN], 5), WORDS.wins([0.1, NAN, NAN]),
                 WORDS.tail([0.1, NAN, NAN], 0.1)):  # fmt: skip
        assert "have a margin" not in text
        assert "rests" not in text


def test_readings__say_what_they_rest_on(panel: xr.DataTree) -> None:
    croma = panel["CRoMa"].to_dataset()
    some = croma.assign(support=croma["support"] * 0 + 0.25)
    for one in readings({"CRoMa": some}, {}, names_of(panel), WORDS):
        assert "It rests on 25.0 % of the samples" in one["sentences"][0]
        assert all("have a margin" in text or "has a margin" in text for text in one["sentences"])


def test_sentences__of_a_paired_design_speak_of_subsets(paired: xr.DataTree) -> None:
    words = Words(label="diagnosis", confounder="scanner", group="slide", paired=True)
    text = words.margin([-0.3, NAN, NAN], 5)
    assert text.startswith(
        f"CRoMa is {MINUS}0.300, the median of the subsets' medians: in a typical subset, a "
        "typical occurrence lies nearer to occurrences of another diagnosis from the same scanner"
    )
    nodes = datasets_of(as_panel(paired))
    (title,) = (
        column["title"]
        for column in summary_table(nodes, {}, ["x"], words)["columns"]
        if column["title"].startswith("CRoMa value")
    )
    assert title == "CRoMa value (median of subset medians)"
    told = dict(definitions(nodes, words))["CRoMa, cross-confounder robustness margin"]
    assert "the value is the median over the subsets of their medians" in told
    assert "samples" not in told


@pytest.mark.parametrize(
    ("value", "alpha", "text"),
    [
        ([0.1, NAN, NAN], 0.1, "Over the worst 10 % of the samples the margin is 0.100 on average: "
         "even there the diagnosis prevails."),
        ([0.1, -0.2, 0.3], 0.1, f"Over the worst 10 % of the samples the margin is 0.100 ({MINUS}"
         "0.200 to 0.300) on average: which of the two prevails there, this cohort does not tell."),
        ([0.1, NAN, NAN], 0.0, "At the worst of the samples the margin is 0.100: even there the "
         "diagnosis prevails."),
        ([0.1, NAN, NAN], 1.0, "Over all samples the margin is 0.100 on average: there the "
         "diagnosis prevails."),
        ([-1e-5, NAN, NAN], 1.0, "Over all samples the margin is just below 0 on average: there "
         "the scanner prevails."),
    ],
)  # fmt: skip
def test_tail__says_what_it_is_of_and_no_more_than_it_knows(
    value: list[float], alpha: float, text: str
) -> None:
    assert WORDS.tail(value, alpha) == text


def test_isolated__keeps_the_direction_of_a_name_to_itself() -> None:
    assert isolated("plain \u00e9") == "plain \u00e9"
    assert isolated("\u202eevil") == "\u2068\u202eevil\u2069"
    assert listed(["\u05d0", "a"]) == "\u2068\u05d0\u2069 and a"


def test_lead__counts_what_was_scored(paired: xr.DataTree) -> None:
    """Rows of an incomplete subset are no part of what the numbers are of."""
    words = Words(label="diagnosis", confounder="scanner", group="slide", paired=True)
    nodes = {"CRoMa": without_first_subset(paired)}
    assert lead(nodes, ["x"], words) == (
        "96 occurrences with 2 levels of diagnosis (normal and tumour) and 2 of scanner (A and B), "
        "in 48 groups (slide), scored for one embedding. Neighbours are looked for within 2 paired "
        "2 x 2 subsets."
    )


def without_first_subset(paired: xr.DataTree) -> xr.Dataset:
    croma = as_panel(paired)["CRoMa"].to_dataset()
    out = croma["sample_subset"] == "pair 0"
    return croma.assign(undefined_type=croma["undefined_type"].where(~out, -1))


def test_definitions__say_where_tau_is_from(single: xr.DataTree) -> None:
    def told(**attrs: Any) -> str:
        mari = single["MaRI"].to_dataset()
        mari.attrs = {k: v for k, v in mari.attrs.items() if k != "tau_choice"} | attrs
        return dict(definitions({"MaRI": mari}, WORDS))["MaRI, margin-aware robustness index"]

    assert "tau a distance that was given" in told(tau_choice="pinned")
    assert "tau the median distance of such neighbours" in told(tau_choice="recommended")
    # An older result does not say.
    assert "by default the median" in told()


def test_definitions__know_a_pinned_tau_of_score(frame: pd.DataFrame) -> None:
    x = rows_of(frame, 4, biology=1.2, shortcut=1.2)
    nodes = datasets_of(score(x, frame, metrics=("MaRI",), tau=0.3, warn_tau=False))
    assert "tau a distance that was given" in definitions(nodes, WORDS)[1][1]


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
    croma.attrs |= {"n_rows": 151, "n_zero_rows": 1}
    assert titles(croma) == ["1 of 151 rows was left out", "1 row of the embedding is zero"]


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


def test_cautions__tell_of_k_once_and_last(panel: xr.DataTree) -> None:
    """Both metrics of all models share one warning."""
    nodes = {}
    for metric in ("RI", "MaRI"):
        node = panel[metric].to_dataset()
        dims = node["curve"].dims
        node = node.assign(
            curve=(dims, [[0.8, 0.5]] * 3), balanced_accuracy=(dims, [[0.9, 0.899]] * 3)
        )
        nodes[metric] = node.assign_coords(k=("model", [3, 3, 3]))
    found = cautions(nodes, names_of(panel), WORDS, empty=(1, [("a", "b")]))
    about_k = [one for one in found if "choice of k" in one["title"]]
    assert about_k == found[-1:]
    assert found[-1]["title"] == (
        "The choice of k matters to RI and MaRI of good, poor and plain/noise"
    )
    assert found[-1]["text"].startswith(
        "good: k = 7 predicts the label about as well as the operating k = 3 (balanced accuracy "
        "0.8990 and 0.9000), and there RI is 0.500 instead of 0.800 and MaRI is 0.500 instead of "
        "0.800. poor: "
    )


def leaning(metric: str, model: str, group: str = "S17", **values: Any) -> Leaning:
    croma = metric == "CRoMa"
    return Leaning(
        **{
            "metric": metric, "model": model, "m": 5 if croma else None,
            "statistic": "ltm_alpha" if croma else "value", "group": group, "share": 0.042,
            "part": 0.91, "part_of": "lower tail" if croma else "OS evidence", "value": 0.48,
            "without": 0.95, **values,
        }
    )  # fmt: skip


def test_cautions__of_one_group_come_first_and_together(panel: xr.DataTree) -> None:
    croma = panel["CRoMa"].to_dataset()
    found = told(
        croma, empty=(1, [("a", "b")]),
        leaning=[leaning("RI", "poor"), leaning("MaRI", "poor"), leaning("CRoMa", "good")],
    )  # fmt: skip
    title, text = found[0]
    assert len(found) == 2
    assert title == "slide S17 decides RI and MaRI of poor, and the lower tail of good"
    assert text == (
        "It holds 4.2 % of the samples. poor: of the neighbours that share only the scanner, its "
        "samples bring 91.0 %; without them RI is 0.950 instead of 0.480; of the neighbours that "
        "share only the scanner, its samples bring 91.0 % by weight; without them MaRI is 0.950 "
        "instead of 0.480. good: 91.0 % of the worst 10 % of the samples are its own; without "
        "them the lower-tail mean at m = 5 is 0.950 instead of 0.480. Look at it before you judge "
        "by these values."
    )


def test_cautions__of_many_groups_share_one(panel: xr.DataTree) -> None:
    croma = panel["CRoMa"].to_dataset()
    every = [leaning("RI", "good", f"S{i}", without=0.6 + 0.01 * i) for i in range(14)]
    found = told(croma, leaning=every)
    assert [title.split()[1] for title, _ in found[:4]] == ["S13", "S12", "S11", "S10"]
    title, text = found[4]
    assert title == "Further values are decided by one slide each"
    assert text.startswith("S9 decides RI of good; S8 ")
    assert text.endswith("; and 2 more.")
    ((title, text),) = told(croma, leaning=[leaning("RI", "\u202eevil", "\u05d0", without=np.nan)])
    assert title.startswith("slide \u2068\u05d0\u2069 decides RI of ")
    assert "without them RI has no value" in text


def test_cautions__name_the_slide_that_decides(tmp_path: Path) -> None:
    """From a score to the page, of a cohort of which one slide lies among another label."""
    rng = np.random.default_rng(5)
    group = np.repeat(np.arange(24), 10)
    label, centre = rng.integers(0, 3, group.size), group % 2
    placed = np.where(group == 7, (label + 1) % 3, label)
    x = rng.normal(size=(group.size, 8))
    x[:, :3] += 6.0 * np.eye(3)[placed]
    x[:, 4] += 5.0 * centre
    frame = pd.DataFrame(
        {"sample_id": [f"t{i}" for i in range(group.size)], "diagnosis": label,
         "scanner": centre, "slide": [f"S{g}" for g in group]}
    )  # fmt: skip
    result = score(x, frame, k_candidates=[5], m=[2, 3])
    page = Page(cd.report(result, tmp_path / "r.html", n_draws=0))
    first = page.payload["cautions"][0]
    assert first["title"] == "slide S7 decides RI, MaRI and the lower tail"
    assert "It holds 4.2 % of the samples. Of the neighbours that share only" in first["text"]
    assert "the lower-tail mean at m = 2 is" in first["text"]
    # Results of earlier releases do not tell.
    old = {m: result[m].to_dataset().drop_vars("so_evidence") for m in ("RI", "MaRI")}
    assert index_leaning(datasets_of(as_panel(xr.DataTree.from_dict(old)))) == []


def test_cautions__of_an_approximate_search_claim_no_k_that_is_worse(panel: xr.DataTree) -> None:
    """That the exact search may have chosen another k does not make that k predict as well."""
    ri = panel["RI"].to_dataset().isel(model=[0])
    dims = ri["curve"].dims
    ri = ri.assign(
        curve=(dims, [[0.8, 0.5]]),
        balanced_accuracy=(dims, [[0.9, 0.7]]),
        k_possible=(dims, [[True, True]]),
        support=ri["support"] * 0 + 1.0,
    ).assign_coords(k=("model", [3]))
    ((title, text),) = told(ri)
    assert title == "the choice of k matters to RI"
    assert text == (
        "k = 7 might be the operating k of an exact search, instead of k = 3 of this approximate "
        "one (balanced accuracy 0.7000 and 0.9000), and there RI is 0.500 instead of 0.800."
    )


def test_cautions__count_the_groups_that_were_scored(paired: xr.DataTree) -> None:
    """A limit of 10, as of the bootstrap's own warning."""
    croma = without_first_subset(paired)
    rows = np.arange(croma.sizes["sample"])
    groups = np.where(croma["sample_subset"] == "pair 0", rows, rows % 9).astype(str)
    croma = croma.assign_coords(group_id=("sample", groups.astype(object)))
    assert "Only 9 groups" in titles(croma)
    croma = croma.assign_coords(group_id=("sample", (rows % 10).astype(str).astype(object)))
    assert not [title for title in titles(croma) if title.startswith("Only")]


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


def test_cautions__of_one_thing_are_in_the_singular(panel: xr.DataTree) -> None:
    ((_, text),) = told(panel["CRoMa"].to_dataset(), empty=(1, [("tumour", "C")]))
    assert text.startswith("1 combination of diagnosis and scanner holds no sample: tumour with C.")


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
