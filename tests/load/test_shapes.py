"""Many labels, groups, subsets, columns, features; few rows; long names: small versions of each."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner

import croma_dask as cd
from benchmarks.load_cases import CASES, Shape, write
from croma_dask.cli import main
from croma_dask.cohort.design import Scope
from croma_dask.cohort.store import StoredCohort
from croma_dask.index.neighbors import Block
from croma_dask.kernels.constants import U32
from croma_dask.kernels.products import product_terms, products
from croma_dask.robustness import operating_k
from croma_dask.robustness.operating_k import Votes

pytestmark = pytest.mark.filterwarnings("ignore::croma_dask.SupportWarning")

LONG = "L" * 1_000_000


def scope_of(label: np.ndarray) -> Scope:
    nothing = np.zeros(label.size, np.int32)
    return Scope("dataset", None, label.astype(np.int32), nothing, nothing, int(label.max()) + 1)


def counted(label: np.ndarray, index: np.ndarray, ks: list[int]) -> Votes:
    votes = Votes(scope_of(label), ks)
    votes.add(Block(0, label.size, index, np.zeros(index.shape)))
    return votes


def plain(label: np.ndarray, index: np.ndarray, k: int) -> tuple[np.ndarray, np.ndarray]:
    """Whether the majority of the k nearest is right (ties to the label that appears first), and
    by how many votes the own label and the best other one differ."""
    right, lead = np.zeros(label.size, bool), np.zeros(label.size, int)
    for row, near in enumerate(index[:, :k]):
        count: dict[int, int] = {}
        for other in near[near >= 0]:
            count[label[other]] = count.get(label[other], 0) + 1
        best = max(count.values(), default=0)
        first = [name for name in label.tolist() if count.get(name) == best]
        right[row] = bool(count) and first[0] == label[row]
        others = [n for name, n in count.items() if name != label[row]]
        lead[row] = abs(count.get(label[row], 0) - max(others, default=0))
    return right, lead


@pytest.mark.parametrize("wide", [0, 4, 10**6])
@pytest.mark.parametrize(("n_labels", "k"), [(3, 5), (40, 7), (60, 1)])
def test_votes__of_few_and_of_many_labels_are_those_of_a_plain_loop(
    monkeypatch: pytest.MonkeyPatch, wide: int, n_labels: int, k: int
) -> None:
    monkeypatch.setattr(operating_k, "_WIDE", wide)
    rng = np.random.default_rng(n_labels)
    n = 60
    # Codes with gaps: a subset has few of the labels of its cohort.
    label = 3 * rng.permutation(np.arange(n) % n_labels)
    index = rng.integers(0, n, (n, k)).astype(np.int32)
    index[np.arange(k) >= rng.integers(0, k + 1, (n, 1))] = -1
    ks = sorted({1, k, k + 3})
    votes = counted(label, index, ks)
    leads = votes.leads(index, votes.label)
    for number, q in enumerate(ks):
        right, lead = plain(label, index, q)
        hits = [int(right[label == name].sum()) for name in np.unique(label)]
        assert votes.hits[q].tolist() == hits
        assert leads[number].tolist() == lead.tolist()


def test_votes__take_no_longer_for_more_labels() -> None:
    """With a table of rows x labels this took a minute."""
    n = 30_000
    index = np.random.default_rng(0).integers(0, n, (n, 11)).astype(np.int32)
    started = time.process_time()
    counted(np.arange(n) // 2, index, [5, 11])
    assert time.process_time() - started < 3.0


@pytest.mark.parametrize("d", [3, 1024, 1025, 5_000])
def test_products__are_as_near_as_their_number_of_terms_says(d: int) -> None:
    rng = np.random.default_rng(d)
    a, b = (np.abs(rng.normal(size=(n, d))).astype(np.float32) for n in (300, 7))
    found = np.empty((300, 7), np.float32)
    products(a, b, found)
    exact = a.astype(np.float64) @ b.astype(np.float64).T
    terms = product_terms(d)
    assert terms <= min(d, 1024 + d // 1024)
    bound = terms * U32 / (1 - terms * U32)
    assert (np.abs(found - exact) <= bound * exact).all()


@pytest.mark.slow
def test_wide_rows__of_the_compiled_search(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    for name in ("SMALL_PAIRS", "SMALL_PAIRS_COMPILED"):
        monkeypatch.setattr(f"croma_dask.layout.{name}", 0)
    shape = Shape(1_500, 16_384)
    cd.score(shape.embedding(), shape.manifest(), confounder="center")
    assert "second, exact look" not in caplog.text


@pytest.fixture(scope="module")
def cohort(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Rows with long ids, a long label, and more columns than anybody lists."""
    shape = Shape(120, labels=6, id_bytes=3_000, label_bytes=len(LONG), columns=105)
    place = tmp_path_factory.mktemp("load") / "cohort.zarr"
    cd.write_cohort(place, shape.embedding(), shape.manifest())
    return place


def cli(*words: Any) -> tuple[int, str]:
    done = CliRunner().invoke(main, [str(word) for word in words])
    assert done.exception is None or isinstance(done.exception, SystemExit), done.exception
    return done.exit_code, done.output


@pytest.mark.slow
@pytest.mark.ci
def test_long_names__fill_no_screen(cohort: Path, tmp_path: Path) -> None:
    result, page = tmp_path / "r.zarr", tmp_path / "r.html"
    scoring = ["score", cohort, "--confounder", "center", "--k", "5", "--out", result]
    for words in (
        ["info", cohort], ["plan", cohort, "--confounder", "center"], scoring,
        ["breakdown", result], ["breakdown", result, "--worst", "3"],
        ["bootstrap", result, "--draws", "20"], ["report", result, "--out", page, "--draws", "0"],
    ):  # fmt: skip
        code, said = cli(*words)
        assert code == 0, said[:2_000]
        assert len(said) < 40_000, words
        assert max(map(len, said.splitlines())) < 2_000, words
    assert len(repr(cd.open_cohort(cohort))) < 20_000
    names = cd.breakdown(cd.open_result(result))["label"].values.tolist()
    assert LONG in names


def test_long_names__in_errors_are_cut() -> None:
    shape = Shape(8)
    frame = shape.manifest().assign(label=LONG)
    with pytest.raises(cd.SchemaError, match=r"1,000,000 characters") as refused:
        cd.score(shape.embedding(), frame, confounder="center")
    assert len(str(refused.value)) < 500


@pytest.mark.slow
@pytest.mark.ci
def test_long_ids__stay_in_the_store_until_asked_for(
    cohort: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from croma_dask.results import save

    whole = cd.score(str(cohort), confounder="center", k_candidates=[5])
    monkeypatch.setattr("croma_dask.memory.TEXT_LENGTH", 100_000)
    lazy = cd.score(str(cohort), confounder="center", k_candidates=[5])
    assert hasattr(lazy["RI"]["sample_id"].data, "dask")
    assert lazy["RI"]["sample_id"].values.tolist() == whole["RI"]["sample_id"].values.tolist()
    for ending in ("zarr", "nc"):
        save(lazy, tmp_path / f"lazy.{ending}")
        again = cd.open_result(tmp_path / f"lazy.{ending}")
        assert again["CRoMa"].equals(whole["CRoMa"])
        again.close()


def test_long_text__is_cut_into_short_chunks(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("croma_dask.cohort.layout.TEXT_CHUNK_LENGTH", 30_000)
    shape = Shape(50, id_bytes=3_000)
    place = tmp_path / "short.zarr"
    cd.write_cohort(place, shape.embedding(), shape.manifest())
    store = StoredCohort(place)
    assert store._open()[store.array_of("sample_id")].chunks == (10,)  # type: ignore[union-attr]
    assert store.text("sample_id").tolist() == shape.manifest()["sample_id"].tolist()


@pytest.mark.parametrize("rows", [1, 2, 4])
def test_few_rows__work_or_are_refused(rows: int, tmp_path: Path) -> None:
    write(Shape(rows), tmp_path)
    files = [tmp_path / "features.npy", tmp_path / "manifest.csv", tmp_path / "c.zarr"]
    assert cli("ingest", *files)[0] == 0
    for words in (
        ["score", files[2], "--confounder", "center"], ["plan", files[2], "--confounder", "center"],
        ["probe", files[2], "--confounder", "center", "--schedule", "linear:2:2"],
    ):  # fmt: skip
        code, said = cli(*words)
        if words[0] == "plan" and rows > 1:
            assert code == 0, said
            assert "cannot be scored" in said
        else:
            assert (code in (2, 4) and "error: " in said) or (code == 0 and rows == 4), said


def test_subsets__of_many_labels_each_count_their_own() -> None:
    """Counts of the labels of the whole cohort, in every subset, would be subsets x labels."""
    n_subsets, rows = 40, 8
    at = np.arange(n_subsets * rows)
    frame = Shape(at.size).manifest()
    frame["label"] = [f"label {2 * (i // rows) + i % 2}" for i in at]
    frame["center"] = [f"center {i // 2 % 2}" for i in at]
    frame["subset"] = [f"subset {i // rows}" for i in at]
    x = np.random.default_rng(0).normal(size=(at.size, 5))
    found = cd.score(x, frame, confounder="center", design="paired_2x2", k_candidates=[3])
    assert found["RI"]["pair_values"].size == n_subsets
    assert counted(np.array([7, 900, 7, 900]), np.zeros((4, 1), np.int32), [1]).used.size == 2


@pytest.mark.slow
@pytest.mark.parametrize("case", [name for name in CASES if name not in ("models", "labels")])
def test_case__works_or_is_refused_within_its_plan(case: str, tmp_path: Path) -> None:
    """In processes of their own, as `python -m benchmarks load` does."""
    from benchmarks import child

    child.run("load_steps:make", case=case, folder=str(tmp_path))
    for step in CASES[case].steps:
        found = child.run("load_steps:run", case=case, step=step, face="cli", folder=str(tmp_path))
        assert found["outcome"] == "works" or found["outcome"].startswith("refused: "), found
        assert found["planned"] is None or found["whole"] <= found["planned"], (step, found)
        assert found["longest_line"] < 5_000, (step, found)
