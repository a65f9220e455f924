"""Targets: results, and all that is made of a result that somebody hands on; tables to rank."""

from __future__ import annotations

import contextlib
import functools
import random
import shutil
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import xarray as xr

from tests.fuzz.harness import Target, Tree
from tests.fuzz.targets_stores import OF_XARRAY, cohort, mutate_metadata

__all__ = ["TARGETS"]


NAMES = ("one", "metric", "panel", "bootstrap", "breakdown", "worst", "benchmark")


@functools.cache
def result_of(name: str) -> Any:
    """Make a result of a kind, once a process."""
    import croma_dask as cd

    x, frame = cohort()
    about: dict[str, Any] = {
        "confounder": "center", "k_candidates": (3, 5), "m": 2, "quiet": True
    }  # fmt: skip
    if name == "one":
        return cd.score(x, frame, **about)
    if name == "panel":
        return cd.score({"a": x, "b/c": x[:, ::-1].copy()}, frame, **about)
    if name == "metric":
        return result_of("one")["CRoMa"].to_dataset()
    if name == "breakdown":
        return cd.breakdown(result_of("one"), by=["label", "confounder"], metric="CRoMa")
    if name == "worst":
        return cd.worst_groups(result_of("one"))
    return {"bootstrap": bootstrap, "benchmark": benchmark}[name]()


@functools.cache
def saved(name: str, ending: str) -> Path:
    """Save a result of a kind, once a process."""
    from croma_dask.results import save

    path = Path(tempfile.mkdtemp(prefix="croma_dask_seeds_")) / f"{name}{ending}"
    save(result_of(name), path)
    return path


def copy_of(name: str, ending: str, folder: Path) -> Path:
    """Copy a saved result into a folder."""
    path = saved(name, ending)
    (shutil.copytree if path.is_dir() else shutil.copyfile)(path, folder / path.name)
    return folder / path.name


def bootstrap() -> xr.DataTree:
    """Make a bootstrap of two models, as its own code declares it, without its kernels."""
    from croma_dask.schema_uncertainty import uncertainty_of

    names = np.array(["a", "b/c"], object)
    nodes = {}
    for metric in ("RI", "CRoMa"):
        declared = uncertainty_of(metric, compared=True)
        data = {
            name: (v.dims, np.full([2] * len(v.dims), 0.5).astype(v.kind))
            for name, v in declared.items()
        }
        about = {"metric": "bootstrap", "resampled_metric": metric}
        nodes[metric] = xr.Dataset(data, {"model": names, "other": names}, about)
    attrs = {
        "metric": "bootstrap", "n_draws": 5, "n_groups": 20, "resampled": "group_id", "seed": 0,
        "level": 0.95, "interval": "percentile", "neighbors": "held fixed",
        "croma_dask_version": "0.1.0",
    }  # fmt: skip
    return xr.DataTree.from_dict({"/": xr.Dataset(attrs=attrs), **nodes})


def benchmark() -> xr.Dataset:
    """Make a benchmark of two data sets and three methods, as its own code lays one out."""
    dims = ("dataset", "method", "metric")
    rng = np.random.default_rng(2)
    status = np.full((2, 3, 3), "ok", object)
    counts = {
        name: (("dataset", "method"), np.full((2, 3), 40))
        for name in ("n_cells", "n_labels", "n_batches", "n_dims")
    }
    return xr.Dataset(
        {
            "value": (dims, rng.random((2, 3, 3))), "status": (dims, status),
            "note": (dims, status), **counts,
        },
        {
            "dataset": np.array(["lung", "gut"], object),
            "method": np.array(["PCA", "scVI", "=1+1"], object),
            "metric": np.array(["NMI", "ARI", "kBET"], object),
        },
        {"metric": "embedding_benchmark", "croma_dask_version": "0.1.0"},
    )  # fmt: skip


def seeds(ending: str) -> Callable[[Path], None]:
    def write(folder: Path) -> None:
        for name in NAMES:
            copy_of(name, ending, folder)

    return write


def read_result(path: Path, work: Path) -> None:
    """Open a result, and show it in every way there is."""
    import croma_dask as cd
    from croma_dask.notebook import describe_html, describe_text

    with cd.open_result(path) as result:
        try:
            result.load()
        except OF_XARRAY:
            # xarray's own from here on: where chunks carry no checksum, so are its errors.
            return
        for show in (
            cd.results.summary, cd.results.to_frame, describe_html, describe_text,
            lambda one: cd.results.save(one, work / "again.csv"),
            lambda one: cd.results.save(one, work / "again.json"),
        ):  # fmt: skip
            with contextlib.suppress(cd.CromaDaskError):
                show(result)


def make_report(path: Path, work: Path) -> None:
    import croma_dask as cd

    cd.report(path, work / "page.html", n_draws=0)


# --- tables to rank ---

WIDE = "sample_id,method,NMI,ARI,kBET\nlung,PCA,0.5,0.25,1\nlung,scVI,0.75,,0\ngut,PCA,1,0,0.5\n"
LONG = "sample_id,method,metric,value,note\nlung,PCA,NMI,0.5,\nlung,scVI,NMI,0.25,a=b\n"


def _table_seeds(folder: Path) -> None:
    (folder / "wide.csv").write_text(WIDE)
    (folder / "long.csv").write_text(LONG)
    (folder / "wide.tsv").write_text(WIDE.replace(",", "\t"))
    (folder / "formula.csv").write_text(WIDE.replace("PCA", "'=PCA"))
    (folder / "odd.csv").write_text(WIDE.replace("0.25", "1e400").replace("gut", ""))
    for ending in (".nc", ".zarr"):
        copy_of("benchmark", ending, folder)


def _rank(path: Path, work: Path) -> None:
    from croma_dask.embedding.rank_report import rank_text, with_ranks
    from croma_dask.embedding.rank_statistics import rank_statistics
    from croma_dask.embedding.ranks import rank_embeddings

    ranks = rank_embeddings(str(path))
    statistics = rank_statistics(ranks, n_draws=5)
    rank_text(with_ranks(ranks, statistics))


def _tables() -> Any:
    """Strategy of tables whose cells are awkward one by one."""
    from hypothesis import strategies as st

    cell = st.one_of(
        st.sampled_from(["", "0.5", "nan", "inf", "-1e308", "1e-320", "=1", "'=1", "1_0", "٣"]),
        st.floats().map(str),
        st.text(max_size=4),
    )
    names = ["sample_id", "method", "metric", "value", "NMI", "kBET", "dataset", "", "'=x"]
    return st.builds(
        lambda header, rows: _csv([header, *rows]),
        st.lists(st.sampled_from(names), min_size=1, max_size=6),
        st.lists(st.lists(cell, min_size=1, max_size=6), max_size=6),
    )


def _csv(rows: list[list[str]]) -> Tree:
    text = "\n".join(",".join('"' + cell.replace('"', '""') + '"' for cell in row) for row in rows)
    return {"t.csv": text.encode("utf-8", "surrogatepass")}


# --- HDF5 ---


def mutate_nc(content: bytes, rng: random.Random) -> bytes:
    """Change attributes, shapes and dtypes of a netCDF file by way of h5py."""
    import io

    import h5py

    held = io.BytesIO(content)
    try:
        with h5py.File(held, "r+") as file:
            names: list[str] = []
            file.visit(names.append)
            item = file[rng.choice(names)] if names else file
            kind = rng.randrange(6)
            if kind == 0:
                item.attrs[rng.choice(list(item.attrs) or ["x"])] = rng.choice(
                    ["x", 1, -1.5, np.nan, "\u202e", np.array([1, 2]), b"\xff", "a" * 3000]
                )
            elif kind == 1 and len(item.attrs):
                del item.attrs[rng.choice(list(item.attrs))]
            elif kind == 2 and names:
                del file[rng.choice(names)]
            elif kind == 3:
                file.attrs.update({"metric": rng.choice(["RI", "bootstrap", "probe_sweep", "x"])})
            elif kind == 4 and names:
                name = rng.choice(names)
                del file[name]
                file[name] = rng.choice(
                    [h5py.ExternalLink("/etc/passwd", "/"), h5py.SoftLink("/nowhere"),
                     h5py.SoftLink("/"), np.zeros((2, 2)), "text"]
                )  # fmt: skip
            elif names:
                name = rng.choice(names)
                del file[name]
                file.create_dataset(
                    name, rng.choice([(10**15,), (10**9, 10**9), (0,), ()]),
                    rng.choice(["f8", "i4", "S3"]), chunks=None,
                )  # fmt: skip
    # h5py raises anything on what was mutated before
    except Exception:  # noqa: BLE001
        return content
    return held.getvalue()


ZARR = {"zarr.json": mutate_metadata}
NC = {".nc": mutate_nc}

TARGETS = [
    Target("result-zarr", seeds(".zarr"), read_result, mutators=ZARR, slow=True),
    Target("result-nc", seeds(".nc"), read_result, mutators=NC, slow=True),
    Target("report", seeds(".nc"), make_report, mutators=NC, slow=True),
    Target("rank-table", _table_seeds, _rank, mutators={**ZARR, **NC}, build=_tables),
]
