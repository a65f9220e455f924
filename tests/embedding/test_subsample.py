"""Stratified subsample against the function of scfoundry's scorer."""

from __future__ import annotations

import ast
import importlib.util
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from croma_dask.embedding.subsample import stratified_subsample, subsample_note

Reference = Callable[..., tuple[np.ndarray, str]]


class _Numpy(SimpleNamespace):
    """numpy, but equal values stay in their order: how its default sort leaves them is not said."""

    def __getattr__(self, name: str) -> Any:
        return getattr(np, name)

    @staticmethod
    def argsort(values: np.ndarray) -> np.ndarray:
        return np.argsort(values, kind="stable")


def load(numpy: Any) -> Reference:
    """The one function: importing its module would bring jax, and silence warnings for good."""
    spec = importlib.util.find_spec("scfoundry")
    assert spec is not None
    assert spec.submodule_search_locations is not None
    folder = Path(spec.submodule_search_locations[0])
    tree = ast.parse((folder / "pipeline/bin/benchmark/embedding_metrics.py").read_text())
    name = "stratified_subsample_indices"
    (found,) = (f for f in tree.body if isinstance(f, ast.FunctionDef) and f.name == name)
    future = ast.ImportFrom("__future__", [ast.alias("annotations")], 0)
    module = ast.fix_missing_locations(ast.Module([future, found], []))
    names = {"np": numpy, "pd": pd}
    exec(compile(module, name, "exec"), names)  # scfoundry's, as it was installed
    return names[name]


@pytest.fixture(scope="module")
def reference() -> Reference:
    return load(_Numpy())


tables = st.integers(1, 9).flatmap(
    lambda labels: st.integers(1, 9).flatmap(
        lambda batches: st.tuples(
            st.lists(
                st.tuples(st.integers(0, labels - 1), st.integers(0, batches - 1)),
                min_size=1,
                max_size=150,
            ),
            st.integers(-1, 160),
        )
    )
)


@given(tables)
def test_stratified_subsample__equals_the_reference(
    reference: Reference, table: tuple[list[tuple[int, int]], int]
) -> None:
    pairs, most = table
    label, batch = np.array(pairs, np.int32).T
    rows, note = reference(label.astype(str), batch.astype(str), most, 17)
    found = stratified_subsample(label, batch, most)
    assert found.dtype == np.int64
    assert found.tolist() == rows.tolist()
    assert subsample_note(label.size, found.size) == note


@pytest.mark.parametrize("seed", range(20))
def test_stratified_subsample__equals_the_reference_on_uneven_strata(
    reference: Reference, seed: int
) -> None:
    rng = np.random.default_rng(seed)
    n = int(rng.integers(500, 3000))
    label = (rng.pareto(rng.uniform(0.3, 2.0), n) * 2).clip(0, 40).astype(np.int32)
    batch = rng.choice(12, n, p=rng.dirichlet(np.full(12, 0.4))).astype(np.int32)
    for most in rng.integers(1, n, 5):
        rows, _ = reference(label.astype(str), batch.astype(str), int(most), seed)
        found = stratified_subsample(label, batch, int(most), seed=seed)
        assert found.tolist() == rows.tolist()


def test_stratified_subsample__needs_no_patch_where_no_fractions_are_equal() -> None:
    """Then the order of the reference's sort is the only one."""
    label = np.repeat(np.arange(4, dtype=np.int32), [37, 61, 83, 119])
    rng = np.random.default_rng(0)
    rng.shuffle(label)
    batch = np.zeros(300, np.int32)
    fractions = np.array([37, 61, 83, 119]) * 100 / 300 % 1
    assert np.unique(fractions).size == 4
    rows, _ = load(np)(label.astype(str), batch.astype(str), 100, 17)
    assert stratified_subsample(label, batch, 100).tolist() == rows.tolist()


@given(st.integers(1, 60), st.integers(1, 40), st.integers(1, 200), st.integers(0, 99))
def test_stratified_subsample__takes_as_many_as_it_may(
    n_labels: int, n_batches: int, most: int, seed: int
) -> None:
    rng = np.random.default_rng(seed)
    label = rng.integers(0, n_labels, 200).astype(np.int32)
    batch = rng.integers(0, n_batches, 200).astype(np.int32)
    found = stratified_subsample(label, batch, most)
    assert found.size == most
    assert (np.diff(found) > 0).all()


def test_stratified_subsample__strata_are_drawn_in_the_order_of_their_first_cells() -> None:
    label = np.repeat(np.array([0, 1], np.int32), [50, 50])
    batch = np.zeros(100, np.int32)
    first = stratified_subsample(label, batch, 20)
    # The same cells under other codes: the row order counts, and not the names.
    assert stratified_subsample(1 - label, batch, 20).tolist() == first.tolist()
    mirrored = stratified_subsample(label[::-1].copy(), batch, 20)
    assert mirrored.tolist() == first.tolist()


def test_stratified_subsample__what_is_left_over_goes_to_one_stratum_before_the_next() -> None:
    """Shares of 1.6, 1.7 and 1.7 leave two over: both are of the first of the largest fractions."""
    label = np.repeat(np.arange(3, dtype=np.int32), [16, 17, 17])
    found = stratified_subsample(label, np.zeros(50, np.int32), 5)
    assert np.bincount(label[found]).tolist() == [1, 3, 1]


@pytest.mark.parametrize("most", [-1, 0, 5, 6])
def test_stratified_subsample__takes_all_where_nothing_is_to_be_left_out(most: int) -> None:
    codes = np.array([0, 1, 0, 1, 0], np.int32)
    assert stratified_subsample(codes, codes, most).tolist() == [0, 1, 2, 3, 4]
    assert subsample_note(5, 5) == ""
