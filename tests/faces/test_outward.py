"""Names that would like to be more than names: on terminals, in spreadsheets, in file names."""

from __future__ import annotations

import csv
import json
import logging
import re
import unicodedata
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import xarray as xr
from click.testing import CliRunner, Result
from hypothesis import given
from hypothesis import strategies as st

import croma_dask as cd
from croma_dask.cli import main
from croma_dask.outward import guarded, unguarded, visible

ESCAPES = [
    "clears\x1b[2J\x1b[H",
    "titles\x1b]0;owned\x07",
    "c1\x9b31m",
    "turns\u202egnp.exe",
    "two\nlines",
    "back\rover",
    "ends\u2028here",
]
FORMULAS = [
    "=1+1",
    "+cmd|' /C calc'!A0",
    "-2+3",
    "@SUM(A1)",
    "\t=1",
    "'=kept",
    "plain",
    "-1",
    "CD4-",
]

HARMLESS = {"\n", "\t"}


def is_harmless(text: str) -> bool:
    """No control character beyond those that lay text out, and nothing that turns its direction."""
    turning = {"LRE", "RLE", "LRO", "RLO", "PDF", "LRI", "RLI", "FSI", "PDI"}
    return not any(
        (unicodedata.category(sign) in {"Cc", "Cs", "Zl", "Zp"} and sign not in HARMLESS)
        or unicodedata.bidirectional(sign) in turning
        for sign in text
    )


@given(st.text())
def test_visible__leaves_nothing_to_act_on(text: str) -> None:
    shown = visible(text)
    assert is_harmless(shown)
    assert "\n" not in shown
    assert "\t" not in shown


@given(st.text(st.characters(codec="utf-8")))
def test_visible__keeps_json_what_it_is(text: str) -> None:
    shown = visible(json.dumps({text: text}, ensure_ascii=False, indent=1), keep="\n\t")
    assert json.loads(shown) == {text: text}


def test_visible__leaves_plain_names_as_they_are() -> None:
    for name in ["tumour", "Überklasse", "肿瘤", "שלום", "a b/c:d", "👩\u200d⚕️", "نم\u200cایش"]:
        assert visible(name) == name


@given(st.one_of(st.text(), st.text("'=+-@\t\r1e.", max_size=6)))
def test_guarded__comes_back(text: str) -> None:
    assert unguarded(guarded(text)) == text


@given(st.text("'=+-@\t\r1e. a", max_size=6))
def test_guarded__is_no_formula(text: str) -> None:
    cell = guarded(text)
    if cell[:1] in set("=+-@\t\r"):
        float(cell)


def cohort(labels: list[str], *, n: int = 120) -> tuple[Any, pd.DataFrame]:
    rng = np.random.default_rng(3)
    at = np.arange(n)
    frame = pd.DataFrame(
        {
            "sample_id": [f"{labels[i % len(labels)]}{i}" for i in at],
            "label": np.array(labels, object)[at % 2],
            "center": np.array(labels, object)[at // 2 % 2 + 2],
            "group_id": [f"{labels[i % len(labels)]}-{i // 4}" for i in at],
        }
    )
    return rng.normal(size=(n, 5)).astype(np.float32), frame


@pytest.fixture(scope="module")
def hostile(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """A store whose names would act on a terminal, and its result."""
    folder = tmp_path_factory.mktemp("hostile")
    x, frame = cohort(ESCAPES)
    store = folder / "cohort.zarr"
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        cd.write_cohort(str(store), x, frame)
        result = cd.score(
            cd.open_cohort(str(store)), confounder="center", k_candidates=(5, 11), m=3
        )
    cd.results.save(result, folder / "result.zarr")
    return store, folder / "result.zarr"


def run(*arguments: object) -> Result:
    # A terminal: click takes ANSI sequences out of what goes elsewhere.
    return CliRunner().invoke(main, [str(one) for one in arguments], color=True)


@pytest.mark.filterwarnings("always")
def test_cli__prints_no_escape_of_the_data(hostile: tuple[Path, Path], tmp_path: Path) -> None:
    store, result = hostile
    sample = f"{ESCAPES[0]}0"
    for arguments in (
        ["info", store],
        ["info", store, "--json"],
        ["score", store, "--confounder", "center", "--k", "5", "--m", "3"],
        ["breakdown", result, "--by", "label,confounder", "--metric", "CRoMa"],
        ["breakdown", result, "--worst", "5"],
        ["breakdown", result, "--by", "group_id", "--metric", "RI"],
        ["explain", store, "--confounder", "center", "--sample", sample, "--k", "5", "--m", "3"],
        ["probe", store, "--confounder", "center", "--schedule", "linear:x:2"],
        ["score", store, "--confounder", "cen\x1b[2Jter"],
    ):
        done = run(*arguments)
        assert done.exception is None or isinstance(done.exception, SystemExit), arguments
        assert done.output, arguments
        assert is_harmless(done.output), (arguments, done.output)


def test_cli__shows_the_names_escaped(hostile: tuple[Path, Path]) -> None:
    shown = run("breakdown", hostile[1], "--by", "label,confounder", "--metric", "CRoMa").output
    rows = [line for line in shown.splitlines() if r"\u001b" in line]
    # Two labels at two confounders, each on a line of its own.
    assert len(rows) == 4
    assert all(
        r"clears\u001b[2J\u001b[H" in row or r"titles\u001b]0;owned\u0007" in row for row in rows
    )


def test_info__json_is_json_whatever_the_names(hostile: tuple[Path, Path]) -> None:
    facts = json.loads(run("info", hostile[0], "--json").stdout)
    assert set(facts["columns"]["label"]["first_levels"]) == set(ESCAPES[:2])


@pytest.mark.filterwarnings("always")
def test_cli__log_and_warnings_are_shown_escaped(
    hostile: tuple[Path, Path], caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    def loud(*_: object, **__: object) -> None:
        logging.getLogger("croma_dask").warning("taking %s", ESCAPES[0])
        warnings.warn(ESCAPES[1], cd.InputWarning, stacklevel=1)
        raise cd.SchemaError(ESCAPES[3])

    monkeypatch.setattr("croma_dask.cohort.summary.describe_text", loud)
    done = run("info", hostile[0])
    assert done.exit_code == 2
    assert is_harmless(done.output)
    assert r"warning: titles\u001b]0;owned\u0007" in done.output
    assert r"error: turns\u202egnp.exe" in done.output
    assert [record.getMessage() for record in caplog.records] == [r"taking clears\u001b[2J\u001b[H"]
    # The filter goes with the command.
    assert not logging.getLogger("croma_dask").filters


def test_text__of_python_is_escaped_as_well(hostile: tuple[Path, Path]) -> None:
    with cd.open_result(hostile[1]) as result:
        table = cd.breakdown(result, by=["label", "confounder"], metric="CRoMa")
        for text in (cd.results.summary(result), cd.results.summary(table), str(result.croma)):
            assert is_harmless(text)
    view = cd.open_cohort(str(hostile[0])).croma
    assert is_harmless(str(view))
    assert is_harmless(view._repr_html_())


def test_csv__cells_are_no_formulas(tmp_path: Path) -> None:
    x, frame = cohort(FORMULAS)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        result = cd.score(x, frame, confounder="center", k_candidates=(5, 11), m=3)
    table = cd.breakdown(result, by=["label", "confounder"], metric="CRoMa")
    cd.results.save(table, tmp_path / "table.csv")
    with (tmp_path / "table.csv").open(newline="") as file:
        rows = list(csv.reader(file))
    assert [row[:2] for row in rows[1:]] == [
        [guarded(str(a)), guarded(str(b))]
        for a in table["label"].values
        for b in table["confounder"].values
    ]
    assert {cell for row in rows for cell in row} >= {"'=1+1", "'+cmd|' /C calc'!A0", "'-2+3"}
    # Numbers stay numbers, negative ones too.
    frame = cd.results.to_frame(table)
    for name in ("median_value", "ltm_alpha"):
        column = [row[rows[0].index(name)] for row in rows[1:]]
        assert [float(cell) for cell in column] == frame[name].tolist()
        assert any(cell.startswith("-") for cell in column)
    # What was saved is read by other programs; in Python the names are what they were.
    assert set(frame["label"]) == set(FORMULAS[:2])


def test_rank__takes_the_apostrophes_away_again(tmp_path: Path) -> None:
    names = ["=1+1", "-a", "'@b", "@c"]
    value = np.arange(16.0).reshape(2, 4, 2) / 16
    status = np.full(value.shape, "ok", object)
    dims = ("dataset", "method", "metric")
    benchmark = xr.Dataset(
        {"value": (dims, value), "status": (dims, status), "note": (dims, status),
         **{n: (("dataset", "method"), np.ones((2, 4), int)) for n in
            ("n_cells", "n_labels", "n_batches", "n_dims")}},
        {
            "dataset": np.array(["+x", "y"], object), "method": np.array(names, object),
            "metric": np.array(["NMI", "ARI"], object),
        },
        {"metric": "embedding_benchmark"},
    )  # fmt: skip
    cd.results.save(benchmark, tmp_path / "long.csv")
    assert "'=1+1" in (tmp_path / "long.csv").read_text()
    from croma_dask.embedding.rank_tables import read_scores

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        found = read_scores(str(tmp_path / "long.csv"), ["NMI", "ARI"])
    assert found.methods == sorted(names)
    assert found.datasets == ["+x", "y"]


def test_tables__predictions_are_no_formulas(tmp_path: Path) -> None:
    from croma_dask.embedding.outcome import Counts, Scores
    from croma_dask.embedding.table_files import write_predictions

    scores = Scores("=s", "m", {}, bio=Counts(2, 1, 1, None))
    scores.predictions = np.array([0, 1])
    path = tmp_path / "labels.tsv"
    write_predictions(path, scores, clustering="leiden", ids=["=a", "-1"], labels=["\tb", "T-"])
    lines = path.read_text().splitlines()
    assert lines[1:] == ["'=s\tm\t'=a\t\"'\tb\"\t0", "'=s\tm\t-1\tT-\t1"]


@pytest.mark.parametrize("name", ["..", ".", "a/../../b", "/etc/passwd", "a\0b", "con\n", "~"])
def test_models__no_name_leads_out_of_a_folder(name: str, tmp_path: Path) -> None:
    from croma_dask.panel.names import file_name

    place = (tmp_path / file_name(name)).resolve()
    assert place.parent == tmp_path.resolve()
    assert re.fullmatch(r"[\w%-]+", place.name, re.ASCII)
