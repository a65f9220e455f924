"""Several models in one call: the numbers of each alone, and what a run reads and leaves."""

from __future__ import annotations

import contextlib
import threading
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import xarray as xr

import croma_dask as cd
from croma_dask.cohort.store import StoredCohort
from croma_dask.panel import scoring
from croma_dask.panel.models import drop_model
from croma_dask.panel.names import file_name
from croma_dask.robustness.request import Request
from croma_dask.schema import METRICS
from croma_dask.schema_panel import RANKS
from tests.helpers.compare import assert_same_bits
from tests.panel.conftest import ARGUMENTS, NAMES, make_arrays, make_frame, make_paired


def model_of(panel: xr.DataTree, metric: str, name: str) -> xr.Dataset:
    node = panel[metric].to_dataset().drop_vars(list(RANKS), errors="ignore")
    return drop_model(node.sel(model=[name]))


def assert_same_panels(found: xr.DataTree, expected: xr.DataTree) -> None:
    assert list(found.children) == list(expected.children)
    for metric in expected.children:
        assert_same_bits(found[metric].to_dataset(), expected[metric].to_dataset())
        assert list(found[metric].variables) == list(expected[metric].variables)


# ---- numbers ---------------------------------------------------------------------------------


def test_score__several_are_each_scored_as_if_alone(
    panel: xr.DataTree, singles: dict[str, xr.DataTree]
) -> None:
    for metric in METRICS:
        node = panel[metric].to_dataset()
        assert node.model.values.tolist() == list(NAMES)
        assert node.n_features.values.tolist() == [6, 9, 4]
        assert node.dtype.values.tolist() == ["float32", "float64", "float16"]
        for name in NAMES:
            assert_same_bits(model_of(panel, metric, name), singles[name][metric].to_dataset())
    ks = [int(singles[name]["RI"].k) for name in NAMES]
    assert panel["RI"].k.values.tolist() == ks
    first = singles[NAMES[0]].attrs
    assert {k: v for k, v in panel.attrs.items() if k != "created"} == {
        k: v for k, v in first.items() if k not in ("created", "embedding_fingerprint")
    }


def test_score__ranks_agree_with_pandas(panel: xr.DataTree) -> None:
    croma = panel["CRoMa"]
    for name, rank in (("value", "value_rank"), ("ltm_alpha", "ltm_rank")):
        np.testing.assert_array_equal(
            croma[rank], croma[name].to_pandas().rank(ascending=False, method="average")
        )
    np.testing.assert_array_equal(croma.mean_rank, (croma.value_rank + croma.ltm_rank) / 2)


def test_score__arrays_of_one_manifest_and_open_cohorts(
    panel: xr.DataTree, stores: dict[str, str]
) -> None:
    arrays = cd.score(make_arrays(), make_frame(), **ARGUMENTS)
    opened = cd.score({n: cd.open_cohort(place) for n, place in stores.items()}, **ARGUMENTS)
    for found in (arrays, opened):
        assert_same_panels(found, panel)
    frame = make_frame()
    shuffled = np.random.default_rng(3).permutation(len(frame))
    by_id = {
        name: xr.DataArray(
            x[shuffled], dims=("sample", "feature"),
            coords={"sample_id": ("sample", frame.sample_id.to_numpy()[shuffled])},
        )
        for name, x in make_arrays().items()
    }  # fmt: skip
    found = cd.score(by_id, frame, **ARGUMENTS)
    np.testing.assert_array_equal(found["CRoMa"].value, panel["CRoMa"].value)


def test_score__paired_and_one_metric_with_one_radius() -> None:
    arrays, frame = make_paired()
    request: dict[str, Any] = {"confounder": "center", "design": "paired_2x2", "m": 2}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        found = cd.score(arrays, frame, metrics="CRoMa", **request)
        for name, x in arrays.items():
            alone = cd.score(x, frame, metrics="CRoMa", **request)["CRoMa"].to_dataset()
            assert_same_bits(model_of(found, "CRoMa", name), alone)
    assert found["CRoMa"].value_rank.dims == ("model",)
    assert found["CRoMa"].pair_values.dims == ("model", "subset")


def test_score__a_list_of_one_is_a_panel_of_one(
    stores: dict[str, str], singles: dict[str, xr.DataTree]
) -> None:
    found = cd.score([stores[NAMES[0]]], **ARGUMENTS)
    assert found["RI"].model.values.tolist() == ["store-0"]
    for metric in METRICS:
        alone = singles[NAMES[0]][metric].to_dataset()
        assert_same_bits(model_of(found, metric, "store-0"), alone)


def test_score__a_list_of_rows_is_one_embedding_as_ever() -> None:
    x, frame = make_arrays()[NAMES[0]], make_frame()
    rows = [list(map(float, row)) for row in x]
    found = cd.score(rows, frame, metrics="RI", confounder="center", k_candidates=5)
    assert found["RI"].value.dims == ()


# ---- what is read ----------------------------------------------------------------------------


def test_score__reads_each_store_as_if_it_were_scored_alone(
    stores: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    read: dict[str, list[tuple[int, int]]] = {}
    lock = threading.Lock()
    real = StoredCohort.read_tiles

    def look(store: StoredCohort, lo: int = 0, hi: int | None = None) -> Any:
        found = real(store, lo, hi)
        with lock:
            read.setdefault(store.url, []).append((lo, lo + found.shape[0]))
        return found

    monkeypatch.setattr(StoredCohort, "read_tiles", look)
    expected = {}
    for place in stores.values():
        cd.score(place, **ARGUMENTS)
        expected[place] = sorted(read.pop(place))
    cd.score(stores, **ARGUMENTS)
    assert {place: sorted(found) for place, found in read.items()} == expected
    assert all(expected.values())


def test_score__nothing_is_searched_before_all_rows_were_compared(
    stores: dict[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def never(*args: Any, **kwargs: Any) -> Any:
        raise AssertionError("scored")

    monkeypatch.setattr(scoring, "evaluate", never)
    frame = make_frame()
    frame.loc[5, "center"] = "C"
    other = cd.write_cohort(tmp_path / "other.zarr", make_arrays()[NAMES[1]], frame)
    cohorts = {"one": stores[NAMES[0]], "two": stores[NAMES[1]], "other": other}
    with pytest.raises(cd.SchemaError, match="'other' is not of the same rows as 'one': .*row 5"):
        cd.score(cohorts, **ARGUMENTS)
    # Columns that scoring does not use may differ.
    frame = make_frame().assign(site="x", center2=make_frame().center)
    more = cd.write_cohort(tmp_path / "more.zarr", make_arrays()[NAMES[1]], frame)
    with pytest.raises(AssertionError, match="scored"):
        cd.score({"one": stores[NAMES[0]], "more": more}, **ARGUMENTS)


# ---- names -----------------------------------------------------------------------------------


def test_score__models_are_called_as_their_stores(stores: dict[str, str]) -> None:
    places = list(stores.values())
    given = [places[0] + "/", Path(places[1]), cd.open_cohort(places[2])]
    found = cd.score(given, metrics="RI", confounder="center", k_candidates=5)
    assert found["RI"].model.values.tolist() == ["store-0", "store-1", "store-2"]


def test_score__says_how_to_name_models(stores: dict[str, str]) -> None:
    x = make_arrays()[NAMES[0]]
    place = stores[NAMES[0]]
    by_name = r"name them yourself: \{'name': cohort, ...\} \(--name"
    for cohorts, said in (
        ([], "no cohorts to score"),
        ({}, "no cohorts to score"),
        ([place, place], f"two cohorts are called 'store-0' .*{by_name}"),
        ([x, x], f"cohort 1 of 2 has no name of its own .it is a ndarray.; {by_name}"),
        ([place, cd.open_cohort(place).isel(sample=slice(9)).drop_attrs()], "cohort 2 of 2"),
        ({1: place, "1": place}, "two models have the same name"),
        ({"a": place, " a ": place}, "two models have the same name"),
        ({" ": place}, "no name of a model"),
    ):
        with pytest.raises(cd.SchemaError, match=said):
            cd.score(cohorts, **ARGUMENTS)


def test_score__blanks_around_a_name_are_none_of_it(
    stores: dict[str, str], singles: dict[str, xr.DataTree]
) -> None:
    """Nobody sees them in a table, and `sel(model="UNI")` would find nothing."""
    places = {" UNI\n": stores[NAMES[0]], "two words ": stores[NAMES[1]]}
    found = cd.score(places, metrics="RI", confounder="center", k_candidates=5)
    assert found["RI"].model.values.tolist() == ["UNI", "two words"]
    combined = cd.combine_results({"UNI ": singles[NAMES[0]], "b": singles[NAMES[1]]})
    assert combined["RI"].model.values.tolist() == ["UNI", "b"]


@pytest.mark.parametrize("name", [*NAMES, "..", "a" * 400, "é" * 200, "C:\\x", "~"])
def test_file_name__is_one_part_of_a_path_that_differs_for_each_model(
    name: str, tmp_path: Path
) -> None:
    found = file_name(name)
    (tmp_path / found).mkdir()
    assert [path.name for path in tmp_path.iterdir()] == [found]
    assert file_name(name + "x") != found


# ---- what is said ----------------------------------------------------------------------------


def test_score__the_same_embedding_twice_warns(stores: dict[str, str]) -> None:
    x = make_arrays()[NAMES[0]]
    request: dict[str, Any] = {"metrics": "CRoMa", "confounder": "center", "m": 1}
    place = stores[NAMES[0]]
    for cohorts, manifest in (
        ({"a": place, "b": stores[NAMES[1]], "c": place}, None),
        ({"a": x, "b": x + 1, "c": x.copy()}, make_frame()),
    ):
        with pytest.warns(cd.InputWarning, match="'a', 'c' have the same embedding") as told:
            found = cd.score(cohorts, manifest, **request)
        assert len(told) == 1
        assert found["CRoMa"].value.values[0] == found["CRoMa"].value.values[2]


def test_score__warnings_name_their_models_and_are_given_once() -> None:
    """One model has a zero row; all of them lack candidates at m = 30."""
    arrays = {name: x.astype("f8") for name, x in make_arrays().items()}
    arrays["narrow"][7] = 0
    request: dict[str, Any] = {"metrics": "CRoMa", "confounder": "center", "m": 30}
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        cd.score(arrays, make_frame(), **request)
    said = [str(one.message) for one in caught]
    assert len(set(said)) == len(said)
    zero = [text for text in said if "zero" in text]
    assert len(zero) == 1
    assert zero[0].startswith("'narrow': ")
    for one in caught:
        assert one.filename == __file__, "at the line of who called"
    shared = [text for text in said if "fewer than" in text or "candidates" in text]
    assert shared
    assert not any(name in text for text in shared for name in NAMES)


def test_score__errors_name_their_model() -> None:
    arrays = make_arrays()
    arrays["narrow"][3] = np.nan
    with pytest.raises(cd.SchemaError, match="model 'narrow': .*NaN in row 3"):
        cd.score(arrays, make_frame(), **ARGUMENTS)
    with pytest.raises(cd.SchemaError, match=f"model {NAMES[1]!r}: the embedding has 100 rows"):
        cd.score({**arrays, NAMES[1]: arrays[NAMES[1]][:100]}, make_frame(), **ARGUMENTS)
    with pytest.raises(cd.StoreError, match="model 'b': .*no store here"):
        cd.score({"b": "nowhere/at-all.zarr"} | {"c": "x.zarr"}, **ARGUMENTS)
    with pytest.raises(cd.SchemaError, match="an index belongs to one embedding"):
        cd.score(arrays, make_frame(), index="some/place.ivf.zarr", **ARGUMENTS)


# ---- what is kept ----------------------------------------------------------------------------


@pytest.fixture
def failing(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """Scoring of models, of which the second is interrupted; the list grows by what is scored."""
    calls: list[Any] = []
    real = scoring.evaluate

    def evaluate(cohort: Any, *args: Any, **kwargs: Any) -> Any:
        calls.append(cohort.url)
        if len(calls) == 2:
            raise KeyboardInterrupt
        return real(cohort, *args, **kwargs)

    monkeypatch.setattr(scoring, "evaluate", evaluate)
    return calls


def test_score__a_run_that_failed_takes_over_the_models_that_are_done(
    stores: dict[str, str], panel: xr.DataTree, failing: list[Any], tmp_path: Path
) -> None:
    places = list(stores.values())
    with pytest.raises(KeyboardInterrupt):
        cd.score(stores, scratch=str(tmp_path / "s"), **ARGUMENTS)
    assert failing == places[:2]
    assert len(list((tmp_path / "s").glob("*/model-*.npz"))) == 1
    with pytest.warns(cd.SupportWarning) as told:
        found = cd.score(stores, scratch=str(tmp_path / "s"), **ARGUMENTS)
    assert failing[2:] == places[1:], "and the first is not scored again"
    assert_same_panels(found, panel)
    with pytest.warns(cd.SupportWarning) as expected:
        cd.score(stores, **ARGUMENTS)
    assert [str(w.message) for w in told] == [str(w.message) for w in expected]
    assert list((tmp_path / "s").iterdir()) == [], "a run that ends well leaves nothing"


@pytest.mark.parametrize(
    "changed",
    [{"alpha": 0.2}, {"group": "sample_id"}, {"resume": False}, {"store": "other"}],
)
def test_score__takes_nothing_over_that_is_of_something_else(
    changed: dict[str, Any], stores: dict[str, str], failing: list[Any], tmp_path: Path
) -> None:
    cohorts = dict(stores)
    scratch = str(tmp_path / "s")
    with pytest.raises(KeyboardInterrupt):
        cd.score(cohorts, scratch=scratch, **ARGUMENTS)
    if changed.pop("store", None):
        x = make_arrays()[NAMES[0]]
        cohorts[NAMES[0]] = cd.write_cohort(tmp_path / "new.zarr", x * 2 + 1, make_frame())
    cd.score(cohorts, **{**ARGUMENTS, "scratch": scratch, **changed})
    assert failing[2:] == list(cohorts.values())


def test_score__with_kept_neighbours_takes_no_results_over(
    stores: dict[str, str], panel: xr.DataTree, failing: list[Any], tmp_path: Path
) -> None:
    """Those of the model that is done have to be there, too; and once they are, they serve."""
    scratch = str(tmp_path / "s")
    with pytest.raises(KeyboardInterrupt):
        cd.score(stores, scratch=scratch, **ARGUMENTS)
    call: dict[str, Any] = {"scratch": scratch, "keep_neighbors": tmp_path / "kept", **ARGUMENTS}
    found = cd.score(stores, **call)
    assert failing[2:] == list(stores.values())
    assert_same_panels(found, panel)
    for name in NAMES:
        cd.open_neighbors(tmp_path / "kept" / file_name(name)).close()
    again = cd.score(stores, **call)
    assert all(again["CRoMa"].neighbors_reused.values)


class Index:
    """An index as far as a result depends on it: its kind and the name of its build."""

    def __init__(self, kind: str, build_id: str) -> None:
        self.kind, self.build_id = kind, build_id


@pytest.mark.parametrize(
    ("wanted", "used", "taken"),
    [("ivf", "ivf", False), ("auto", "ivf", False), ("auto", "exact", True)],
)
def test_score__takes_nothing_over_of_an_index_that_was_built_again(
    wanted: str, used: str, taken: bool, stores: dict[str, str], monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
) -> None:  # fmt: skip
    """Found through other clusters it is another result; what is exact is none of the index's."""
    calls: list[str] = []
    real = scoring.evaluate

    def evaluate(cohort: Any, manifest: Any, names: Any, design: Any, *_: Any, **kw: Any) -> Any:
        calls.append(cohort.url)
        if len(calls) == 2:
            raise KeyboardInterrupt
        request = Request.of("CRoMa", m=1)
        found = real(cohort, manifest, names, design, request, **kw)
        found["CRoMa"].attrs["index"] = used
        return found

    builds = ["first", "second"]
    monkeypatch.setattr(scoring, "evaluate", evaluate)
    monkeypatch.setattr(
        "croma_dask.panel.finished.find_built",
        lambda embedding, kind: Index(kind, f"{builds[0]} {embedding.fingerprint}"),
    )
    call: dict[str, Any] = {"confounder": "center", "metrics": "CRoMa", "m": 1, "index": wanted}
    call["scratch"] = str(tmp_path)
    with pytest.raises(KeyboardInterrupt):
        cd.score(stores, **call)
    builds.pop(0)
    cd.score(stores, keep_scratch=True, **call)
    assert calls[2:] == list(stores.values())[1 if taken else 0 :]
    calls[:] = ["", ""]
    cd.score(stores, **call)
    assert calls[2:] == [], "and of the same build everything"


def test_score__of_a_paired_panel_that_is_resumed_warns_as_the_run_itself(
    failing: list[Any], tmp_path: Path
) -> None:
    arrays, frame = make_paired()
    frame.loc[frame.subset == "three", "label"] = "a"
    places = [
        cd.write_cohort(tmp_path / f"{at}.zarr", x, frame)
        for at, x in enumerate(arrays.values())
    ]  # fmt: skip
    call: dict[str, Any] = {"confounder": "center", "metrics": "CRoMa", "m": 1}
    call |= {"design": "paired_2x2", "skip_incomplete": True}

    def said(**more: Any) -> list[str]:
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            with contextlib.suppress(KeyboardInterrupt):
                cd.score(places, **call, **more)
        return [str(one.message) for one in caught]

    interrupted = said(scratch=str(tmp_path / "s"))
    assert len(failing) == 2
    resumed = said(scratch=str(tmp_path / "s"))
    assert len(failing) == 2 + 2
    fresh = said()
    assert [text for text in fresh if "three" in text], "of the subset that is skipped"
    assert resumed == fresh
    assert [text.removeprefix("'0': ") for text in interrupted] == fresh, "those of the first model"


def test_score__a_model_that_fails_is_told_with_the_warnings_before(
    failing: list[Any], stores: dict[str, str]
) -> None:
    call: dict[str, Any] = {"confounder": "center", "metrics": "CRoMa", "m": 30}
    with pytest.warns(cd.SupportWarning) as told, pytest.raises(KeyboardInterrupt):
        cd.score(stores, **call)
    assert all(str(one.message).startswith(f"{NAMES[0]!r}: ") for one in told)
    assert all(one.filename == __file__ for one in told), "at the line of who called"
    failing.clear()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with pytest.raises(KeyboardInterrupt):
            cd.score(stores, **call)


def test_score__another_version_takes_nothing_over(
    stores: dict[str, str], failing: list[Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(KeyboardInterrupt):
        cd.score(stores, scratch=str(tmp_path), **ARGUMENTS)
    monkeypatch.setattr("croma_dask.panel.finished.__version__", "99")
    cd.score(stores, scratch=str(tmp_path), **ARGUMENTS)
    assert failing[2:] == list(stores.values())


def test_score__a_damaged_file_is_made_again(
    stores: dict[str, str], panel: xr.DataTree, failing: list[Any], tmp_path: Path
) -> None:
    with pytest.raises(KeyboardInterrupt):
        cd.score(stores, scratch=str(tmp_path), **ARGUMENTS)
    (kept,) = tmp_path.glob("*/model-*.npz")
    kept.write_bytes(kept.read_bytes()[:-100])
    found = cd.score(stores, scratch=str(tmp_path), **ARGUMENTS)
    assert failing[2:] == list(stores.values())
    assert_same_panels(found, panel)


def test_score__keep_scratch_keeps_the_models_for_the_same_call(
    stores: dict[str, str], panel: xr.DataTree, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    call = {"scratch": str(tmp_path), "keep_scratch": True, **ARGUMENTS}
    cd.score(stores, **call)
    assert len(list(tmp_path.glob("*/model-*.npz"))) == 3

    def never(*args: Any, **kwargs: Any) -> Any:
        raise AssertionError("scored")

    monkeypatch.setattr(scoring, "evaluate", never)
    again = cd.score(stores, **call)
    assert_same_panels(again, panel)
    renamed = cd.score({"x": stores[NAMES[2]], "y": stores[NAMES[0]]}, **call)
    assert renamed["RI"].model.values.tolist() == ["x", "y"]
    np.testing.assert_array_equal(renamed["RI"].value, panel["RI"].value.values[[2, 0]])


def test_score__kept_neighbours_are_each_models_own(
    stores: dict[str, str], panel: xr.DataTree, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    kept = tmp_path / "kept"
    cd.score(stores, keep_neighbors=kept, **ARGUMENTS)
    assert {path.name for path in kept.iterdir()} == {file_name(name) for name in NAMES}
    for name in NAMES:
        opened = cd.open_neighbors(kept / file_name(name))
        assert opened.sizes["sample"] == 120

    def never(*args: Any, **kwargs: Any) -> Any:
        raise AssertionError("read")

    monkeypatch.setattr(StoredCohort, "read_tiles", never)
    again = cd.score(stores, keep_neighbors=kept, **ARGUMENTS)
    np.testing.assert_array_equal(again["MaRI"].value, panel["MaRI"].value)
    assert all(again["MaRI"].neighbors_reused.values)
    with pytest.raises(cd.SchemaError, match="holds something of a single cohort"):
        cd.score(stores, keep_neighbors=kept / file_name(NAMES[0]), **ARGUMENTS)
    with pytest.raises(cd.SchemaError, match="does not exist; make it first"):
        cd.score(stores, keep_neighbors=tmp_path / "a" / "b", **ARGUMENTS)


@pytest.mark.slow  # searches through an index: all its kernels are compiled
def test_score__through_an_index_and_beside_exact_ones(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    frame = make_frame(400)
    places = {
        name: cd.write_cohort(tmp_path / f"{at}.zarr", rng.normal(size=(400, 6 + at)), frame)
        for at, name in enumerate(NAMES)
    }
    request = {**ARGUMENTS, "index": "ivf", "calibration": 100, "recall": 0.9}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        singles = {name: cd.score(place, **request) for name, place in places.items()}
        found = cd.score(places, **request)
        for metric in METRICS:
            for name in NAMES:
                expected = singles[name][metric].to_dataset()
                assert_same_bits(model_of(found, metric, name), expected)
        call = {"scratch": str(tmp_path / "s"), "keep_scratch": True, **request}
        for _ in range(2):
            assert_same_panels(cd.score(places, **call), found)
        singles[NAMES[0]] = cd.score(places[NAMES[0]], **ARGUMENTS)
        mixed = cd.combine_results(singles)
    assert mixed["RI"]["index"].values.tolist() == ["exact", "ivf", "ivf"]
    assert np.isnan(mixed["RI"].value_error.values).tolist() == [True, False, False]
    frame = mixed["RI"].to_dataset().value_error.to_pandas()
    assert isinstance(frame, pd.Series)
