"""What an embedding may be, and what is refused, with a message that helps."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any

import dask.array as da
import numpy as np
import pandas as pd
import pytest
import scipy.sparse
import xarray as xr
import zarr

import croma_dask as cd
from tests.helpers.cohorts import Cohort, features, manifest
from tests.helpers.compare import assert_same_bits
from tests.helpers.engines import ENGINES, engine

N, D = 60, 6


@pytest.fixture
def cohort(rng: np.random.Generator) -> Cohort:
    label, confounder = rng.permutation(np.arange(N) % 2), rng.permutation(np.arange(N) % 2)
    x = features(rng, label, confounder, D, biology=0.2, shortcut=0.2)
    return Cohort(x, manifest(label, confounder))


def score(x: Any, frame: Any) -> xr.Dataset:
    return cd.MaRI.compute(x, frame, confounder_column="center", k_candidates=[20])


def both(x: Any, frame: Any) -> list[xr.Dataset]:
    return [score(x, frame), cd.CRoMa.compute(x, frame, confounder_column="center", m=3)]


def assert_same_values(found: list[xr.Dataset], expected: list[xr.Dataset], atol: float) -> None:
    for a, b in zip(found, expected, strict=True):
        np.testing.assert_allclose(a.sample_values, b.sample_values, rtol=0, atol=atol)
        np.testing.assert_allclose(a.value, b.value, rtol=0, atol=atol)
        np.testing.assert_array_equal(a.undefined_type, b.undefined_type)


# ---- dtypes and scales -----------------------------------------------------------------------


@pytest.mark.parametrize("name", ENGINES)
@pytest.mark.parametrize("factor", [1.0, 100.0, 1e3])
def test_float16__scores_as_its_values_do_in_float64(
    name: str, factor: float, cohort: Cohort
) -> None:
    """Norms above 256 overflow float16 when they are squared in it."""
    half = (cohort.x * factor).astype(np.float16)
    assert np.isfinite(half).all()
    with engine(name, range_rows=25):
        assert_same_values(
            both(half, cohort.frame), both(half.astype(np.float64), cohort.frame), 1e-9
        )


@pytest.mark.parametrize("name", ENGINES)
@pytest.mark.parametrize("factor", [1e-30, 1e-25, 1e-20, 1e20, 1e30])
def test_float32_of_any_scale__scores_as_in_float64(
    name: str, factor: float, cohort: Cohort
) -> None:
    small = (cohort.x * factor).astype(np.float32)
    assert np.isfinite(small).all()
    with engine(name, range_rows=25):
        found = both(small, cohort.frame)
        assert_same_values(found, both(small.astype(np.float64), cohort.frame), 1e-9)
    assert_same_values(found, both(cohort.x, cohort.frame), 1e-4)


@pytest.mark.parametrize("name", ENGINES)
def test_rows_of_very_different_scales__score_alike(
    name: str, cohort: Cohort, rng: np.random.Generator
) -> None:
    exponent = rng.uniform(-250, 250, (N, 1))
    with engine(name, range_rows=25):
        found = both(cohort.x * 10.0**exponent, cohort.frame)
        assert_same_values(found, both(cohort.x, cohort.frame), 1e-9)
        # a power of two changes no digit, so no bit
        doubled = both(cohort.x * 2.0 ** np.round(exponent), cohort.frame)
    for a, b in zip(doubled, both(cohort.x, cohort.frame), strict=True):
        assert a.sample_values.values.tobytes() == b.sample_values.values.tobytes()


def test_the_smallest_numbers_there_are__still_count(cohort: Cohort) -> None:
    tiny = np.round(cohort.x * 8) * np.float64(5e-324)
    big = np.round(cohort.x * 8)
    assert_same_values(both(tiny, cohort.frame), both(big, cohort.frame), 0.0)
    single = big.astype(np.float32) * np.float32(1e-45)
    assert_same_values(both(single, cohort.frame), both(big, cohort.frame), 1e-9)


@pytest.mark.parametrize("name", ENGINES)
@pytest.mark.parametrize("kind", ["F", ">f8", "strided", "readonly", "reversed", "longdouble"])
def test_memory_layout__does_not_matter(name: str, kind: str, cohort: Cohort) -> None:
    x = {
        "F": lambda: np.asfortranarray(cohort.x),
        ">f8": lambda: cohort.x.astype(">f8"),
        "strided": lambda: np.repeat(cohort.x, 2, axis=1)[:, ::2],
        "readonly": lambda: np.frombuffer(cohort.x.tobytes()).reshape(N, D),
        "reversed": lambda: cohort.x[::-1].copy()[::-1],
        "longdouble": lambda: cohort.x.astype(np.longdouble),
    }[kind]()
    with engine(name, range_rows=25):
        found, expected = both(x, cohort.frame), both(cohort.x, cohort.frame)
    for a, b in zip(found, expected, strict=True):
        if kind == "longdouble":
            for attr in ("dtype", "embedding_fingerprint"):
                a.attrs[attr] = b.attrs[attr]
        assert_same_bits(a, b)


@pytest.mark.parametrize("dtype", ["i1", "u1", ">i4", "i8", "u8", "?"])
def test_whole_numbers__score_as_floats(dtype: str, cohort: Cohort) -> None:
    x = (cohort.x > 0 if dtype == "?" else np.abs(np.round(cohort.x * 4))).astype(dtype)
    x[~x.any(axis=1), 0] = 1
    assert_same_values(both(x, cohort.frame), both(x.astype(np.float64), cohort.frame), 0.0)


@pytest.mark.parametrize(
    ("make", "match"),
    [
        (lambda x: x.astype(object), r"dtype object.*astype\(float\)"),
        (lambda x: x + 1j, "dtype complex128"),
        (lambda x: x.astype("U8"), "dtype <U8"),
        (lambda x: x.astype("f2").view("V2"), r"dtype \|?V2"),
        (lambda x: x.astype("M8[s]"), "dtype datetime64"),
    ],
    ids=["object", "complex", "text", "void", "datetime"],
)
def test_no_real_numbers__is_a_short_error(make: Any, match: str, cohort: Cohort) -> None:
    with pytest.raises(cd.SchemaError, match=match) as caught:
        score(make(cohort.x), cohort.frame)
    assert len(str(caught.value)) < 200


def test_structured_arrays__say_their_shape(cohort: Cohort) -> None:
    """One field a component is for files, which ingest takes apart."""
    names = [(f"PC{i}", "f8") for i in range(D)]
    structured = np.array([tuple(row) for row in cohort.x], dtype=names)
    with pytest.raises(cd.SchemaError, match=r"shape \(60,\)"):
        score(structured, cohort.frame)


@pytest.mark.parametrize(
    ("shape", "match"),
    [
        ((N * D,), r"shape \(360,\)"),
        ((N, 2, D // 2), r"shape \(60, 2, 3\)"),
        ((1, N, D), r"shape \(1, 60, 6\).*first axis.*\(60, 6\)"),
        ((), r"shape \(\)"),
    ],
)
def test_wrong_shapes__are_named(shape: tuple[int, ...], match: str, cohort: Cohort) -> None:
    x = cohort.x.reshape(shape) if shape else np.float64(1.0)
    with pytest.raises(cd.SchemaError, match=match):
        score(x, cohort.frame)


def test_no_features__is_refused(cohort: Cohort) -> None:
    with pytest.raises(cd.SchemaError, match="without features"):
        score(cohort.x[:, :0], cohort.frame)


def test_one_feature__scores(cohort: Cohort) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        found = score(cohort.x[:, :1], cohort.frame)
    assert 0.0 <= float(found.value) <= 1.0


# ---- values ----------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ENGINES)
@pytest.mark.parametrize("dtype", ["f2", "f4", "f8"])
@pytest.mark.parametrize(
    ("value", "what"), [(np.nan, "NaN"), (np.inf, "inf"), (-np.inf, "inf"), (None, "NaN or inf")]
)
def test_no_number__is_refused_with_the_rows(
    name: str, dtype: str, value: Any, what: str, cohort: Cohort
) -> None:
    x = cohort.x.astype(dtype)
    for row in (5, 7, 20, 21, 33, 34, 59):
        x[row, row % D] = np.nan if value is None else value
    if value is None:
        x[7, 0] = np.inf
    match = rf"has {what} in rows 5, 7, 20, 21, 33 and 2 more \(7 of 60\)"
    with engine(name, range_rows=25), pytest.raises(cd.SchemaError, match=match):
        score(x, cohort.frame)
    with pytest.raises(ValueError, match="rows 5, 7"):
        cd.CRoMa.compute(x, cohort.frame, confounder_column="center", m=1)
    with pytest.raises(ValueError, match="rows 5, 7"):
        cd.MaRI.recommend_tau(x, cohort.frame, confounder_column="center", k=2)


def test_one_nan_in_many_rows__is_found_before_the_search(rng: np.random.Generator) -> None:
    n = 30_000
    x = rng.normal(size=(n, 3)).astype(np.float32)
    x[17_171, 2] = np.nan
    frame = manifest(np.arange(n) % 2, np.arange(n) // 2 % 2)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("croma_dask.search._search_scope", None)  # never reached
        with pytest.raises(cd.SchemaError, match="row 17171 "):
            score(x, frame)


@pytest.mark.parametrize("name", ENGINES)
@pytest.mark.parametrize(
    "collapse",
    [
        lambda x: np.ones_like(x),
        lambda x: np.zeros_like(x),
        lambda x: np.tile(x[:1], (N, 1)),
        lambda x: x[:1] * np.arange(1, N + 1)[:, None],
    ],
    ids=["ones", "zeros", "one row", "one direction"],
)
@pytest.mark.parametrize("dtype", ["f4", "f8"])
def test_a_collapsed_embedding__is_refused(
    name: str, collapse: Any, dtype: str, cohort: Cohort
) -> None:
    x = collapse(cohort.x).astype(dtype)
    with engine(name, range_rows=25), pytest.raises(ValueError, match="all 60 rows.*identical"):
        score(x, cohort.frame)
    with pytest.raises(ValueError, match="all 60 rows.*identical"):
        cd.CRoMa.compute(x, cohort.frame, confounder_column="center", m=1)


@pytest.mark.parametrize("n_zero", [1, 20])
def test_zero_rows__warn_with_count_and_rows(n_zero: int, cohort: Cohort) -> None:
    x = cohort.x.copy()
    x[:n_zero] = 0.0
    x[0] = -0.0
    with pytest.warns(cd.InputWarning, match=f"{n_zero} of 60 embedding rows are zero") as caught:
        found = score(x, cohort.frame)
    assert caught[0].filename == __file__
    assert ("rows 0, 1, 2, 3, 4 and 15 more" if n_zero == 20 else "row 0") in str(caught[0].message)
    assert np.isfinite(found.sample_values).all()
    assert found.attrs["n_zero_rows"] == n_zero


def test_duplicated_rows__are_accepted(cohort: Cohort) -> None:
    twice = np.concatenate([cohort.x, cohort.x])
    frame = pd.concat([cohort.frame, cohort.frame])
    frame["sample_id"] = np.arange(2 * N)
    assert np.isfinite(score(twice, frame).sample_values).all()
    frame["group_id"] = np.arange(2 * N)  # the twin is a candidate now
    assert np.isfinite(score(twice, frame).sample_values).all()


def test_forty_identical_rows__have_neighbours_that_are_not_themselves(cohort: Cohort) -> None:
    x = cohort.x.copy()
    x[:40] = x[0]
    frame = cohort.frame.copy()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)
        found = score(x, frame)
        margin = cd.CRoMa.compute(x, frame, confounder_column="center", m=3)
    assert np.isfinite(found.sample_values).all()
    # the nearest of either type coincide with these rows: a margin of 0 / 0
    assert set(margin.undefined_type.values[:40]) == {4}
    assert float(margin.zero_distance_undefined_frac) == pytest.approx(40 / 60)
    with pytest.warns(cd.SupportWarning, match="40 of 60 units.*distance 0"):
        cd.CRoMa.compute(x, frame, confounder_column="center", m=3)


def test_a_constant_column__is_a_feature_like_another(cohort: Cohort) -> None:
    x = np.column_stack([cohort.x, np.full(N, 50.0)])
    assert np.isfinite(score(x, cohort.frame).sample_values).all()


# ---- containers ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "kind",
    [
        "list", "frame", "csr", "csc", "dask", "DataArray", "lazy DataArray", "memmap", "zarr",
        "masked", "torch-like",
    ],
)  # fmt: skip
@pytest.mark.parametrize("name", ENGINES)
def test_containers__give_one_number(name: str, kind: str, cohort: Cohort, tmp_path: Path) -> None:
    x = container(kind, cohort.x, tmp_path)
    with engine(name, range_rows=25):
        assert_same_bits(score(x, cohort.frame), score(cohort.x, cohort.frame))


def container(kind: str, x: np.ndarray, folder: Path) -> Any:
    if kind == "list":
        return x.tolist()
    if kind == "frame":
        return pd.DataFrame(x, columns=[f"PC{i}" for i in range(D)])
    if kind in ("csr", "csc"):
        return getattr(scipy.sparse, f"{kind}_matrix")(x)
    if kind == "dask":
        return da.from_array(x, chunks=(17, 4))
    if kind == "DataArray":
        return xr.DataArray(x, dims=("sample", "feature"))
    if kind == "lazy DataArray":
        return xr.DataArray(da.from_array(x, chunks=(20, 6)), dims=("cell", "component"))
    if kind == "memmap":
        np.save(folder / "x.npy", x)
        return np.load(folder / "x.npy", mmap_mode="r")
    if kind == "zarr":
        stored = zarr.create_array(folder / "x.zarr", shape=x.shape, chunks=(13, 2), dtype=x.dtype)
        stored[:] = x
        return stored
    if kind == "masked":
        return np.ma.masked_array(x)

    class Tensor:
        """What a torch tensor offers."""

        def detach(self) -> Tensor:
            return self

        def cpu(self) -> Tensor:
            return self

        def numpy(self) -> np.ndarray:
            return x

    return Tensor()


def test_masked_values__are_no_numbers(cohort: Cohort) -> None:
    """A masked cell has no value: scoring what lies under the mask would be silent."""
    masked = np.ma.masked_array(cohort.x, mask=np.zeros((N, D), bool))
    masked[3, 2] = np.ma.masked
    with pytest.raises(cd.SchemaError, match="row 3|mask"):
        score(masked, cohort.frame)


def test_a_transposed_dataarray__is_turned_by_its_dims(cohort: Cohort) -> None:
    """`sample` and `feature` are this library's own names; read by position a square one lies."""
    x = xr.DataArray(cohort.x.T, dims=("feature", "sample"))
    assert_same_bits(score(x, cohort.frame), score(cohort.x, cohort.frame))


def test_a_frame_with_text_columns__is_refused(cohort: Cohort) -> None:
    frame = pd.DataFrame(cohort.x).assign(name="a")
    with pytest.raises(cd.SchemaError, match="dtype object"):
        score(frame, cohort.frame)


def test_a_frame_with_nullable_columns__says_what_to_do(cohort: Cohort) -> None:
    with pytest.raises(cd.SchemaError, match=r"astype\(float\)"):
        score(pd.DataFrame(cohort.x).astype("Float64"), cohort.frame)


def test_a_cohort_dataset__brings_its_manifest(cohort: Cohort, tmp_path: Path) -> None:
    path = str(tmp_path / "cohort.zarr")
    cd.write_cohort(path, cohort.x, cohort.frame)
    opened = cd.open_cohort(path)
    expected = score(cohort.x, cohort.frame)
    for form in (opened, opened.load()):
        assert_same_bits(score(form, None), expected)
    with pytest.raises(cd.SchemaError, match="leave `manifest` out"):
        score(opened, cohort.frame)
    with pytest.raises(cd.SchemaError, match="needs a manifest"):
        score(cohort.x, None)
    with pytest.raises(cd.SchemaError, match="no variable 'embedding'"):
        score(xr.Dataset({"x": ("sample", np.arange(3))}), None)


def test_a_cohort_that_was_changed__is_scored_as_it_is_now(
    cohort: Cohort, tmp_path: Path, rng: np.random.Generator
) -> None:
    """An edited column, chosen rows, shuffled rows: never what the store still says."""
    path = str(tmp_path / "cohort.zarr")
    cd.write_cohort(path, cohort.x, cohort.frame)
    opened = cd.open_cohort(path)
    label = cohort.frame["label"].to_numpy()[::-1].copy()
    edited = opened.assign_coords(label=("sample", label))
    assert_same_bits(score(edited, None), score(cohort.x, cohort.frame.assign(label=label)))
    keep = np.sort(rng.choice(N, 45, replace=False))
    part = score(opened.isel(sample=keep), None)
    assert_same_bits(part, score(cohort.x[keep], cohort.frame.iloc[keep]))
    order = rng.permutation(N)
    moved = score(opened.isel(sample=order), None)
    assert_same_bits(moved, score(cohort.x[order], cohort.frame.iloc[order]))
    doubled = opened.assign(embedding=opened.embedding * [[2.0] * (D - 1) + [0.5]])
    scale = np.array([2.0] * (D - 1) + [0.5])
    assert_same_bits(score(doubled, None), score(cohort.x * scale, cohort.frame))


def test_expanded_features__repeat_rows_by_id(cohort: Cohort, rng: np.random.Generator) -> None:
    wide = pd.concat([cohort.frame.iloc[::2].assign(subset="a"), cohort.frame.assign(subset="b")])
    order = rng.permutation(N)
    tiles = cohort.frame.iloc[order][["sample_id"]]
    expanded = cd.expand_features_to_manifest(
        features=cohort.x[order], manifest=wide, embedding_manifest=tiles
    )
    np.testing.assert_array_equal(expanded, np.concatenate([cohort.x[::2], cohort.x]))
    lazy = cd.expand_features_to_manifest(
        features=da.from_array(cohort.x[order], chunks=(7, 6)), manifest=wide,
        embedding_manifest=tiles,
    )  # fmt: skip
    assert isinstance(lazy, da.Array)
    np.testing.assert_array_equal(lazy.compute(), expanded)
    with pytest.raises(cd.SchemaError, match=r"repeats 1 tiles by sample_id: 's0"):
        cd.expand_features_to_manifest(
            features=cohort.x[:3], manifest=wide, embedding_manifest=tiles.iloc[[0, 1, 1]]
        )
    with pytest.raises(cd.SchemaError, match=r"of 90 manifest rows have no tile"):
        cd.expand_features_to_manifest(
            features=cohort.x[order][:50], manifest=wide, embedding_manifest=tiles.iloc[:50]
        )
    with pytest.raises(cd.SchemaError, match="60 rows and embedding_manifest 59"):
        cd.expand_features_to_manifest(
            features=cohort.x, manifest=wide, embedding_manifest=tiles.iloc[:59]
        )


def test_expanded_features__are_keyed_by_path_too_where_both_have_it(cohort: Cohort) -> None:
    tiles = pd.DataFrame({"sample_id": ["a", "a", "b"], "image_path": ["1", "2", "1"]})
    wide = tiles.iloc[[2, 1, 0, 1]]
    found = cd.expand_features_to_manifest(
        features=cohort.x[:3], manifest=wide, embedding_manifest=tiles
    )
    np.testing.assert_array_equal(found, cohort.x[[2, 1, 0, 1]])
