"""The sweep equals the reference to the last bit, whatever holds the rows and wherever it runs."""

from __future__ import annotations

import functools
import random
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import dask.array as da
import numpy as np
import pytest
import xarray as xr
import zarr

from croma_dask import downstream, set_options
from croma_dask.probe import job, layout, opened, run
from croma_dask.probe.job import BLOCK_ROWS
from tests.helpers.marks import first
from tests.probe.glue import cohort


def outside(n: int, n_features: int, classes: Any, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """A test set of classes of its own choice."""
    rng = np.random.default_rng(seed)
    return rng.normal(size=(n, n_features)), rng.choice(classes, size=n)


def dealt(cells: Any, rng: random.Random) -> Any:
    """An arrangement of one's own: it draws, shuffles some cells and turns all of them round."""
    first = rng.randint(0, 1)
    out: list[list[Any]] = []
    for level in cells:
        out.append([])
        for j, slides in enumerate(level):
            slides = list(slides)
            if j % 2 == first:
                rng.shuffle(slides)
            out[-1].append(tuple(slides[::-1]))
    return tuple(out)


def by_case(cases_a_cell: int, rows: int) -> tuple[tuple[Any, Any, Any], Any]:
    """Rows of cases that have a slide in every class, and the arrangement that keeps them apart."""
    at = np.indices((2, 3, cases_a_cell, rows)).reshape(4, -1)
    confounders, labels, number = at[:3]
    names = np.array([f"{'AB'[i]}{k}" for i, k in zip(confounders, number, strict=True)])
    rng = np.random.default_rng(21)
    x = rng.normal(size=(3, 4))[labels] + rng.normal(size=(2, 4))[confounders]
    x += rng.normal(size=x.shape)
    splits: dict[str, dict[str, Any]] = {"train": {}, "test": {}}
    for center in "AB":
        every = [f"{center}{k}" for k in range(cases_a_cell)]
        splits["test"][center] = [every[k : k + 2] for k in range(cases_a_cell - 1)]
        splits["train"][center] = [[c for c in every if c not in t] for t in splits["test"][center]]
    arrange = downstream.tolkach_arrangement(splits, names.tolist(), centers="A B".split())
    return (x, confounders, labels), arrange


ESCA, BY_CASE = by_case(7, 2)

CASES: dict[str, dict[str, Any]] = {
    "camelyon_patches": {
        "data": cohort(np.full((2, 2), 17 * 3), seed=31),
        "schedule": downstream.pathorob_schedule("camelyon", rows_per_slide=3),
        "rows_per_slide": 3,
        "iterations": 1,
        "test_sets": {"other centre": outside(30, 4, [0, 1], 1)},
    },
    "camelyon_slides": {
        "data": cohort(np.full((2, 2), 20), seed=32, n_features=9),
        "schedule": downstream.pathorob_schedule("camelyon")[::3],
        "validation_fraction": 0.25,
        "iterations": 3,
    },
    "tcga_patches": {
        "data": cohort(np.full((4, 4), 24), seed=33, n_features=5),
        "schedule": downstream.pathorob_schedule("tcga", rows_per_slide=2)[::3],
        "rows_per_slide": 2,
        "iterations": 1,
        "validation_fraction": 0.25,
    },
    "tcga_slides_float32": {
        "data": cohort(np.full((4, 4), 15), seed=34),
        "schedule": downstream.pathorob_schedule("tcga", n_splits=2),
        "validation_fraction": 0.5,
        "iterations": 2,
        "seed": 7,
        "dtype": np.float32,
        "test_sets": {"one class": outside(12, 4, [2], 2)},
    },
    "tolkach_patches_arranged": {
        "data": cohort(np.full((2, 6), 18), seed=35),
        "schedule": downstream.pathorob_schedule("tolkach_esca", rows_per_slide=2)[::3],
        "rows_per_slide": 2,
        "iterations": 2,
        "arrange_slides": dealt,
    },
    "tolkach_slides": {
        "data": cohort(np.full((2, 6), 12), seed=36),
        "schedule": downstream.pathorob_schedule("tolkach_esca")[1:3],
        "validation_fraction": 0.4,
        "iterations": 1,
        "seed": 0,
    },
    "by_case": {
        "data": ESCA,
        "schedule": [
            ([(i, j, 6) for i in range(2) for j in range(3)], 4),
            ([(0, 0, 8), (0, 1, 4), (1, 1, 6), (1, 2, 8)], 4),
        ],
        "rows_per_slide": 2,
        "iterations": 3,
        "arrange_slides": BY_CASE,
    },
    # Splits of different widths, cells out of order, a class and a level that are never trained on,
    # a level without rows, short last slides, and test sets with classes of their own.
    "custom": {
        "data": cohort([[17, 11, 5], [13, 14, 0], [0, 0, 0], [9, 0, 3]], seed=37),
        "schedule": [
            ([(1, 1, 4), (0, 0, 4), (0, 1, 4), (1, 0, 4)], 2),
            ([(0, 1, 1), (0, 0, 6), (1, 1, 5)], 3),
            ([(0, 0, 5), (1, 1, 6), (0, 1, 0)], 3),
        ],
        "rows_per_slide": 2,
        "iterations": 3,
        "seed": 11,
        "test_sets": {"one": outside(25, 4, [0, 1], 3), "other": outside(25, 4, [1, 2, 9], 4)},
    },
    "wide_then_narrow": {
        "data": cohort(np.full((3, 2), 13), seed=38, n_features=3, shuffled=False),
        "schedule": [
            ([(i, j, 4) for j in range(2) for i in range(3)], 6),
            ([(2, 1, 5), (0, 0, 5), (1, 0, 2)], 5),
            ([(2, 1, 7), (0, 0, 6)], 7),
        ],
        "validation_fraction": 0.3,
        "iterations": 2,
    },
    "linear_float32": {
        "data": cohort(np.full((2, 3), 15), seed=39, n_features=7),
        "schedule": downstream.linear_schedule(2, 3, 8, 3),
        "validation_fraction": 0.3,
        "iterations": 2,
        "dtype": np.float32,
    },
    "one_feature_float16": {
        "data": cohort(np.full((2, 2), 14), seed=40, n_features=1),
        "schedule": downstream.linear_schedule(2, 2, 6, 3),
        "validation_fraction": 0.9,
        "iterations": 3,
        "dtype": np.float16,
    },
    "whole_numbers": {
        "data": cohort(np.full((2, 2), 15), seed=41, scale=20.0),
        "schedule": downstream.linear_schedule(2, 2, 4, 2, rows_per_slide=2),
        "rows_per_slide": 2,
        "validation_fraction": 0.5,
        "iterations": 2,
        "dtype": np.int16,
    },
    # Probes that run out of iterations are used as they are.
    "unscaled": {
        "data": cohort(np.full((2, 3), 15), seed=42, n_features=8, scale=300.0),
        "schedule": downstream.linear_schedule(2, 3, 8, 2),
        "validation_fraction": 0.3,
        "iterations": 1,
    },
    # Test rows of several blocks, and of several tasks where those are short.
    "long_test_sets": {
        "data": cohort(np.full((2, 2), 11), seed=43, n_features=3),
        "schedule": downstream.linear_schedule(2, 2, 4, 2),
        "validation_fraction": 0.5,
        "iterations": 2,
        "test_sets": {
            "blocks": outside(3 * BLOCK_ROWS + 5, 3, [0, 1, 4], 5),
            "block": outside(BLOCK_ROWS, 3, [0, 1], 6),
        },
    },
}  # fmt: skip


@functools.cache
def expected(name: str) -> dict[str, np.ndarray]:
    """What the reference says; it takes float64."""
    reference = pytest.importorskip("croma.downstream")
    options = dict(CASES[name])
    x, *codes = options.pop("data")
    x = x.astype(options.pop("dtype", np.float64)).astype(np.float64)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        found: dict[str, np.ndarray] = reference.probe_sweep_over_test_sets(x, *codes, **options)
    assert np.ptp(found["in_domain"]) > 0.0, "the case would not notice a mixed-up row"
    return found


def assert_equal(found: xr.Dataset, name: str) -> None:
    accuracies = expected(name)
    assert list(found.data_vars) == list(accuracies)
    for test_set, values in accuracies.items():
        assert found[test_set].dims == ("split", "iteration")
        assert np.abs(found[test_set].values - values).max() == 0.0, test_set


# ---- what holds the rows ---------------------------------------------------------------------


def plain(x: np.ndarray, folder: Path) -> Any:
    return x


def memory_map(x: np.ndarray, folder: Path) -> Any:
    np.save(folder / "rows.npy", x)
    return np.load(folder / "rows.npy", mmap_mode="r")


def dask_array(x: np.ndarray, folder: Path) -> Any:
    return da.from_array(x, chunks=(7 + len(x) // 9, max(1, x.shape[1] // 2)))


def zarr_array(x: np.ndarray, folder: Path) -> Any:
    array = zarr.create_array(
        str(folder / "rows.zarr"),
        shape=x.shape,
        chunks=(8 + len(x) // 9, x.shape[1]),
        dtype=x.dtype,
    )
    array[:] = x
    return array


def data_array(x: np.ndarray, folder: Path) -> Any:
    """Features first: the names of the dims count."""
    return xr.DataArray(np.ascontiguousarray(x.T), dims=("feature", "sample"))


def lazy_data_array(x: np.ndarray, folder: Path) -> Any:
    return xr.DataArray(dask_array(x, folder), dims=("sample", "feature"))


KINDS = (plain, memory_map, dask_array, zarr_array, data_array, lazy_data_array)


def prepared(name: str, kind: Callable[..., Any], folder: Path) -> Callable[..., xr.Dataset]:
    """Sweep of a case with its rows, and those of its test sets, held by something."""
    options = dict(CASES[name])
    x, confounders, labels = options.pop("data")
    x = x.astype(options.pop("dtype", np.float64))
    sets = {}
    for number, (title, (rows, true)) in enumerate(options.pop("test_sets", {}).items()):
        (folder / str(number)).mkdir()
        sets[title] = kind(rows, folder / str(number)), true
    return functools.partial(
        downstream.probe_sweep_over_test_sets, kind(x, folder), confounders, labels,
        test_sets=sets, **options,
    )  # fmt: skip


def kind_of(name: str, *, of: Any = KINDS, ahead: int = 0) -> Any:
    """Each case another one."""
    return of[(list(CASES).index(name) + ahead) % len(of)]


@pytest.fixture(autouse=True)
def scratch(tmp_path: Path) -> Iterator[Path]:
    folder = tmp_path / "scratch"
    with set_options(scratch=str(folder), quiet=True):
        yield folder
    assert not folder.exists() or list(folder.iterdir()) == [], "nothing is left behind"


# ---- threads ---------------------------------------------------------------------------------


def test_cases__are_of_every_sort() -> None:
    assert len(CASES) >= 12
    for option in ("validation_fraction", "rows_per_slide", "test_sets", "arrange_slides", "dtype"):
        assert 0 < sum(option in case for case in CASES.values()) < len(CASES), option
    widths = [{most for _, most in case["schedule"]} for case in CASES.values()]
    assert sum(len(width) > 1 for width in widths) >= 2


# A warning would fail these: probes that do not converge are no news.
@pytest.mark.parametrize("name", first(4, CASES))
def test_sweep__equals_the_reference(name: str, tmp_path: Path) -> None:
    assert_equal(prepared(name, kind_of(name), tmp_path)(threads=1), name)


@pytest.mark.parametrize("name", first(6, CASES))
def test_sweep__on_three_threads(name: str, tmp_path: Path) -> None:
    assert_equal(prepared(name, kind_of(name, ahead=3), tmp_path)(threads=3), name)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("name", ["custom", "linear_float32"])
def test_sweep__whatever_holds_the_rows(name: str, kind: Callable, tmp_path: Path) -> None:
    assert_equal(prepared(name, kind, tmp_path)(threads=2), name)


def test_probe_sweep__is_the_matrix_of_the_held_out_rows(tmp_path: Path) -> None:
    name = "camelyon_slides"
    sweep = prepared(name, zarr_array, tmp_path)
    del sweep.keywords["test_sets"]
    found = downstream.probe_sweep(*sweep.args, **sweep.keywords, threads=1)
    assert found.name == "in_domain"
    assert np.abs(np.asarray(found) - expected(name)["in_domain"]).max() == 0.0
    reference = pytest.importorskip("croma.downstream")
    x, *codes = CASES[name]["data"]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        alone = reference.probe_sweep(x, *codes, **sweep.keywords)
    assert np.abs(found.values - alone).max() == 0.0


def test_sweep__test_rows_of_many_tasks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(layout, "_SPAN", BLOCK_ROWS)
    spans: list[int] = []

    def score_span(*args: Any) -> int:
        spans.append(args[1])
        return job.score_span(*args)

    monkeypatch.setattr(run, "score_span", score_span)
    assert_equal(prepared("long_test_sets", plain, tmp_path)(threads=3), "long_test_sets")
    assert sorted(spans) == [0, 1, 1, 1, 1, 2]


# ---- memory ----------------------------------------------------------------------------------


class Enough(Exception):
    """Thrown where a test has seen what it wanted to see."""


def enough(*args: Any, **how: Any) -> None:
    raise Enough


def layouts(patch: pytest.MonkeyPatch) -> list[layout.SweepLayout]:
    """Collect how sweeps are laid out from here on."""
    found: list[layout.SweepLayout] = []

    def lay_out(*args: Any, **how: Any) -> layout.SweepLayout:
        found.append(layout.lay_out_sweep(*args, **how))
        return found[-1]

    patch.setattr(opened, "lay_out_sweep", lay_out)
    return found


def least_of(sweep: Callable, patch: pytest.MonkeyPatch, **how: Any) -> int:
    """Most memory in which the rows of a replicate are not held."""
    laid_out = layouts(patch)
    with patch.context() as stopped:
        stopped.setattr(opened, "open_source", enough)
        with pytest.raises(Enough):
            sweep(**how)
    (ample,) = laid_out
    assert ample.most > 0
    return ample.peak - 1


@pytest.mark.parametrize("name", first(6, CASES))
def test_sweep__with_little_memory(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each probe reads its own rows where those of a replicate do not fit beside it."""
    sweep = prepared(name, kind_of(name, of=(dask_array, zarr_array)), tmp_path)
    threads = kind_of(name, of=(3, 3, 1, 1))
    memory = least_of(sweep, monkeypatch, threads=threads)
    laid_out = layouts(monkeypatch)
    assert_equal(sweep(threads=threads, memory=memory), name)
    (little,) = laid_out
    assert little.most == 0
    assert little.peak <= memory


def test_sweep__rows_in_memory_are_not_held_twice(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    laid_out = layouts(monkeypatch)
    prepared("whole_numbers", plain, tmp_path)(threads=2)
    assert [found.most for found in laid_out] == [0]


# ---- processes -------------------------------------------------------------------------------


@pytest.mark.cluster
@pytest.mark.parametrize("name", first(4, CASES))
def test_sweep__on_two_processes(
    name: str, tmp_path: Path, cluster_client: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    laid_out = layouts(monkeypatch)
    sweep = prepared(name, kind_of(name, ahead=1), tmp_path)
    assert_equal(sweep(client=cluster_client), name)
    assert laid_out[0].most > 0, "arrays in memory go to scratch, and are read from there"


@pytest.mark.cluster
@pytest.mark.parametrize("name", ["camelyon_slides", "custom"])
def test_sweep__on_two_processes_with_little_memory(
    name: str, tmp_path: Path, cluster_client: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    sweep = prepared(name, zarr_array, tmp_path)
    with cluster_client.as_current():
        memory = least_of(sweep, monkeypatch)
        laid_out = layouts(monkeypatch)
        assert_equal(sweep(memory=memory), name)
    assert laid_out[0].most == 0
