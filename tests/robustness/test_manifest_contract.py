"""What a manifest must hold to be scored, and what it may look like."""

from __future__ import annotations

import datetime
import os
import subprocess
import sys
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
import xarray as xr

import croma_dask as cd
from tests.helpers.cohorts import Cohort, features, manifest
from tests.helpers.compare import assert_same_bits

N = 48


@pytest.fixture
def cohort(rng: np.random.Generator) -> Cohort:
    """Every row is defined at k = 20."""
    label, confounder = np.arange(N) % 2, np.arange(N) // 2 % 2
    x = features(rng, label, confounder, 5, biology=0.2, shortcut=0.2)
    return Cohort(x, manifest(label, confounder))


def score(x: Any, frame: Any, **options: Any) -> xr.Dataset:
    options = {"confounder_column": "center", "k_candidates": [20]} | options
    return cd.RI.compute(x, frame, **options)


def every_metric(x: Any, frame: Any, **options: Any) -> list[Callable[[], Any]]:
    """Each public entry, ready to be called."""
    common = {"confounder_column": "center"} | options
    paired = common.get("evaluation_design", "all")
    return [
        lambda: cd.RI.compute(x, frame, k_candidates=[20], **common),
        lambda: cd.RI.compute_curve(x, frame, k_values=[20], **common),
        lambda: cd.MaRI.compute(x, frame, k_candidates=[20], **common),
        lambda: cd.MaRI.compute_curve(x, frame, k_values=[20], **common),
        lambda: cd.MaRI.recommend_tau(x, frame, k=20, **common),
        lambda: cd.CRoMa.compute(x, frame, m=2, **common),
        lambda: cd.score(x, frame, confounder="center", design=paired, k_candidates=[20]),
        lambda: cd.plan(x, frame, confounder="center", design=paired, k_candidates=[20]),
    ]


def assert_all_raise(calls: list[Callable[[], Any]], match: str, error: type = ValueError) -> None:
    for call in calls:
        with pytest.raises(error, match=match) as caught:
            call()
        assert isinstance(caught.value, cd.CromaDaskError)
        assert len(str(caught.value)) < 600, "a message, not a dump"


# ---- missing columns and cells ---------------------------------------------------------------


@pytest.mark.parametrize("column", ["sample_id", "label", "group_id", "center"])
def test_a_missing_column__is_named(column: str, cohort: Cohort) -> None:
    calls = every_metric(cohort.x, cohort.frame.drop(columns=column))
    assert_all_raise(calls, f"no column '{column}'")


def test_a_missing_column__is_named_once_and_with_the_cure(cohort: Cohort) -> None:
    frame = cohort.frame.rename(columns={"label": "tissue", "group_id": "slide"})
    assert_all_raise(
        every_metric(cohort.x, frame, confounder_column="label"),
        r"no column 'label', 'group_id' \(it has .*which column is the label \(label=, --label\) "
        r"and which is the group \(group=, --group\), or rename it",
    )
    given = {"confounder": "center", "label": "tissue", "group": "slide"}
    cd.score(cohort.x, frame, metrics=["CRoMa"], m=1, **given)


def test_a_missing_subset_column__is_named_for_the_paired_design(cohort: Cohort) -> None:
    calls = every_metric(cohort.x, cohort.frame, evaluation_design="paired_2x2")
    assert_all_raise(calls, "no column 'subset'")


def test_slide_id__hints_at_the_rename(cohort: Cohort) -> None:
    old = cohort.frame.rename(columns={"group_id": "slide_id"})
    assert_all_raise(every_metric(cohort.x, old), "'slide_id'.*rename.*'group_id'")


@pytest.mark.parametrize("missing", [None, np.nan, pd.NA, pd.NaT, "", "   ", "\u00a0\t"])
@pytest.mark.parametrize("column", ["label", "group_id", "center", "subset"])
def test_a_missing_cell__names_the_column_the_first_rows_and_how_many(
    column: str, missing: Any, cohort: Cohort
) -> None:
    frame = cohort.frame.assign(subset="a").astype(object)
    rows = [3, 8, 9, 12, 30, 31, 40]
    for row in rows:
        frame.loc[row, column] = missing
    # positions, not index labels: the caller may pass a filtered frame
    frame.index = pd.Index(range(1000, 1000 + N))
    with pytest.raises(cd.SchemaError, match=rf"'{column}'.*rows 3, 8, 9, 12, 30 and 2 more"):
        score(cohort.x, frame, evaluation_design="paired_2x2")


def test_a_missing_cell__raises_from_every_entry(cohort: Cohort) -> None:
    frame = cohort.frame.copy()
    frame.loc[5, "label"] = None
    assert_all_raise(every_metric(cohort.x, frame), r"'label'.*row 5 .*1 of 48")


def test_a_missing_subset__does_not_matter_to_the_design_all(cohort: Cohort) -> None:
    frame = cohort.frame.assign(subset=None)
    assert_same_bits(score(cohort.x, frame), score(cohort.x, cohort.frame))


def test_na_words__are_classes(cohort: Cohort) -> None:
    """Only an empty cell is missing: what a reader of CSV files calls NA is text here."""
    words = np.array(["NA", "nan", "None", "null", "N/A", "n/a"])
    frame = cohort.frame.assign(
        label=words[np.arange(N) % 2], center=words[2 + np.arange(N) // 2 % 2]
    )
    found = score(cohort.x, frame)
    assert set(found.label.values) == {"NA", "nan"}
    # classes by another name: 0 became NA, 1 became nan
    assert float(found.value) == float(score(cohort.x, cohort.frame).value)


# ---- ids -------------------------------------------------------------------------------------


def test_repeated_ids__are_named(cohort: Cohort) -> None:
    frame = cohort.frame.copy()
    frame.loc[7, "sample_id"] = frame.loc[2, "sample_id"]
    frame.loc[9, "sample_id"] = " s0004 "
    calls = [c for c in every_metric(cohort.x, frame)][:-1]  # a plan does not read ids
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        assert_all_raise(calls, "'s0002', 's0004'")


def test_repeated_ids__are_fine_across_subsets_and_not_within(cohort: Cohort) -> None:
    x = np.concatenate([cohort.x, cohort.x])
    both = pd.concat([cohort.frame.assign(subset="a"), cohort.frame.assign(subset="b")])
    found = score(x, both, evaluation_design="paired_2x2", k_candidates=[9])
    assert found.sample_id.values.tolist() == cohort.frame["sample_id"].tolist() * 2
    assert found.sample_values.values[:N].tobytes() == found.sample_values.values[N:].tobytes()
    with pytest.raises(cd.SchemaError, match="'s0000'.*paired_2x2"):
        score(x, both)
    both["subset"] = "a"
    with pytest.raises(cd.SchemaError, match="'s0000'.*within a subset"):
        score(x, both, evaluation_design="paired_2x2", k_candidates=[9])


def test_missing_ids__are_refused(cohort: Cohort) -> None:
    frame = cohort.frame.copy()
    frame.loc[[4, 6], "sample_id"] = ["", None]
    with pytest.raises(cd.SchemaError, match="'sample_id'.*rows 4, 6"):
        score(cohort.x, frame)


@pytest.mark.parametrize(
    "ids",
    [
        [f"{i:07d}" for i in range(N)],
        [2**53 + i for i in range(N)],
        [f"{i}E5" for i in range(N)],
        ["é" + str(i) for i in range(N)],
        ["x" * (1 + 40 * i) for i in range(N)],
    ],
)
def test_ids__survive_as_text(ids: list[Any], cohort: Cohort) -> None:
    found = score(cohort.x, cohort.frame.assign(sample_id=ids))
    assert found.sample_id.values.tolist() == [str(i) for i in ids]


def test_huge_ids_with_a_gap_elsewhere__keep_their_digits(cohort: Cohort) -> None:
    frame = cohort.frame.assign(group_id=pd.array([2**53 + i for i in range(N)], dtype="Int64"))
    assert score(cohort.x, frame).group_id.values[1] == str(2**53 + 1)


# ---- column types ----------------------------------------------------------------------------

KEYS = ["label", "group_id", "center"]


def converted(frame: pd.DataFrame, how: str) -> Any:
    """The same manifest in another type of column or frame."""
    if how == "categorical":
        return frame.astype(dict.fromkeys(KEYS, "category"))
    if how == "unused categories":
        out = frame.astype(dict.fromkeys(KEYS, "category"))
        for key in KEYS:
            out[key] = out[key].cat.add_categories(["zzz", "0 0"])
        return out
    if how == "ordered":
        out = frame.copy()
        for key in KEYS:
            out[key] = pd.Categorical(frame[key], sorted(set(frame[key]))[::-1], ordered=True)
        return out
    if how == "string":
        return frame.astype("string")
    if how == "string[pyarrow]":
        return frame.astype("string[pyarrow]")
    if how == "arrow dictionary":
        kind = pd.ArrowDtype(pa.dictionary(pa.int32(), pa.string()))
        return frame.astype(dict.fromkeys(KEYS, kind))
    if how == "integer":
        return frame.assign(**{k: frame[k].str.removeprefix("g").astype(int) for k in KEYS})
    if how == "nullable integer":
        return frame.assign(**{k: frame[k].str.removeprefix("g").astype("Int64") for k in KEYS})
    if how == "integral float":
        return frame.assign(**{k: frame[k].str.removeprefix("g").astype(float) for k in KEYS})
    if how == "float16":
        return frame.assign(**{k: frame[k].str.removeprefix("g").astype("f2") for k in KEYS})
    if how == "bytes":
        return frame.assign(**{k: frame[k].str.encode("utf-8") for k in KEYS})
    if how == "numpy text":
        return {c: frame[c].to_numpy().astype("U12") for c in frame}
    if how == "dict of lists":
        return {c: frame[c].tolist() for c in frame}
    if how == "arrow table":
        return pa.table({c: frame[c].tolist() for c in frame})
    if how == "arrow export":  # what polars and duckdb offer
        table = pa.table({c: frame[c].tolist() for c in frame})

        class Exporter:
            def __arrow_c_stream__(self, requested_schema: Any = None) -> Any:
                return table.__arrow_c_stream__(requested_schema)

        return Exporter()
    if how == "padded":
        return frame.assign(**{k: "  " + frame[k] + "\u00a0" for k in KEYS})
    if how == "padded header":
        return frame.rename(columns={"label": " label ", "center": "center\t"})
    raise AssertionError(how)


@pytest.mark.parametrize(
    "how",
    [
        "categorical", "unused categories", "ordered", "string", "string[pyarrow]",
        "arrow dictionary", "integer", "nullable integer", "integral float", "float16", "bytes",
        "numpy text", "dict of lists", "arrow table", "arrow export", "padded", "padded header",
    ],
)  # fmt: skip
def test_column_types__give_one_number(how: str, cohort: Cohort) -> None:
    frame = cohort.frame
    if how in ("integer", "nullable integer", "integral float", "float16"):
        frame = frame.assign(group_id=frame["group_id"].str.removeprefix("g"))
    assert_same_bits(score(cohort.x, converted(frame, how)), score(cohort.x, frame))


@pytest.mark.parametrize(
    "values",
    [
        [1, "1"] * (N // 2),
        [1, "a"] * (N // 2),
        [True, "x"] * (N // 2),
        [["a"], ["b"]] * (N // 2),
        [1 + 2j, 2j] * (N // 2),
    ],
    ids=["int and text", "int and word", "bool and text", "lists", "complex"],
)
def test_mixed_columns__raise_and_name_the_column(values: list[Any], cohort: Cohort) -> None:
    label = pd.Series(values, dtype=object)
    with pytest.raises(cd.SchemaError, match="'label'"):
        score(cohort.x, cohort.frame.assign(label=label))


@pytest.mark.parametrize(
    "values", [[True, False], [0.5, 1.5], [datetime.date(2020, 1, 1), datetime.date(2021, 1, 1)]]
)
def test_other_columns__become_text(values: list[Any], cohort: Cohort) -> None:
    frame = cohort.frame.assign(label=[values[i % 2] for i in range(N)])
    assert set(score(cohort.x, frame).label.values) == {str(v) for v in values}


def test_labels_that_differ_by_blanks__are_one_and_it_is_said(cohort: Cohort) -> None:
    label = cohort.frame["label"].copy()
    label[::3] = " " + label[::3] + " "
    with pytest.warns(cd.InputWarning, match="'label'.*blanks.*'0', '1'"):
        found = score(cohort.x, cohort.frame.assign(label=label))
    with warnings.catch_warnings():
        assert_same_bits(found, score(cohort.x, cohort.frame))


def test_case_and_accents__are_kept_apart(cohort: Cohort) -> None:
    label = np.where(np.arange(N) % 2, "Überklasse", "überklasse")
    assert set(score(cohort.x, cohort.frame.assign(label=label)).label.values) == set(label)


def test_a_filtered_frame__is_read_by_position(cohort: Cohort, rng: np.random.Generator) -> None:
    keep = rng.random(N) < 0.8
    part = cohort.frame[keep]
    found = score(cohort.x[keep], part)
    assert_same_bits(found, score(cohort.x[keep], part.reset_index(drop=True)))
    mapping = {c: part[c] for c in part}
    mapping["label"] = part["label"].reset_index(drop=True)  # indexes that do not fit
    assert_same_bits(found, score(cohort.x[keep], mapping))
    indexed = part.set_index("sample_id", drop=False)
    assert_same_bits(found, score(cohort.x[keep], indexed))


def test_a_doubled_column__is_refused(cohort: Cohort) -> None:
    frame = pd.concat([cohort.frame, cohort.frame[["label"]]], axis=1)
    with pytest.raises(cd.SchemaError, match="more than one column named 'label'"):
        score(cohort.x, frame)


def test_something_that_is_no_table__is_refused(cohort: Cohort) -> None:
    for thing in ([1, 2], "manifest.csv", 7):
        with pytest.raises(cd.SchemaError, match="data frame"):
            score(cohort.x, thing)
    with pytest.raises(cd.SchemaError, match="length"):
        score(cohort.x, {"label": ["a"] * N, "center": ["x"] * (N - 1)})


# ---- what the cohort must hold ---------------------------------------------------------------


def test_rows_that_do_not_match__are_counted(cohort: Cohort) -> None:
    for frame in (cohort.frame.iloc[:-1], pd.concat([cohort.frame, cohort.frame.tail(1)])):
        assert_all_raise(every_metric(cohort.x, frame), f"{N} rows.*{len(frame)}")


def test_no_rows__is_one_error(cohort: Cohort) -> None:
    assert_all_raise(every_metric(cohort.x[:0], cohort.frame[:0]), "0 rows")


def test_one_label__is_refused(cohort: Cohort) -> None:
    calls = every_metric(cohort.x, cohort.frame.assign(label="tumour"))
    assert_all_raise(calls, "label 'tumour'.*column 'label'.*at least 2")


def test_one_confounder_level__is_refused(cohort: Cohort) -> None:
    calls = every_metric(cohort.x, cohort.frame.assign(center="A"))
    assert_all_raise(calls, "confounder level 'A'.*column 'center'.*at least 2")


def test_one_group__is_refused(cohort: Cohort) -> None:
    calls = every_metric(cohort.x, cohort.frame.assign(group_id="patient"))
    assert_all_raise(calls, "group 'patient'.*'group_id'", RuntimeError)


def test_one_row__is_refused(cohort: Cohort) -> None:
    assert_all_raise(every_metric(cohort.x[:1], cohort.frame[:1]), "label")


def test_no_k_below_the_number_of_rows__names_both(cohort: Cohort) -> None:
    with pytest.raises(cd.SupportError, match=r"8.*\[8, 20\]"):
        score(cohort.x[:8], cohort.frame[:8], k_candidates=[8, 20])
    assert isinstance(pytest.raises(RuntimeError, score, cohort.x[:8], cohort.frame[:8]).value,
                      cd.SupportError)  # fmt: skip


def test_groups_may_span_labels_and_confounders(cohort: Cohort) -> None:
    frame = cohort.frame.assign(group_id=[f"g{i // 3}" for i in range(N)])
    assert frame.groupby("group_id")["label"].nunique().max() == 2
    score(cohort.x, frame)


@pytest.mark.filterwarnings("ignore:.*units are undefined")
def test_real_structure__cases_that_span_classes(
    shared_data: Any, rng: np.random.Generator
) -> None:
    """Manifest of a published cohort with made-up embeddings: most cases hold several classes."""
    folder = shared_data / "pathorob_manifests"
    table = next(p for p in sorted(folder.iterdir()) if "tolkach" in p.name.lower())
    raw = pd.read_csv(table, dtype=str, keep_default_na=False)
    part = raw.groupby(["biological_class", "medical_center"]).head(60).reset_index(drop=True)
    frame = pd.DataFrame(
        {
            "sample_id": np.arange(len(part)),
            "label": part["biological_class"],
            "group_id": part["slide_id"],
            "medical_center": part["medical_center"],
        }
    )
    assert frame.groupby("group_id")["label"].nunique().max() > 1
    x = rng.normal(size=(len(frame), 6))
    tree = cd.score(x, frame, confounder="medical_center", k_candidates=[11], m=3)
    assert 0.0 < float(tree["RI"].value) < 1.0
    assert float(tree["CRoMa"].support) == 1.0


# ---- designs ---------------------------------------------------------------------------------


def subsets(rng: np.random.Generator) -> tuple[np.ndarray, pd.DataFrame]:
    label, center = np.arange(N) % 2, np.arange(N) // 2 % 2
    frame = manifest(label, center, subset=np.repeat(["c", "a", "b"], N // 3))
    return features(rng, label, center, 4, biology=0.2, shortcut=0.2), frame


@pytest.mark.parametrize("name", [" ALL ", "all", "Paired_2x2", "paired_2x2\n"])
def test_design__is_stripped_and_lower_cased(name: str, rng: np.random.Generator) -> None:
    x, frame = subsets(rng)
    found = score(x, frame, evaluation_design=name, k_candidates=[8])
    assert found.attrs["evaluation_design"] == name.strip().lower()


@pytest.mark.parametrize("name", ["dataset_wide", "paired", "", None])
def test_an_unknown_design__names_those_there_are(name: Any, rng: np.random.Generator) -> None:
    x, frame = subsets(rng)
    with pytest.raises(cd.SchemaError, match="'all' or 'paired_2x2'"):
        score(x, frame, evaluation_design=name)


def test_subsets__are_visited_in_sorted_order(rng: np.random.Generator) -> None:
    x, frame = subsets(rng)
    found = score(x, frame, evaluation_design="paired_2x2", k_candidates=[8])
    assert found.subset.values.tolist() == ["a", "b", "c"]
    for at, name in enumerate("abc"):
        mine = (frame["subset"] == name).to_numpy()
        alone = score(x[mine], frame[mine], k_candidates=[8])
        assert float(found.pair_values[at]) == float(alone.value)
        np.testing.assert_array_equal(found.sample_values.values[mine], alone.sample_values)


def spoil(frame: pd.DataFrame, how: str) -> pd.DataFrame:
    frame = frame.copy()
    mine = frame["subset"] == "b"
    if how == "a cell is empty":
        frame.loc[mine & (frame.label == "0") & (frame.center == "1"), "center"] = "0"
    elif how == "three labels":
        frame.loc[mine.idxmax(), "label"] = "2"
    elif how == "one confounder":
        frame.loc[mine, "center"] = "1"
    elif how == "three confounders":
        frame.loc[mine.idxmax(), "center"] = "7"
    return frame


@pytest.mark.parametrize(
    "how", ["a cell is empty", "three labels", "one confounder", "three confounders"]
)
def test_an_incomplete_subset__raises_or_is_skipped_with_a_warning(
    how: str, rng: np.random.Generator
) -> None:
    x, frame = subsets(rng)
    spoiled = spoil(frame, how)
    paired = {"evaluation_design": "paired_2x2", "k_candidates": [8]}
    with pytest.raises(cd.SchemaError, match="1 of 3 subsets.*'b'.*skip_incomplete=True") as caught:
        score(x, spoiled, **paired)
    if how == "a cell is empty":
        assert "0 x 1" in str(caught.value)
    with pytest.warns(cd.SupportWarning, match="1 of 3 subsets.*'b'.*skipped"):
        found = score(x, spoiled, skip_incomplete=True, **paired)
    mine = (frame["subset"] == "b").to_numpy()
    rest = score(x[~mine], frame[~mine], **paired)
    assert found.subset.values.tolist() == ["a", "c"]
    assert float(found.value) == float(rest.value)
    np.testing.assert_array_equal(found.sample_values.values[~mine], rest.sample_values)
    assert np.isnan(found.sample_values.values[mine]).all()
    assert set(found.undefined_type.values[mine]) == {-1}
    assert float(found.undefined_frac) == 0.0, "what is skipped is no unit"
    assert found.attrs["n_rows_used"] == int((~mine).sum())
    with pytest.warns(cd.SupportWarning, match="skipped"):
        margin = cd.CRoMa.compute(
            x, spoiled, confounder_column="center", evaluation_design="paired_2x2", m=1,
            skip_incomplete=True,
        )  # fmt: skip
    assert set(margin.undefined_type.values[mine]) == {-1}


def test_no_complete_subset__raises_either_way(rng: np.random.Generator) -> None:
    x, frame = subsets(rng)
    frame.loc[frame["label"] == "0", "center"] = "0"
    for skip in (False, True):
        with pytest.raises(cd.SchemaError, match="3 of 3 subsets"):
            score(x, frame, evaluation_design="paired_2x2", skip_incomplete=skip, k_candidates=[8])


# ---- support ---------------------------------------------------------------------------------


def test_undefined_samples__warn_with_the_figure_at_the_caller_s_line(
    rng: np.random.Generator,
) -> None:
    cell = np.arange(40) % 4
    x = 10.0 * np.eye(4)[cell] + 0.1 * rng.normal(size=(40, 4))
    frame = manifest(cell // 2, cell % 2)
    with pytest.warns(cd.SupportWarning, match=r"40 of 40 units.*support 0\.0000.*0\.5") as caught:
        found = score(x, frame, k_candidates=[3])
    assert isinstance(caught[0].message, RuntimeWarning)
    assert caught[0].filename == __file__
    assert float(found.value) == 0.5
    assert float(found.undefined_frac) == 1.0
    assert float(found.ss_dominated_undefined_frac) == 1.0
    assert "OO" not in str(caught[0].message)


def test_mostly_oo__is_said(rng: np.random.Generator) -> None:
    """Pairs of rows that share neither label nor confounder lie together."""
    pair = np.arange(40) // 2
    side = np.arange(40) % 2
    frame = manifest((pair + side) % 4, (pair // 4 + 2 * side) % 4)
    x = 10.0 * np.eye(20)[pair] + 0.1 * rng.normal(size=(40, 20))
    with pytest.warns(cd.SupportWarning, match="40 of 40.*40 of them.*OO"):
        score(x, frame, k_candidates=[1])


def test_full_support__does_not_warn(cohort: Cohort) -> None:
    assert float(score(cohort.x, cohort.frame).support) == 1.0


def test_preflight__tells_what_croma_cannot_score_before_any_distance(
    rng: np.random.Generator, monkeypatch: pytest.MonkeyPatch
) -> None:
    cells = [("a", "x")] * 9 + [("a", "y")] * 9 + [("b", "x")] * 9 + [("b", "y")] * 9
    cells += [("c", "y")] * 6
    frame = manifest(*zip(*cells, strict=True))
    x = rng.normal(size=(42, 3))
    common = {"confounder_column": "center"}
    with pytest.warns(cd.SupportWarning, match=r"6 of 42 units.*rows 36, 37.*c x y: 6"):
        found = cd.CRoMa.compute(x, frame, m=2, **common)
    assert float(found.undefined_frac) == pytest.approx(6 / 42)
    monkeypatch.setattr("croma_dask.robustness.evaluate.searched", None)  # never reached
    with pytest.raises(cd.SupportError, match=r"6 of 42 units.*c x y: 6"):
        cd.CRoMa.compute(x, frame, m=2, on_undefined="raise", **common)
    with pytest.raises(RuntimeError, match="42 of 42"):
        cd.CRoMa.compute(x, frame, m=10, on_undefined="raise", **common)
    with pytest.raises(cd.SchemaError, match="on_undefined"):
        cd.CRoMa.compute(x, frame, m=2, on_undefined="drop", **common)
    assert "6 of 42" in str(cd.plan(x, frame, confounder="center", k_candidates=[3], m=2))


def test_hash_seed__changes_nothing(tmp_path: Any) -> None:
    """No set decides an order: the same bits under two seeds of python's hashes."""
    script = tmp_path / "run.py"
    script.write_text(
        "import sys, warnings, numpy as np, hashlib\n"
        "warnings.simplefilter('ignore')\n"
        "import croma_dask as cd\n"
        "rng = np.random.default_rng(0)\n"
        "n = 90\n"
        "frame = {'sample_id': [f's{i}' for i in range(n)], 'label': rng.integers(0, 4, n),\n"
        "         'center': rng.integers(0, 3, n), 'group_id': rng.integers(0, 40, n),\n"
        "         'subset': ['a'] * n}\n"
        "tree = cd.score(rng.normal(size=(n, 4)), frame, confounder='center',\n"
        "                k_candidates=[2, 5, 9], m=[1, 2])\n"
        "digest = hashlib.sha256()\n"
        "for name in ('RI', 'MaRI', 'CRoMa'):\n"
        "    for key, value in tree[name].to_dataset().variables.items():\n"
        "        data = np.asarray(value.values)\n"
        "        raw = repr(data.tolist()).encode() if data.dtype == object else data.tobytes()\n"
        "        digest.update(key.encode() + raw)\n"
        "print(digest.hexdigest())\n"
    )
    root = os.path.dirname(os.path.dirname(cd.__file__))
    found = set()
    for seed in ("0", "1"):
        env = {**os.environ, "PYTHONHASHSEED": seed, "PYTHONPATH": root}
        done = subprocess.run(
            [sys.executable, str(script)], env=env, capture_output=True, text=True, check=True
        )
        found.add(done.stdout)
    assert len(found) == 1


# ---- the same contract, read from a store ----------------------------------------------------


def stored(cohort: Cohort, folder: Any, **columns: Any) -> xr.Dataset:
    """Write a cohort whose columns are what they are: the contract is checked at scoring."""
    path = str(folder / "cohort.zarr")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        cd.write_cohort(path, cohort.x, cohort.frame.assign(**columns))
    return cd.open_cohort(path)


@pytest.mark.parametrize("column", ["label", "group_id", "center"])
def test_a_stored_cohort__names_missing_cells(column: str, cohort: Cohort, tmp_path: Any) -> None:
    values = cohort.frame[column].to_list()
    for row in (3, 8, 9, 12, 30, 31, 40):
        values[row] = None
    calls = every_metric(stored(cohort, tmp_path, **{column: values}), None)
    assert_all_raise(calls, rf"'{column}'.*rows 3, 8, 9, 12, 30 and 2 more")


def test_a_stored_cohort__needs_two_labels_levels_and_groups(cohort: Cohort, tmp_path: Any) -> None:
    for column, match, error in (
        ("label", "label 'one'", ValueError),
        ("center", "confounder level 'one'", ValueError),
        ("group_id", "group 'one'", RuntimeError),
    ):
        folder = tmp_path / column
        folder.mkdir()
        calls = every_metric(stored(cohort, folder, **{column: "one"}), None)
        assert_all_raise(calls, match, error)


def test_a_stored_cohort__says_which_columns_it_has(cohort: Cohort, tmp_path: Any) -> None:
    opened = stored(cohort, tmp_path)
    with pytest.raises(cd.SchemaError, match="no column 'site'.*'center'"):
        cd.RI.compute(opened, confounder_column="site", k_candidates=[3])


@pytest.mark.parametrize("how", ["categorical", "integer", "string[pyarrow]", "padded"])
def test_a_stored_cohort__scores_as_its_frame(how: str, cohort: Cohort, tmp_path: Any) -> None:
    frame = cohort.frame.assign(group_id=cohort.frame["group_id"].str.removeprefix("g"))
    path = str(tmp_path / "cohort.zarr")
    cd.write_cohort(path, cohort.x, converted(frame, how))
    assert_same_bits(score(cd.open_cohort(path), None), score(cohort.x, frame))


def test_a_shuffled_manifest__is_matched_by_id_where_both_sides_have_ids(
    cohort: Cohort, rng: np.random.Generator
) -> None:
    """Bare arrays are matched by position, which is the one contract they can have."""
    order = rng.permutation(N)
    shuffled = cohort.frame.iloc[order]
    expanded = cd.expand_features_to_manifest(
        features=cohort.x, manifest=shuffled, embedding_manifest=cohort.frame
    )
    found, expected = score(expanded, shuffled), score(cohort.x, cohort.frame)
    np.testing.assert_allclose(
        found.sample_values, expected.sample_values.values[order], rtol=0, atol=1e-12
    )
