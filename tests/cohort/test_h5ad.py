"""AnnData files of every age: one obsm entry or X, obs as the manifest, nothing else read."""

from __future__ import annotations

import subprocess
import sys
import warnings
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pandas as pd
import pytest

from croma_dask.cohort import StoredCohort, ingest
from croma_dask.cohort.readers import open_reader
from croma_dask.cohort.readers.h5ad import read_obs
from croma_dask.errors import InputWarning, SchemaError

anndata = pytest.importorskip("anndata")
sp = pytest.importorskip("scipy.sparse")

SHARED = Path(__file__).parents[2].parent / "shared" / "data"
needs_shared = pytest.mark.skipif(
    not SHARED.is_dir(), reason="the shared data sets are not on this machine"
)
N, D = 40, 6


@pytest.fixture
def x(rng: np.random.Generator) -> np.ndarray:
    dense = rng.standard_normal((N, D)).astype("f4")
    dense[rng.random((N, D)) < 0.5] = 0
    return dense


@pytest.fixture
def obs() -> pd.DataFrame:
    return pd.DataFrame(
        {
            "label": pd.Categorical(np.arange(N) % 3 + 1, categories=[9, 3, 2, 1], ordered=True),
            "group_id": [f"patient {i // 4}" for i in range(N)],
            "site": pd.Categorical([None, "b"] * (N // 2), categories=["zzz", "b"]),
            "age": np.arange(N) / 2,
            "count": pd.array([None, 2**53 + 1] * (N // 2), dtype="Int64"),
            "flag": pd.array([None, True] * (N // 2), dtype="boolean"),
        },
        index=[f"cell{i}" for i in range(N)],
    )


def write(path: Path, obs: pd.DataFrame, *, x: Any = None, **obsm: Any) -> Path:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        anndata.AnnData(X=x, obs=obs, obsm=obsm).write_h5ad(path)
    return path


def rows(path: Path, manifest: Any = None, **options: Any) -> tuple[StoredCohort, np.ndarray]:
    store = StoredCohort(
        ingest(path, manifest, path.with_suffix(".zarr"), overwrite=True, chunk_rows=7, **options)
    )
    store.verify()
    return store, store.read_tiles(0, store.n_tiles)


def test_h5ad__containers_give_the_same_rows(tmp_path: Path, x, obs):
    frame = pd.DataFrame(x, index=obs.index, columns=[f"PC{i}" for i in range(D)])
    path = write(
        tmp_path / "a.h5ad",
        obs,
        x=sp.csr_matrix(x),
        array=x,
        frame=frame,
        csr=sp.csr_matrix(x),
        csc=sp.csc_matrix(x),
    )
    prints = set()
    for key in ("array", "frame", "csr", "csc", "X", "obsm/array"):
        store, found = rows(path, key=key)
        assert found.dtype == np.float32, key
        np.testing.assert_array_equal(found, x, err_msg=key)
        prints.add(store.fingerprint)
    assert len(prints) == 1
    with pytest.raises(SchemaError, match="'obsm/array', .*choose the obsm entry or X with key="):
        rows(path)
    with pytest.raises(SchemaError, match="no obsm entry or X 'X_umap'; it has"):
        rows(path, key="X_umap")


def test_h5ad__only_entry_needs_no_key_and_x_where_there_is_none(tmp_path: Path, x, obs):
    path = write(tmp_path / "a.h5ad", obs, x=x + 1, X_pca=x)
    np.testing.assert_array_equal(rows(path)[1], x)
    np.testing.assert_array_equal(rows(path, key="X")[1], x + 1)
    path = write(tmp_path / "b.h5ad", obs, x=sp.csc_matrix(x))
    np.testing.assert_array_equal(rows(path)[1], x)


def test_h5ad__obs_is_the_manifest(tmp_path: Path, x, obs):
    before = obs.copy()
    path = write(tmp_path / "a.h5ad", obs, X_pca=x)
    store, _ = rows(path)
    assert store.columns == ["sample_id", *obs.columns]
    assert store.text("sample_id").tolist() == obs.index.tolist()
    assert store.text("label").tolist() == [str(i % 3 + 1) for i in range(N)]
    assert store.codes("label")[1] == ["1", "2", "3"]
    assert store.text("group_id")[5] == "patient 1"
    assert store.text("site")[:2].tolist() == ["", "b"]
    assert store.text("age")[:3].tolist() == ["0", "0.5", "1"]
    assert store.text("count")[:2].tolist() == ["", "9007199254740993"]
    assert store.text("flag")[:2].tolist() == ["", "True"]
    pd.testing.assert_frame_equal(obs, before)


def test_h5ad__manifest_beside_it_is_matched_by_id(tmp_path: Path, x, obs, rng):
    path = write(tmp_path / "a.h5ad", obs, X_pca=x)
    order = rng.permutation(N)
    manifest = pd.DataFrame({"sample_id": obs.index[order], "label": order})
    store, found = rows(path, manifest)
    np.testing.assert_array_equal(found, x)
    assert store.text("label").tolist() == [str(i) for i in range(N)]
    with pytest.raises(SchemaError, match="1 only in the embedding .'cell") as info:
        rows(path, manifest.iloc[1:])
    assert "40 rows) and manifest (39 rows)" in str(info.value)
    wrong = manifest.assign(sample_id=[f"cell{i + 10}" for i in range(N)])
    with pytest.raises(
        SchemaError,
        match="'cell0', 'cell1', 'cell2', 'cell3', 'cell4' and 5 more.*10 only in the manifest",
    ):
        rows(path, wrong)
    with pytest.raises(SchemaError, match="no column 'sample_id'"):
        rows(path, manifest.rename(columns={"sample_id": "barcode"}))
    manifest["sample_id"] = ["e\u0301" + name for name in manifest["sample_id"]]
    composed = obs.set_axis(["\u00e9" + name for name in obs.index])
    store, _ = rows(write(tmp_path / "b.h5ad", composed, X_pca=x), manifest)
    assert store.text("label").tolist() == [str(i) for i in range(N)]


def test_h5ad__as_manifest_of_another_file(tmp_path: Path, x, obs):
    np.save(tmp_path / "x.npy", x)
    path = write(tmp_path / "a.h5ad", obs)
    store, found = rows(tmp_path / "x.npy", path)
    np.testing.assert_array_equal(found, x)
    assert store.text("sample_id")[3] == "cell3"
    assert read_obs(str(path)).columns[0] == "sample_id"


def test_h5ad__duplicate_names_suggest_id_columns(tmp_path: Path, x, obs):
    obs = obs.rename(index={"cell7": "cell3"})
    path = write(tmp_path / "a.h5ad", obs, X_pca=x)
    with pytest.raises(SchemaError, match=r"'cell3' in rows 3, 7.*id_columns="):
        rows(path)


def test_h5ad__one_subset_of_paired_cells(tmp_path: Path, x, obs):
    tiles = x[np.r_[0:20, 0:20]]
    obs = obs.assign(sample_id=[f"t{i % 20}" for i in range(N)], subset=np.repeat(["p", "q"], 20))
    store, found = rows(write(tmp_path / "a.h5ad", obs, X_pca=tiles))
    assert (store.n_samples, store.n_tiles) == (40, 20)
    np.testing.assert_array_equal(found[store.tile_of_sample()], tiles)


def test_h5ad__column_of_unknown_encoding_is_left_out_with_a_warning(tmp_path: Path, x, obs):
    path = write(tmp_path / "a.h5ad", obs, X_pca=x)
    with h5py.File(path, "a") as file:
        file["obs/odd"] = np.zeros((N, 3))
    with pytest.warns(InputWarning, match="'odd' is left out"):
        store, _ = rows(path)
    assert "odd" not in store.columns


def test_h5ad__refused(tmp_path: Path, x, obs):
    path = write(tmp_path / "a.h5ad", obs, X_pca=x)
    with h5py.File(path, "a") as file:
        del file["obs"]
    with pytest.raises(SchemaError, match="no obs"):
        rows(path)
    frame = pd.DataFrame({"a": ["x"] * N}, index=obs.index)
    with pytest.raises(SchemaError, match="columns that are not numbers"):
        rows(write(tmp_path / "b.h5ad", obs, F=frame))
    x[4, 1] = np.nan
    with pytest.raises(SchemaError, match="NaN in 1 row .row 4, ids 'cell4'"):
        rows(write(tmp_path / "c.h5ad", obs, X_pca=x))


def test_sparse__blocks_and_repeated_entries(tmp_path: Path, monkeypatch, obs, x):
    import croma_dask.cohort.readers.sparse as module

    monkeypatch.setattr(module, "BLOCK_BYTES", 7 * D * 4)
    monkeypatch.setattr(module, "SLAB", 11)
    twice = sp.csr_matrix(
        (np.array([1, 2, 5], "f4"), np.array([1, 1, 0]), np.array([0, 2] + [3] * (N - 1))), (N, D)
    )
    path = write(tmp_path / "a.h5ad", obs, csr=sp.csr_matrix(x), csc=sp.csc_matrix(x), twice=twice)
    for key, expected in [("csr", x), ("csc", x), ("twice", twice.toarray())]:
        np.testing.assert_array_equal(rows(path, key=key)[1], expected)


def test_h5ad__memory_does_not_follow_x(tmp_path: Path, obs):
    """A file with a gigabyte of X: ingesting an obsm entry grows the process by far less."""
    n = 2000
    obs = pd.DataFrame({"label": np.arange(n) % 3}, index=[f"c{i}" for i in range(n)])
    path = write(tmp_path / "a.h5ad", obs, X_pca=np.ones((n, 8), "f4"))
    with h5py.File(path, "a") as file:
        # a gigabyte that takes no space on disk: chunks that were never written
        file.create_dataset("X", shape=(n, 134_000), dtype="f4", chunks=(100, 1000))
    code = (
        "import resource, sys; from croma_dask.cohort import ingest; import h5py, zarr, pyarrow;"
        "peak = lambda: resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024;"
        "before = peak(); ingest(*sys.argv[1:2], out=sys.argv[2], key='X_pca'); "
        "print(peak() - before)"
    )
    out = subprocess.run(
        [sys.executable, "-c", code, str(path), str(tmp_path / "o.zarr")],
        capture_output=True,
        text=True,
        check=True,
    )
    assert float(out.stdout) < 100


def test_h5ad__layout_of_2017(tmp_path: Path, x):
    """Structured arrays for obs and obsm, categories in uns."""
    obs = np.zeros(N, dtype=[("index", "S8"), ("label", "i1"), ("n", "<i8"), ("share", "<f4")])
    obs["index"] = [f"c{i}".encode() for i in range(N)]
    obs["label"] = np.arange(N) % 3 - 1
    obs["n"] = np.arange(N)
    obs["share"] = 0.1
    obsm = np.zeros(N, dtype=[("X_pca", "<f4", (D,)), ("X_one", "<f8")])
    obsm["X_pca"] = x
    with h5py.File(tmp_path / "a.h5ad", "w") as file:
        file["obs"], file["obsm"] = obs, obsm
        file["uns/label_categories"] = np.array([b"B cell", b"T cell"])
    store, found = rows(tmp_path / "a.h5ad", key="X_pca")
    np.testing.assert_array_equal(found, x)
    assert store.text("sample_id")[:2].tolist() == ["c0", "c1"]
    assert store.text("label")[:3].tolist() == ["", "B cell", "T cell"]
    assert store.text("n")[3] == "3"
    assert store.text("share")[0] == "0.1"
    assert rows(tmp_path / "a.h5ad", key="X_one")[1].shape == (N, 1)


ARCHIVES = {
    "anndata_archives/v0.5.0_adata.h5ad": ("X_pca", (700, 50)),
    "anndata_archives/v0.7.0_adata.h5ad": ("array", (30, 50)),
    "anndata_archives/v0.7.8_adata.h5ad": ("array", (30, 50)),
    "h5ad_quirks/rapids_visium49.h5ad": ("X_pca", (49, 50)),
    "h5ad_quirks/rapids_dummy.h5ad": ("X", (200, 100)),
}


@needs_shared
@pytest.mark.parametrize("name", ARCHIVES)
def test_archives__as_anndata_reads_them(tmp_path: Path, name: str):
    key, shape = ARCHIVES[name]
    store = StoredCohort(ingest(SHARED / name, out=tmp_path / "c.zarr", key=key))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        expected = anndata.read_h5ad(SHARED / name)
    matrix = expected.X if key == "X" else expected.obsm[key]
    assert (store.n_tiles, store.n_features) == shape
    np.testing.assert_array_equal(store.read_tiles(0, shape[0]), np.asarray(matrix))
    assert store.text("sample_id").tolist() == expected.obs_names.tolist()
    for column in expected.obs.columns:
        want = expected.obs[column]
        if want.dtype.kind in "iuf":
            np.testing.assert_allclose(store.text(column).astype(float), want.to_numpy(), rtol=1e-6)
        else:
            assert (
                store.text(column).tolist() == want.astype(object).where(want.notna(), "").tolist()
            )


@needs_shared
@pytest.mark.parametrize("name", ["v0.7.0_adata.h5ad", "v0.7.8_adata.h5ad"])
@pytest.mark.parametrize("key", ["df", "sparse", "X"])
def test_archives__data_frames_and_sparse_of_2020(tmp_path: Path, name: str, key: str):
    path = SHARED / "anndata_archives" / name
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        expected = anndata.read_h5ad(path)
    matrix = expected.X if key == "X" else expected.obsm[key]
    if key == "df":  # two of its columns are categorical
        with pytest.raises(SchemaError, match="columns that are not numbers"):
            open_reader(path, key=key)
        return
    reader = open_reader(path, key=key)
    dense = matrix.toarray() if sp.issparse(matrix) else np.asarray(matrix)
    np.testing.assert_array_equal(reader.read(0, reader.shape[0]), dense)
    reader.close()


@needs_shared
def test_archives__without_any_matrix_is_refused():
    with pytest.raises(SchemaError, match="no obsm entry or X"):
        open_reader(SHARED / "anndata_archives/v0.11.4_adata.h5ad")


@needs_shared
def test_quirks__nan_in_obsm_and_comments_before_the_header(tmp_path: Path):
    folder = SHARED / "h5ad_quirks"
    store = StoredCohort(
        ingest(folder / "cellxgene_nan.h5ad", out=tmp_path / "c.zarr", key="X_pca")
    )
    assert (store.codes("percent_mito")[0] == -1).sum() == 20
    with pytest.raises(SchemaError, match="NaN in"):
        ingest(folder / "cellxgene_nan.h5ad", out=tmp_path / "d.zarr", key="X")
    csv = folder / "cellxgene_pbmc3k-annotations.csv"
    n = len(csv.read_text().splitlines()) - 3
    np.save(tmp_path / "x.npy", np.ones((n, 2)))
    with pytest.raises(SchemaError, match="first 2 lines start with '#'.*--comment"):
        ingest(tmp_path / "x.npy", csv, tmp_path / "e.zarr")
    store = StoredCohort(
        ingest(tmp_path / "x.npy", csv, tmp_path / "e.zarr", comment="#", sample_id="index")
    )
    assert store.text("sample_id")[0] == "AAACATACAACCAC-1"
    assert store.text("cluster-test")[0] == "four"


@needs_shared
@pytest.mark.parametrize("name", ["v0.7.0_adata.zarr.zip", "v0.7.8_adata.zarr.zip"])
def test_archives__zipped_zarr_version_2(name: str):
    reader = open_reader(SHARED / "anndata_archives" / name, key="obsm/array")
    assert reader.shape == (30, 50)
    assert np.isfinite(reader.read(0, 30)).all()
    reader.close()


@needs_shared
def test_archives__real_manifests(tmp_path: Path):
    for name in ("camelyon_reduced", "tolkach_esca_reduced"):
        frame = pd.read_csv(SHARED / f"pathorob_manifests/{name}.csv.gz", dtype=str)
        np.save(tmp_path / "x.npy", np.arange(len(frame) * 2, dtype="f4").reshape(-1, 2))
        store = StoredCohort(
            ingest(
                tmp_path / "x.npy",
                SHARED / f"pathorob_manifests/{name}.csv.gz",
                tmp_path / f"{name}.zarr",
                id_columns=["slide_id", "patch_id"],
                group="slide_id",
                label="biological_class",
            )
        )
        assert store.n_samples == store.n_tiles == len(frame)
        assert store.text("sample_id")[0] == f"{frame.slide_id[0]}/{frame.patch_id[0]}"
        assert store.text("label").tolist() == frame.biological_class.tolist()
        assert store.text("group_id").tolist() == frame.slide_id.tolist()
