"""Small valid inputs of every reader of features, and hostile ones that no mutation would find."""

from __future__ import annotations

import io
import os
import zipfile
from pathlib import Path
from typing import Any

import numpy as np

__all__ = [
    "N",
    "D",
    "folders",
    "h5ad",
    "hdf5",
    "npy",
    "npz",
    "parquet",
    "shared",
    "zarr",
    "zarr_zip",
]

N, D = 6, 4
IDS = [f"s{i}" for i in range(N)]


def rows(dtype: str = "<f4") -> Any:
    return (np.arange(N * D).reshape(N, D) % 7 + 0.5).astype(dtype)


def shared(*names: str, below: int = 300_000) -> list[Path]:
    """Return those small real files that are there (they do not come with the repository)."""
    beside = Path(__file__).resolve().parents[3] / "shared" / "data"
    base = Path(os.environ.get("CROMA_DASK_TEST_DATA", beside))
    return [base / n for n in names if (base / n).is_file() and (base / n).stat().st_size < below]


def npy(folder: Path) -> None:
    np.save(folder / "plain.npy", rows())
    np.save(folder / "fortran.npy", np.asfortranarray(rows(">f8")))
    np.save(folder / "whole.npy", rows("<i8"))
    np.save(folder / "half.npy", rows("<f2"))
    table = np.zeros(N, dtype=[(f"f{i}", "<f4") for i in range(D)])
    np.save(folder / "table.npy", table)
    with open(folder / "second.npy", "wb") as file:
        np.lib.format.write_array(file, rows(), version=(2, 0))
    with open(folder / "third.npy", "wb") as file:
        np.lib.format.write_array(file, rows(), version=(3, 0))


def npz(folder: Path) -> None:
    np.savez(folder / "one.npz", features=rows(), sample_id=np.array(IDS))
    np.savez_compressed(folder / "fortran.npz", x=np.asfortranarray(rows("<f8")))
    np.savez_compressed(folder / "vectors.npz", **{f"slide{i}-0_0": rows()[i] for i in range(N)})
    np.savez(folder / "several.npz", a=np.zeros(3), features=rows(), b=np.zeros((2, 2, 2)))


def hdf5(folder: Path) -> None:
    import h5py

    with h5py.File(folder / "slide.h5", "w") as file:
        file.create_dataset("features", data=rows(), chunks=(2, D), compression="gzip")
        file["coords"] = np.arange(2 * N).reshape(N, 2)
        file["sample_id"] = IDS
    with h5py.File(folder / "plain.h5", "w", libver="latest") as file:
        file.create_group("a/b")["x"] = rows()
        file["a/b"].attrs["note"] = "text"
        file["link"] = h5py.SoftLink("/a/b/x")
    with h5py.File(folder / "shuffled.h5", "w") as file:
        file.create_dataset("feats", data=rows("<f8"), chunks=(4, 2), shuffle=True, fletcher32=True)
        file["sample_ids"] = np.array(IDS, dtype="S3")
    with h5py.File(folder / "external.h5", "w") as file:
        file["features"] = h5py.ExternalLink("../../outside/canary.h5", "features")
    with h5py.File(folder / "raw.h5", "w") as file:
        raw = [("../../outside/canary.bin", 0, N * D * 8)]
        file.create_dataset("features", (N, D), "<f8", external=raw)
    with h5py.File(folder / "virtual.h5", "w", libver="latest") as file:
        layout = h5py.VirtualLayout((N, D), "<f8")
        layout[:] = h5py.VirtualSource("../../outside/canary.h5", "features", (N, D))
        file.create_virtual_dataset("features", layout)


def h5ad(folder: Path) -> None:
    import h5py

    def start(name: str) -> Any:
        file = h5py.File(folder / name, "w")
        file.attrs["encoding-type"] = "anndata"
        obs = file.create_group("obs")
        obs.attrs.update({"encoding-type": "dataframe", "_index": "_index"})
        obs.attrs["column-order"] = ["label", "count", "flag"]
        obs["_index"] = IDS
        label = obs.create_group("label")
        label.attrs["encoding-type"] = "categorical"
        label["codes"] = np.array([0, 1, 0, 1, -1, 1], dtype="i1")
        label["categories"] = ["x", "y"]
        obs["count"] = np.arange(N)
        flag = obs.create_group("flag")
        flag.attrs["encoding-type"] = "nullable-boolean"
        flag["values"] = np.ones(N, dtype=bool)
        flag["mask"] = np.zeros(N, dtype=bool)
        return file

    with start("dense.h5ad") as file:
        file["obsm/X_pca"] = rows()
        file.create_dataset("X", data=rows(), chunks=(2, D))
    for kind, (height, width) in {"csr": (N, D), "csc": (D, N)}.items():
        with start(f"{kind}.h5ad") as file:
            group = file.create_group("X")
            group.attrs["encoding-type"] = f"{kind}_matrix"
            group.attrs["shape"] = np.array([N, D])
            group["data"] = np.ones(height * width, dtype="f4")
            group["indices"] = np.tile(np.arange(width, dtype="i4"), height)
            group["indptr"] = np.arange(0, height * width + 1, width, dtype="i4")
    with start("frame.h5ad") as file:
        frame = file.create_group("obsm/table")
        frame.attrs.update({"encoding-type": "dataframe", "_index": "_index"})
        frame.attrs["column-order"] = ["a", "b"]
        frame["_index"] = IDS
        frame["a"], frame["b"] = np.arange(6.0), np.arange(6)
    with h5py.File(folder / "old.h5ad", "w") as file:
        obs = np.zeros(N, dtype=[("index", "S3"), ("label", "i1")])
        obs["index"] = IDS
        file["obs"] = obs
        file["uns/label_categories"] = np.array([b"x"])
        file["obsm"] = np.zeros(N, dtype=[("X_pca", "f4", (D,))])
        file["X"] = rows()
    with start("external.h5ad") as file:
        file["X"] = h5py.ExternalLink("../../outside/canary.h5", "features")
    for path in shared("anndata_archives/v0.11.4_adata.h5ad"):
        (folder / path.name).write_bytes(path.read_bytes())


def parquet(folder: Path) -> None:
    import pyarrow as pa
    import pyarrow.parquet as pq

    ids = {"sample_id": IDS, "label": list("xyxyxy")}
    columns = {f"f{i}": rows()[:, i] for i in range(D)}
    pq.write_table(pa.table({**ids, **columns}), folder / "columns.parquet", row_group_size=2)
    lists = pa.array(rows().tolist(), pa.list_(pa.float32()))
    pq.write_table(pa.table({**ids, "x": lists}), folder / "list.parquet", compression="none")
    fixed = pa.array(rows().tolist(), pa.list_(pa.float32(), D))
    pq.write_table(
        pa.table({**ids, "x": fixed}),
        folder / "fixed.parquet",
        compression="zstd",
        write_page_checksum=True,
    )
    text = pa.array(list("xyxyxy")).dictionary_encode()
    pq.write_table(
        pa.table({"label": text, "f0": rows()[:, 0], "f1": rows()[:, 1]}),
        folder / "dictionary.parquet",
        data_page_version="2.0",
    )


def zarr(folder: Path) -> None:
    import zarr as z

    x = rows()
    z.save_array(folder / "array.zarr", x, zarr_format=3)
    group = z.open_group(folder / "group.zarr", mode="w", zarr_format=3)
    group.create_array("a/features", shape=(N, D), dtype="f4", chunks=(2, D))[:] = x
    group["a"].create_array("sample_id", data=np.array(IDS, dtype="U3"))
    z.consolidate_metadata(folder / "group.zarr")
    old = z.open_group(folder / "old.zarr", mode="w", zarr_format=2)
    old.create_array("features", shape=(N, D), dtype="f8", chunks=(4, 2))[:] = x
    sharded = z.open_group(folder / "sharded.zarr", mode="w", zarr_format=3)
    sharded.create_array("x", shape=(N, D), dtype="f4", chunks=(1, D), shards=(3, D))[:] = x


def zarr_zip(folder: Path) -> None:
    stores = folder / "stores"
    stores.mkdir()
    zarr(stores)
    for store in sorted(stores.iterdir()):
        out = io.BytesIO()
        with zipfile.ZipFile(out, "w") as archive:
            for path in sorted(store.rglob("*")):
                if path.is_file():
                    archive.write(path, path.relative_to(store).as_posix())
        (folder / f"{store.name}.zip").write_bytes(out.getvalue())
    import shutil

    shutil.rmtree(stores)
    for path in shared("anndata_archives/v0.11.4_adata.zarr.zip"):
        (folder / path.name).write_bytes(path.read_bytes())


def folders(folder: Path) -> None:
    import h5py

    for name in ("hdf5", "npy", "npz", "links"):
        (folder / name).mkdir()
    for slide in ("a", "b"):
        with h5py.File(folder / "hdf5" / f"{slide}.h5", "w") as file:
            file["features"], file["coords"] = rows(), np.arange(2 * N).reshape(N, 2)
        np.save(folder / "npy" / f"{slide}.npy", rows())
        np.savez(folder / "npz" / f"{slide}.npz", **{f"{slide}-{i}_0": rows()[i] for i in range(3)})
    (folder / "npy" / ".hidden").write_text("x")
    (folder / "npy" / "notes.txt").write_text("x")
    np.save(folder / "links" / "a.npy", rows())
    (folder / "links" / "b.npy").symlink_to("../../../outside/canary.npy")
