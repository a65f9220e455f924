"""Benchmarks of files and stores: what is read from them, what is refused, what comes out."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import scipy.sparse

import croma_dask as cd
from croma_dask.embedding import run as run_module
from croma_dask.embedding.failures import failed_metrics, told_failures
from croma_dask.embedding.input_checks import check_inputs
from croma_dask.embedding.input_data import open_input, opened_h5ad
from croma_dask.embedding.inputs import EmbeddingInput, expand_paths
from croma_dask.embedding.label import Evaluated
from croma_dask.embedding.outcome import Counts, Outcome, Scores
from croma_dask.embedding.request import Request
from croma_dask.embedding.run import run_inputs
from croma_dask.errors import (
    CromaDaskError,
    InputWarning,
    MemoryLimitError,
    SchemaError,
    StoreError,
)
from croma_dask.options import merged
from tests.helpers.marks import first
from tests.helpers.samples import cells, write_h5ad


def request_of(metrics: Any = ("GC",), batch: str | None = None, **more: Any) -> Request:
    label = more.pop("label", "cell_type")
    return Request.of(metrics, label, batch, "sample_id", 0, **more)


def run(
    tmp_path: Path, *paths: Path, request: Request | None = None, key: str | None = None,
    **more: Any,
) -> list[Evaluated]:  # fmt: skip
    options = merged(scratch=str(tmp_path / "scratch"))
    inputs = expand_paths(list(paths))
    found = run_inputs(inputs, request or request_of(), tmp_path / "out", options, key=key, **more)
    return list(found)


def check(*paths: Path, request: Request | None = None, key: str | None = None) -> None:
    check_inputs(expand_paths(list(paths)), request or request_of(), key=key)


# ---- what is read ----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("make", "dtype"),
    [
        (lambda x: x, np.float32),
        (lambda x: x.astype(np.float64), np.float64),
        (lambda x: x.astype(np.float16), np.float16),
        (lambda x: np.rint(x).astype(np.int8), np.float32),
        (lambda x: np.rint(x).astype(np.int64), np.float64),
        (lambda x: np.asfortranarray(x), np.float32),
        (lambda x: scipy.sparse.csr_matrix(np.where(x > 0, x, 0)), np.float32),
        (lambda x: scipy.sparse.csc_matrix(np.where(x > 0, x, 0)), np.float32),
    ],
    ids=["float32", "float64", "float16", "int8", "int64", "fortran", "csr", "csc"],
)
def test_open_input__reads_rows_as_they_are(
    tmp_path: Path, make: Callable[[np.ndarray], Any], dtype: Any
) -> None:
    x, obs = cells(1)
    rows = make(x)
    (one,) = expand_paths(write_h5ad(tmp_path / "M" / "a.h5ad", rows, obs))
    options = merged(scratch=str(tmp_path / "scratch"))
    with open_input(one, request_of(), options, key=None) as data:
        found = data.embedding.data.read_tiles(0, len(obs))
        assert data.sample_id(2, 5).tolist() == ["cell-1-2", "cell-1-3", "cell-1-4"]
        assert data.manifest["cell_type"].tolist() == list(obs["cell_type"])
    dense = rows.toarray() if scipy.sparse.issparse(rows) else rows
    assert found.dtype == dtype
    np.testing.assert_array_equal(found, dense.astype(dtype))
    assert list((tmp_path / "scratch").iterdir()) == []


def test_open_input__looks_at_no_other_column_of_obs(tmp_path: Path) -> None:
    """Names that mean something to a cohort store, ids that repeat, columns that are no text."""
    x, obs = cells(2)
    obs["sample_id"] = ["donor-1", "donor-2", "donor-3"] * 50
    obs["slide_id"], obs["subset"], obs["embedding"], obs["label"] = "s", "u", 0.5, "x"
    obs["group_id"] = np.nan
    path = write_h5ad(tmp_path / "M" / "a.h5ad", x, obs)
    request = request_of(["BRAS"], "sample_id")
    check(path, request=request)
    (found,) = run(tmp_path, path, request=request)
    expected = cd.embedding_benchmark(
        x, pd.DataFrame({"cell_type": obs["cell_type"], "donor": obs["sample_id"]}),
        batch="donor", metrics=["BRAS"],
    )  # fmt: skip
    assert found.scores.outcomes["BRAS"].value == float(expected.value.item())
    assert found.sample_id(0, 2).tolist() == ["cell-2-0", "cell-2-1"]
    assert found.batch is not None
    assert found.batch(0, 2).tolist() == ["donor-1", "donor-2"]


@pytest.mark.parametrize(
    ("has_x", "obsm", "key", "width"),
    [
        (True, (), None, 6),
        (True, ("X_pca", "X_scvi"), None, 6),
        (True, ("X_pca", "X_scvi"), "X_pca", 2),
        (True, ("X_pca",), "obsm/X_pca", 2),
        (True, ("X_pca",), "X", 6),
        (False, ("X_pca",), None, 2),
    ],
)
def test_opened_h5ad__takes_x_or_what_is_asked_for(
    tmp_path: Path, has_x: bool, obsm: tuple[str, ...], key: str | None, width: int
) -> None:
    x, obs = cells(3)
    arrays = {name: x[:, :2] if name == "X_pca" else x[:, :3] for name in obsm}
    path = write_h5ad(tmp_path / "a.h5ad", x if has_x else None, obs, obsm=arrays)
    with opened_h5ad(EmbeddingInput(str(path), "M", "a"), key) as (reader, _):
        assert reader.shape == (150, width)


def test_opened_h5ad__does_not_guess_between_several(tmp_path: Path) -> None:
    x, obs = cells(3)
    arrays = {"X_pca": x[:, :2], "X_scvi": x[:, :3]}
    path = write_h5ad(tmp_path / "a.h5ad", None, obs, obsm=arrays)
    one = EmbeddingInput(str(path), "M", "a")
    with (
        pytest.raises(SchemaError, match=r"a\.h5ad has several candidates: .*\(--key\)") as told,
        opened_h5ad(one, None),
    ):
        pass
    assert str(told.value).startswith(str(path)), "there is one of that name in every folder"
    with (
        pytest.raises(SchemaError, match=r"has no obsm entry or X 'X_umap'; it has .*X_pca"),
        opened_h5ad(one, "X_umap"),
    ):
        pass


# ---- what is refused -------------------------------------------------------------------------


def test_check_inputs__names_what_lacks_a_column(tmp_path: Path) -> None:
    x, obs = cells(4)
    places = [tmp_path / "M" / f"{name}.h5ad" for name in ("a", "b", "c", "d")]
    for path, frame in zip(
        places, (obs, obs.drop(columns="cell_type"), obs[["site"]], obs), strict=True
    ):
        write_h5ad(path, x, frame)
    with pytest.raises(SchemaError) as told:
        check(tmp_path / "M", request=request_of(None, "batch_id"))
    assert str(told.value) == (
        f"{places[1]} lacks column 'cell_type' (its columns: 'batch_id', 'site'); so do 1 more of "
        "4 inputs: name the columns with --label-key and --batch-key"
    )
    with pytest.raises(SchemaError, match=r"c\.h5ad lacks column 'cell_type', 'batch_id' \("):
        check(places[2], request=request_of(None, "batch_id"))
    check(places[0], places[3], request=request_of(None, "batch_id"))
    store = cd.write_cohort(tmp_path / "S" / "s.zarr", x, {"sample_id": obs.index, "kind": "a"})
    with pytest.raises(SchemaError, match=r"s\.zarr lacks column 'cell_type' \(its columns: 'sam"):
        check(Path(store))


def test_check_inputs__refuses_columns_that_say_nothing(tmp_path: Path) -> None:
    x, obs = cells(4)
    obs["cell_type"] = pd.Categorical([None] * len(obs), categories=["T"])
    path = write_h5ad(tmp_path / "M" / "a.h5ad", x, obs)
    with pytest.raises(SchemaError, match=r"a\.h5ad: column 'cell_type' \(--label-key\) is miss"):
        check(path)
    with pytest.raises(SchemaError, match="label and batch are both column 'site'"):
        check(path, request=request_of(None, "site", label="site"))


def test_check_inputs__refuses_cells_without_names_of_their_own(tmp_path: Path) -> None:
    x, obs = cells(4)
    obs.index = [f"c{i // 2}" for i in range(len(obs))]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # anndata says so, too
        path = write_h5ad(tmp_path / "M" / "a.h5ad", x, obs)
    message = r"a\.h5ad: 75 obs names occur more than once \('c0', .* make them unique"
    with pytest.raises(SchemaError, match=message):
        check(path)


def damage(path: Path) -> None:
    """Overwrite what compressed rows of X are stored as."""
    import h5py

    with h5py.File(path) as file:
        chunk = file["X"].id.get_chunk_info(0)
    with open(path, "r+b") as raw:
        raw.seek(chunk.byte_offset + 10)
        raw.write(b"\xff" * (chunk.size - 20))


def test_check_inputs__names_damaged_files(tmp_path: Path) -> None:
    x, obs = cells(4)
    whole = write_h5ad(tmp_path / "M" / "a.h5ad", x, obs)
    path = tmp_path / "M" / "b.h5ad"
    for content in (b"", b"no HDF5 at all", whole.read_bytes()[:5000]):
        path.write_bytes(content)
        with pytest.raises(SchemaError, match=r"b\.h5ad is not a readable HDF5 file") as told:
            check(whole, path)
        assert str(told.value).startswith(str(path))
    import h5py

    with h5py.File(path, "w") as file:
        file["X"] = x
    with pytest.raises(SchemaError, match=r"b\.h5ad has no obs, so it is no AnnData"):
        check(whole, path)
    with h5py.File(path, "a") as file:
        file.create_group("obs").attrs["_index"] = "nothing"
        file["obs/cell_type"] = np.arange(150)
    with pytest.raises(SchemaError, match=r"b\.h5ad: obs has no array 'nothing', which it"):
        check(whole, path)


def test_run_inputs__names_a_file_that_is_damaged_inside(tmp_path: Path) -> None:
    x, obs = cells(4)
    path = tmp_path / "M" / "a.h5ad"
    write_h5ad(path, x, obs)
    import anndata

    anndata.read_h5ad(path).write_h5ad(path, compression="gzip")
    damage(path)
    check(path)
    with pytest.raises(CromaDaskError, match=r"M/a\.h5ad is damaged: "):
        run(tmp_path, path)
    assert list((tmp_path / "scratch").iterdir()) == []


def test_check_inputs__refuses_stores_that_are_not_whole(tmp_path: Path) -> None:
    place = tmp_path / "M" / "a.zarr"
    place.mkdir(parents=True)
    with pytest.raises(StoreError, match=r"a\.zarr"):
        check_inputs([EmbeddingInput(str(place), "M", "a")], request_of(), key=None)


def test_check_inputs__warns_of_genes_where_obsm_has_an_embedding(tmp_path: Path) -> None:
    x, obs = cells(4)
    genes = scipy.sparse.csr_matrix((150, 2000), dtype=np.float32)
    path = write_h5ad(tmp_path / "M" / "a.h5ad", genes, obs, obsm={"X_scvi": x})
    with pytest.warns(InputWarning, match=r"a\.h5ad: X, of 2,000 columns, .*'X_scvi'.* --key"):
        check(path)
    check(path, key="X_scvi")
    check(path, key="X")
    check(write_h5ad(tmp_path / "M" / "b.h5ad", genes, obs))
    check(write_h5ad(tmp_path / "M" / "c.h5ad", x, obs, obsm={"X_scvi": x}))


# ---- what comes out --------------------------------------------------------------------------


def assert_same_as_python(found: Evaluated, expected: Any) -> None:
    for name, outcome in found.scores.outcomes.items():
        at = expected.sel(metric=name).isel(dataset=0, method=0)
        assert np.float64(outcome.value).tobytes() == at.value.values.tobytes(), name
        assert outcome.note == at.note.item()
        assert outcome.status == at.status.item()
    for name, values in found.scores.sample_values.items():
        assert values.tobytes() == expected[name].values.tobytes(), name
    if found.scores.predictions is not None:
        assert found.scores.predictions.tolist() == expected.cluster.values.tolist()


@pytest.mark.parametrize("kind", first(1, ["h5ad", "store"]))
def test_run_inputs__gives_what_python_gives(tmp_path: Path, kind: str) -> None:
    """Rows without label and without batch, of a float32 embedding."""
    x, obs = cells(5)
    obs.loc[obs.index[:7], "cell_type"] = np.nan
    obs.loc[obs.index[5:15], "batch_id"] = None
    frame = obs.rename_axis("sample_id").reset_index()
    if kind == "h5ad":
        path = write_h5ad(tmp_path / "M" / "a.h5ad", x, obs)
    else:
        path = Path(cd.write_cohort(tmp_path / "M" / "a.zarr", x, frame))
    with pytest.warns(InputWarning) as told:
        (found,) = run(tmp_path, path, request=request_of("all", "batch_id"))
    assert sorted(str(one.message).split(":")[0] for one in told) == ["a by M", "a by M"]
    with pytest.warns(InputWarning):
        expected = cd.embedding_benchmark(x, frame, batch="batch_id")
    assert list(found.scores.outcomes) == expected.metric.values.tolist()
    assert_same_as_python(found, expected)
    assert found.scores.bio == Counts(143, 6, 3)
    assert found.scores.batch == Counts(135, 6, 3, 2)


def test_run_inputs__rows_that_are_no_numbers_are_noted(tmp_path: Path) -> None:
    x, obs = cells(6)
    some, every = x.copy(), np.full_like(x, np.nan)
    some[[3, 70], [0, 2]] = np.nan, np.inf
    write_h5ad(tmp_path / "M" / "every.h5ad", every, obs)
    write_h5ad(tmp_path / "M" / "some.h5ad", some, obs)
    check(tmp_path / "M")
    found = run(tmp_path, tmp_path / "M", request=request_of("all", "batch_id"))
    for one, n_bad in zip(found, (150, 2), strict=True):
        assert len(one.scores.outcomes) == 13
        for outcome in one.scores.outcomes.values():
            assert np.isnan(outcome.value)
            assert f"nonfinite_rows={n_bad}" in outcome.note
        assert failed_metrics(one.scores) == {}


def test_run_inputs__rows_that_are_no_numbers_and_no_part_of_it(tmp_path: Path) -> None:
    x, obs = cells(6)
    kept = np.arange(len(obs)) != 20
    bad = x.copy()
    bad[20] = np.nan
    obs.loc[obs.index[20], "cell_type"] = np.nan
    path = write_h5ad(tmp_path / "M" / "a.h5ad", bad, obs)
    with pytest.warns(InputWarning, match="a by M: column 'cell_type' is missing or blank in row"):
        (found,) = run(tmp_path, path, request=request_of(["ASW", "GC"]))
    expected = cd.embedding_benchmark(x[kept], obs[kept], metrics=["ASW", "GC"])
    for name in ("ASW", "GC"):
        assert found.scores.outcomes[name].value == float(expected.value.sel(metric=name).item())


def test_run_inputs__draws_a_sample_for_the_metrics_of_batches(tmp_path: Path) -> None:
    path = write_h5ad(tmp_path / "M" / "a.h5ad", *cells(9))
    request = Request.of(["GC", "BRAS"], "cell_type", "batch_id", "sample_id", 60)
    (found,) = run(tmp_path, path, request=request)
    assert found.scores.bio == Counts(150, 6, 3)
    assert found.scores.batch == Counts(60, 6, 3, 2)
    note = found.scores.outcomes["BRAS"].note
    assert note.startswith(
        "stratified_subsample=cell_type_x_batch;full_n_cells=150;used_n_cells=60;"
    )
    assert np.isfinite(found.scores.sample_values["bras"]).sum() == 60


@pytest.mark.parametrize(
    ("labels", "names"),
    [
        ([0, 1, 2], {"0", "1", "2"}),
        ([0.0, 1.0, np.nan], {"0", "1"}),
        ([True, False, True], {"True", "False"}),
        ([" T", "T ", "B"], {"T", "B"}),
        (["nan", "NA", "None"], {"nan", "NA", "None"}),
    ],
)
def test_run_inputs__labels_of_any_kind(tmp_path: Path, labels: list[Any], names: set[str]) -> None:
    x, obs = cells(9)
    obs["cell_type"] = np.resize(np.array(labels), len(obs))
    path = write_h5ad(tmp_path / "M" / "a.h5ad", x, obs)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", InputWarning)
        (found,) = run(tmp_path, path)
    assert set(found.label(0, 150)) - {""} == names
    assert found.scores.bio is not None
    assert found.scores.bio.n_labels == len(names)


def test_run_inputs__says_which_input_does_not_fit(tmp_path: Path) -> None:
    path = write_h5ad(tmp_path / "M" / "liver.h5ad", *cells(7))
    options = merged(scratch=str(tmp_path / "scratch"), memory="1MB")
    with pytest.raises(MemoryLimitError, match="^liver by M: the search needs at least"):
        list(run_inputs(expand_paths(path), request_of(), tmp_path / "out", options))


def test_run_inputs__leaves_nothing_where_its_consumer_stops(tmp_path: Path) -> None:
    for name in ("a", "b"):
        write_h5ad(tmp_path / "M" / f"{name}.h5ad", *cells(8))
    options = merged(scratch=str(tmp_path / "scratch"))
    found = run_inputs(expand_paths(tmp_path / "M"), request_of(), tmp_path / "out", options)
    assert next(found).scores.dataset == "a"
    found.close()
    assert list((tmp_path / "scratch").iterdir()) == []
    assert not list((tmp_path / "out" / "benchmark").glob("*.csv"))


def test_run_inputs__tells_of_tables_that_are_of_other_runs(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    first, second = (write_h5ad(tmp_path / "M" / f"{n}.h5ad", *cells(8)) for n in ("a", "b"))
    run(tmp_path, first)
    assert caplog.messages == []
    run(tmp_path, second)
    assert [m for m in caplog.messages if "not of others" in m and "(1)" in m]
    caplog.clear()
    run(tmp_path, tmp_path / "M")
    assert caplog.messages == [
        f"{name} by M: tables of an earlier run used again (--force scores them anew)"
        for name in ("a", "b")
    ]
    wide = pd.read_csv(
        tmp_path / "out" / "benchmark" / "M_bio_conservation_leiden_metrics_wide.csv"
    )
    assert wide["sample_id"].tolist() == ["a", "b"]


@pytest.fixture
def raises(monkeypatch: pytest.MonkeyPatch) -> dict[str, Exception]:
    """What scoring a sample raises, by its name; others are scored."""
    given: dict[str, Exception] = {}
    evaluate = run_module.evaluate_embedding

    def or_raise(*args: Any, dataset: str, **more: Any) -> Scores:
        if dataset in given:
            raise given[dataset]
        return evaluate(*args, dataset=dataset, **more)

    monkeypatch.setattr(run_module, "evaluate_embedding", or_raise)
    return given


def combined(tmp_path: Path, group: str, method: str = "M") -> pd.DataFrame:
    name = f"{method}_{group}_leiden_metrics_wide.csv"
    return pd.read_csv(tmp_path / "out" / "benchmark" / name)


def test_run_inputs__one_that_cannot_be_scored_takes_no_other_down(
    tmp_path: Path, raises: dict[str, Exception]
) -> None:
    """It fails in every metric, its tables are there, and those after it are scored."""
    for name in ("a", "b", "c"):
        write_h5ad(tmp_path / "M" / f"{name}.h5ad", *cells(8))
    raises["b"] = SchemaError("row 7; is longer than 1e150")
    request = request_of(["GC", "BRAS"], "batch_id")
    a, b, c = run(tmp_path, tmp_path / "M", request=request)
    why = "SchemaError: row 7; is longer than 1e150"
    assert failed_metrics(b.scores) == {"GC": why, "BRAS": why}
    assert list(b.scores.outcomes) == ["GC", "BRAS"]
    assert (b.scores.bio, b.scores.batch) == (Counts(150, 6, 3), Counts(150, 6, 3, 2))
    note = "metric_failed=SchemaError:row 7, is longer than 1e150"
    assert b.scores.outcomes["GC"].note == note
    assert b.scores.outcomes["BRAS"].note == f"{note};bras_definition=cosine_mean_other"
    for one in (a, c):
        assert not failed_metrics(one.scores)
    for group, metric in (("bio_conservation", "GC"), ("batch_mixing", "BRAS")):
        wide = combined(tmp_path, group)
        assert wide["sample_id"].tolist() == ["a", "b", "c"]
        assert wide[metric].isna().tolist() == [False, True, False]
    raises.clear()
    _, b, _ = run(tmp_path, tmp_path / "M", request=request)
    assert not failed_metrics(b.scores), "it is tried again"
    assert not combined(tmp_path, "batch_mixing")["BRAS"].isna().any()


def test_run_inputs__rows_that_are_too_long_take_no_other_down(tmp_path: Path) -> None:
    for name in ("a", "b", "c"):
        x, obs = cells(8)
        x = x.astype(np.float64)
        x[7, 2] = 1e200 if name == "b" else 0.0
        write_h5ad(tmp_path / "M" / f"{name}.h5ad", x, obs)
    run(tmp_path, tmp_path / "M")
    wide = combined(tmp_path, "bio_conservation")
    assert wide["sample_id"].tolist() == ["a", "b", "c"]
    assert wide["GC"].isna().tolist() == [False, True, False]


@pytest.mark.parametrize(
    "error", [OSError("disk full"), StoreError("a chunk is gone"), MemoryLimitError("too large")]
)
def test_run_inputs__what_ends_a_run_leaves_the_tables_of_what_is_done(
    tmp_path: Path, raises: dict[str, Exception], error: Exception
) -> None:
    for name in ("a", "b", "c"):
        write_h5ad(tmp_path / "M" / f"{name}.h5ad", *cells(8))
    raises["b"] = error
    with pytest.raises(type(error), match=str(error)):
        run(tmp_path, tmp_path / "M")
    assert combined(tmp_path, "bio_conservation")["sample_id"].tolist() == ["a"]


def test_told_failures__is_one_line() -> None:
    why = ValueError("no; not\nthis")
    outcomes = {"ASW": Outcome.failed(why), "BRAS": Outcome.failed(why)}
    all_failed = Scores("a", "M", outcomes)
    assert told_failures(all_failed) == "all metrics: ValueError: no; not this"
    some = Scores("a", "M", {**outcomes, "GC": Outcome(1.0), "ARI": Outcome.failed(KeyError("x"))})
    assert told_failures(some) == "ASW, BRAS: ValueError: no; not this; ARI: KeyError: 'x'"
    assert told_failures(Scores("a", "M", {"GC": Outcome(1.0)})) == ""


def test_failed_metrics__says_what_was_raised() -> None:
    outcomes = {
        "GC": Outcome(1.0), "ASW": Outcome.undefined("one label", "insufficient_labels_or_cells"),
        "BRAS": Outcome.failed(ValueError("no; not this")),
    }  # fmt: skip
    assert failed_metrics(Scores("a", "M", outcomes)) == {"BRAS": "ValueError: no; not this"}
