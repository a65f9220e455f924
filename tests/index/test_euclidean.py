"""Euclidean lists, of any label and of the same one: exact, whatever the engine and the rows."""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Callable
from pathlib import Path
from typing import Any

import dask.array as da
import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from croma_dask import graph
from croma_dask.cohort.align import Embedding
from croma_dask.cohort.design import Scope
from croma_dask.errors import SchemaError
from croma_dask.index import streamed
from croma_dask.index.direct import search_resident
from croma_dask.index.profile import profile_rows
from croma_dask.index.small import search_small
from croma_dask.index.source import ArraySource, Codes
from croma_dask.index.spec import ListSpec
from croma_dask.kernels import dots_numpy
from croma_dask.options import Options
from croma_dask.search import nearest_rows, search
from tests.helpers.engines import ENGINES, engine
from tests.helpers.marks import first

N, K, SAME = 420, 9, 6

Rows = Callable[[np.random.Generator], Any]


def _plain(rng: np.random.Generator) -> Any:
    return rng.normal(size=(N, 20))


def _lattice(rng: np.random.Generator) -> Any:
    return rng.integers(0, 4, (N, 3)).astype(float)


def _outlier(rng: np.random.Generator) -> Any:
    x = rng.normal(size=(N, 20))
    x[17] = 1e9
    return x


def _shell(rng: np.random.Generator) -> Any:
    """Rows about the first one, at distances that differ in the last digits or not at all."""
    x = _plain(rng)
    x /= np.linalg.norm(x, axis=1, keepdims=True)
    x *= 1.0 + np.ldexp(rng.integers(-4, 5, (N, 1)).astype(float), rng.integers(-53, -24, (N, 1)))
    x[0] = 0.0
    return x


def _clumps(rng: np.random.Generator) -> Any:
    """Duplicates but for the last digits, which float32 does not hold."""
    return rng.normal(size=(7, 5))[rng.integers(0, 7, N)] + 1e-14 * rng.normal(size=(N, 5))


KINDS: dict[str, Rows] = {
    "float64": _plain,
    "float32": lambda rng: _plain(rng).astype(np.float32),
    "float16": lambda rng: _plain(rng).astype(np.float16),
    "big-endian": lambda rng: _plain(rng).astype(">f4"),
    "columns first": lambda rng: np.asfortranarray(_plain(rng)),
    "one feature": lambda rng: rng.normal(size=(N, 1)),
    "wide": lambda rng: rng.normal(size=(N, 200)).astype(np.float32),
    "about 1e8": lambda rng: 1e8 + _plain(rng),
    "about 1e6 in float32": lambda rng: (1e6 + _plain(rng)).astype(np.float32),
    "tiny": lambda rng: 1e-25 * _plain(rng),
    "subnormal float32": lambda rng: (1e-42 * _plain(rng)).astype(np.float32),
    "squares vanish": lambda rng: 3e-162 * rng.normal(size=(N, 2)),
    "squares fade": lambda rng: 3e-160 * rng.normal(size=(N, 2)),
    "subnormal": lambda rng: 5e-324 * rng.integers(0, 1000, (N, 2)),
    "huge": lambda rng: 1e120 * _plain(rng),
    "huge float32": lambda rng: (1e37 * _plain(rng)).astype(np.float32),
    "ties": _lattice,
    "whole numbers": lambda rng: _lattice(rng).astype(np.uint8),
    "signed bytes": lambda rng: rng.integers(-128, 128, (N, 3)).astype(np.int8),
    "outlier": _outlier,
    "shell": _shell,
    "clumps": _clumps,
    "line": lambda rng: np.arange(N)[:, None] * np.array([[1.0, 2.0, 0.5]]) + 7.0,
    "features of all sizes": lambda rng: np.ldexp(_plain(rng), rng.integers(-40, 40, 20)),
    "zero rows": lambda rng: np.where(np.arange(N)[:, None] % 50 == 0, 0.0, _plain(rng)),
    "identical": lambda rng: np.ones((N, 4)),
}

TIED = {"ties", "identical", "clumps", "squares vanish", "outlier"}
"""Rows that float32 cannot order: they need a second look."""


def _labels() -> Any:
    return np.random.default_rng(3).integers(0, 5, N).astype(np.int32)


def _search(x: Any, tmp_path: Path, distance: Any = "euclidean", **spec: Any) -> tuple[Any, ...]:
    """Lists of all rows, and how many needed a second look."""
    label = _labels()
    nothing = np.zeros(N, np.int32)
    scope = Scope("dataset", None, label, nothing, np.arange(N, dtype=np.int32), 5)
    with contextlib.ExitStack() as keep:
        options = Options(threads=2, scratch=str(tmp_path), quiet=True)
        found = search(
            Embedding(x, None), [scope], ListSpec(**spec), options, keep=keep, distance=distance
        )
        blocks = list(found.neighbors[0].blocks())
    return (
        np.concatenate([block.index for block in blocks]),
        np.concatenate([block.distance for block in blocks]),
        found.neighbors[0].n_second_look,
    )


def _distances(x: Any) -> Any:
    """All distances in the order of summation that counts."""
    rows = x.astype(np.float32 if x.dtype.str[1:] in ("f2", "f4") else np.float64)
    n = rows.shape[0]
    query, other = (a.ravel().astype(np.int32) for a in np.indices((n, n)))
    d = np.empty(n * n)
    dots_numpy.pair_euclidean(rows, rows, query, other, d)
    return d.reshape(n, n)


def _nearest(d: Any, allowed: Any, k: int) -> tuple[Any, Any]:
    """Nearest k of those that are allowed by (distance, row); -1 and NaN behind the last."""
    d = np.where(allowed, d, np.inf)
    order = np.lexsort((np.broadcast_to(np.arange(d.shape[0]), d.shape), d), axis=-1)[:, :k]
    far = np.take_along_axis(d, order, axis=1)
    return np.where(np.isinf(far), -1, order), np.where(np.isinf(far), np.nan, far)


OTHERS = ~np.eye(N, dtype=bool)


def _same() -> Any:
    label = _labels()
    return OTHERS & (label[:, None] == label[None, :])


def _check(found: tuple[Any, ...], d: Any, k: int, m: int, name: str) -> None:
    """Compare lists with those that follow from all distances."""
    parts = [_nearest(d, OTHERS, k), _nearest(d, _same(), m)]
    for at, what in enumerate(("rows", "distances")):
        expected = np.concatenate([part[at] for part in parts], axis=1)
        np.testing.assert_array_equal(found[at], expected, err_msg=f"{what} by {name}")


@pytest.mark.parametrize("kind", first(6, KINDS))
def test_search__euclidean_lists_are_the_brute_force_ones(kind: str, tmp_path: Path) -> None:
    x = KINDS[kind](np.random.default_rng(5))
    d = _distances(x)
    for name in ENGINES:
        with engine(name, range_rows=100):
            found = _search(x, tmp_path, n_global=K, n_typed=SAME, same_label=True)
        _check(found, d, K, SAME, name)
        assert found[2] > 0 or kind not in TIED


# ---- lists of the same label -----------------------------------------------------------------


@pytest.mark.parametrize("name", ENGINES)
def test_search__same_label_lists_alone(name: str, tmp_path: Path) -> None:
    for x in (_plain(np.random.default_rng(5)), _lattice(np.random.default_rng(5))):
        with engine(name, range_rows=100):
            found = _search(x, tmp_path, n_global=0, n_typed=SAME, same_label=True)
        _check(found, _distances(x), 0, SAME, name)


@pytest.mark.parametrize("name", ENGINES)
@pytest.mark.parametrize("k", [2, 300])
def test_search__lists_longer_than_a_label_end_with_nobody(
    k: int, name: str, tmp_path: Path
) -> None:
    x = _lattice(np.random.default_rng(5)) + 1e-3 * _plain(np.random.default_rng(6))[:, :3]
    with engine(name, range_rows=100):
        found = _search(x, tmp_path, n_global=k, n_typed=150, same_label=True)
    _check(found, _distances(x), k, 150, name)
    size = np.bincount(_labels())[_labels()]
    assert ((found[0][:, k:] >= 0).sum(axis=1) == np.minimum(size - 1, 150)).all()


@pytest.mark.parametrize("name", ["small", "direct", "many ranges"])
@pytest.mark.parametrize("lattice", [False, True])
def test_search__same_label_lists_are_of_any_confounder_but_no_row_of_the_group(
    lattice: bool, name: str
) -> None:
    """Whatever codes the confounders have, and labels of one row and of one group among them."""
    rng = np.random.default_rng(2)
    x = (_lattice if lattice else _plain)(rng)
    label = rng.integers(0, 6, N).astype(np.int32)
    label[5], label[[7, 8]] = 6, 7
    confounder = rng.integers(0, 4, N).astype(np.int32)
    group = rng.integers(0, 90, N).astype(np.int32)
    group[[7, 8]] = 90
    found, _ = _lists(x, Codes(label, confounder, group), ListSpec(4, 30, same_label=True), name)
    others = group[:, None] != group[None, :]
    same = others & (label[:, None] == label[None, :])
    d = _distances(x)
    for at, (mask, k) in enumerate(((others, 4), (same, 30))):
        index, far = _nearest(d, mask, k)
        part = slice(4 * at, 4 * at + k)
        np.testing.assert_array_equal(found.index[:, part], index)
        np.testing.assert_array_equal(found.distance[:, part], far)
    assert (found.index[[5, 7, 8], 4:] == -1).all()


def _lists(x: Any, codes: Codes, spec: ListSpec, name: str) -> tuple[Any, int]:
    source = ArraySource(x)
    if name == "small":
        return search_small(source, codes, spec, "euclidean")
    frame = profile_rows(source, 0, len(codes), digest=False, distance="euclidean").frame(
        "euclidean"
    )
    return search_resident(source, codes, spec, frame, n_ranges=3 if name == "many ranges" else 1)


# ---- anything at all -------------------------------------------------------------------------


def _anything(rng: np.random.Generator) -> Any:
    """A few rows of any make."""
    n, d = int(rng.integers(2, 90)), int(rng.choice([1, 1, 2, 3, 5, 17, 64, 65]))
    z = rng.normal(size=(n, d))
    unit = z / np.linalg.norm(z, axis=1, keepdims=True)
    base = rng.normal(size=(3, d))[rng.integers(0, 3, n)]
    x = [
        lambda: z,
        lambda: rng.integers(0, 3, (n, d)).astype(float),
        lambda: z + 10.0 ** rng.uniform(-3, 9),
        lambda: z * 10.0 ** rng.uniform(-170, 140),
        lambda: z * 10.0 ** rng.uniform(-20, 20, (n, 1)),
        lambda: base + z * 10.0 ** rng.uniform(-17, -1),
        lambda: unit * (1.0 + rng.normal(size=(n, 1)) * 10.0 ** rng.uniform(-16, -5)),
        lambda: 100.0 + unit * (1.0 + rng.integers(-3, 4, (n, 1)) * 2.0 ** -rng.integers(20, 53)),
        lambda: np.round(z * 4) / 4 * 2.0 ** rng.integers(-60, 60),
        lambda: z[:1] + np.ldexp(rng.integers(-2, 3, (n, d)).astype(float), -50),
        lambda: np.where(rng.random((n, 1)) < 0.3, 0.0, z),
    ][rng.integers(0, 11)]()
    dtype = rng.choice(["f8", "f8", "f4", "i1"])
    if dtype == "i1":
        return np.clip(50 * x, -128, 127).astype(np.int8)
    return x if dtype == "f8" else np.clip(x, -1e37, 1e37).astype(np.float32)


@example(seed=0)
@given(seed=st.integers(0, 1 << 32))
def test_search__of_anything_is_the_brute_force_one(seed: int) -> None:
    rng = np.random.default_rng(seed)
    x = _anything(rng)
    n = x.shape[0]
    label, confounder, group = (
        rng.integers(0, int(rng.choice([1, 3, n])), n).astype(np.int32) for _ in range(3)
    )
    if rng.random() < 0.5:
        group = np.arange(n, dtype=np.int32)
    k, m = (int(rng.choice([0, 1, 3, 9, 40, 300])) for _ in range(2))
    spec = ListSpec(k, m, same_label=bool(rng.random() < 0.7)).clipped(n)
    d = _distances(x)
    others = group[:, None] != group[None, :]
    alike = label[:, None] == label[None, :]
    beside = confounder[:, None] == confounder[None, :]
    so = others & alike & (spec.same_label | ~beside)
    masks = zip((others, so, others & ~alike & beside), spec.deliver, strict=True)
    parts = [_nearest(d, mask, int(wanted)) for mask, wanted in masks if wanted]
    if not parts:
        return
    for name in ("small", "direct", "many ranges"):
        found, _ = _lists(x, Codes(label, confounder, group), spec, name)
        np.testing.assert_array_equal(found.index, np.concatenate([p[0] for p in parts], axis=1))
        np.testing.assert_array_equal(found.distance, np.concatenate([p[1] for p in parts], axis=1))


# ---- runs ------------------------------------------------------------------------------------


class Cut(Exception):
    """What a test throws into a run."""


@pytest.mark.parametrize("same_label", [False, True])
def test_a_euclidean_run_cut_half_way__resumes_with_the_same_bits_and_no_other_one(
    same_label: bool, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Lists of cosine distances of the same rows are another run's, and those of other lengths."""
    x = _lattice(np.random.default_rng(5))
    calls = iter(range(1000))

    def cut(*args: Any) -> int:
        if next(calls) >= 5:
            raise Cut
        return streamed.meet_blocks(*args)

    spec = {"n_global": 0 if same_label else K, "n_typed": SAME, "same_label": True}
    with engine("streamed", range_rows=100), caplog.at_level(logging.WARNING, "croma_dask"):
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(graph, "meet_blocks", cut)
            with pytest.raises(Cut):
                _search(x, tmp_path, **spec)
        caplog.clear()
        _search(1.0 + x, tmp_path, distance="cosine", **spec)
        _search(x, tmp_path, **(spec | {"n_typed": SAME + 1}))
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr("croma_dask.search.warn_zero_rows", lambda _: None)
            _search(x, tmp_path, distance="cosine", **spec)
        assert "resuming" not in caplog.text
        found = _search(x, tmp_path, **spec)
    assert "resuming" in caplog.text
    _check(found, _distances(x), spec["n_global"], SAME, "streamed")


@pytest.mark.parametrize("name", ENGINES)
def test_search__of_rows_that_dask_makes(name: str, tmp_path: Path) -> None:
    x = 5.0 + _plain(np.random.default_rng(5))
    with engine(name, range_rows=100):
        found = _search(
            da.from_array(x, chunks=(37, 20)), tmp_path, n_global=K, n_typed=SAME, same_label=True
        )
    _check(found, _distances(x), K, SAME, name)


@pytest.mark.parametrize("name", ENGINES)
def test_search__euclidean_distances_that_overflow_are_refused(name: str, tmp_path: Path) -> None:
    with engine(name), pytest.raises(SchemaError, match="longer than 1e150"):
        _search(1e160 * _plain(np.random.default_rng(0)), tmp_path, n_global=3, n_typed=0)


@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_search__rows_that_are_no_numbers_are_refused(value: float, tmp_path: Path) -> None:
    x = _plain(np.random.default_rng(0))
    x[5, 3] = value
    with pytest.raises(SchemaError, match="row 5"):
        _search(x, tmp_path, n_global=3, n_typed=0)


@pytest.mark.parametrize("compiled", [False, True])
def test_nearest_rows__finds_the_other_rows(
    compiled: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("croma_dask.search.is_small", lambda *_, **__: not compiled)
    x = _plain(np.random.default_rng(5))
    near, far = _nearest(_distances(x), OTHERS, 4)
    index, distance = nearest_rows(x, 4, n_threads=2)
    np.testing.assert_array_equal(index, near)
    np.testing.assert_array_equal(distance, far)
    assert nearest_rows(x[:3], 10)[0].shape == (3, 2)
    assert nearest_rows(x[:1], 10)[0].shape == (1, 0)
