"""Results as tables and files."""

from __future__ import annotations

import json
import os
import shutil
import warnings
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeGuard

import numpy as np

from croma_dask.embedding.summary import benchmark_frame, result_summary
from croma_dask.errors import SchemaError
from croma_dask.probe.table import sweep_frame, sweep_summary
from croma_dask.schema import METRICS

if TYPE_CHECKING:
    import pandas as pd
    import xarray as xr

__all__ = ["FORMATS", "check_target", "save", "summary", "to_frame"]

_OTHERS = (
    "embedding_benchmark", "embedding_ranks", "embedding_rank_statistics",
    "embedding_ranks_and_statistics",
)  # fmt: skip
"""Results of many embeddings, which have no single fingerprint."""

FORMATS = (".zarr", ".nc", ".csv", ".json")


def to_frame(result: xr.Dataset | xr.DataTree) -> pd.DataFrame:
    """Tidy frame of what a result says in single numbers.

    Parameters
    ----------
    result
        Dataset of one metric, or DataTree of several.

    Returns
    -------
    pandas.DataFrame
        One row a metric, `m`, subset or candidate k, and variable: columns `metric`, `variable`,
        `m`, `subset`, `k`, `value`. Variables along `sample` are left out: a Dataset's own
        ``to_dataframe`` gives them. Of a probe sweep see
        :func:`croma_dask.probe.table.sweep_frame`, of an embedding benchmark
        :func:`croma_dask.embedding.summary.benchmark_frame`.
    """
    import pandas as pd

    if _is_sweep(result):
        return sweep_frame(result)
    if _is_benchmark(result):
        return benchmark_frame(result)
    rows: list[dict[str, Any]] = []
    for name, dataset in _nodes(result):
        for variable, array in dataset.data_vars.items():
            if "sample" in array.dims:
                continue
            for at in np.ndindex(array.shape):
                where = dict(zip(array.dims, at, strict=True))
                rows.append(
                    {
                        "metric": name,
                        "variable": str(variable),
                        "m": _at(dataset, "m", where.get("m")),
                        "subset": _at(dataset, "subset", where.get("subset"), scalar=False),
                        "k": _k(dataset, where),
                        "value": array.values[at].item(),
                    }
                )
    frame = pd.DataFrame(rows, columns=["metric", "variable", "m", "subset", "k", "value"])
    return frame.astype({"m": "Int64", "k": "Int64"})


_COLUMNS = {
    "value": "value", "std": "std", "support": "support", "median_value": "median",
    "q_alpha": "q(alpha)", "ltm_alpha": "LTM", "f0": "F(0)",
}  # fmt: skip


def summary(result: xr.Dataset | xr.DataTree) -> str:
    """Headline numbers as a table for people.

    Returns
    -------
    str
        One line a metric (and `m`): value, spread over subsets, support, median, tail, F(0), and
        the operating k with tau. Of a probe sweep: accuracy a split, APD and nIPD. Of an embedding
        benchmark: value and status of every metric.
    """
    if _is_sweep(result):
        return sweep_summary(result)
    if _is_benchmark(result):
        return result_summary(result)
    lines = [f"{'':12}" + "".join(f"{title:>10}" for title in _COLUMNS.values())]
    for name, dataset in _nodes(result):
        radii = np.atleast_1d(dataset["m"].values) if "m" in dataset.coords else [None]
        for m in radii:
            row = dataset.sel(m=m) if m is not None and "m" in dataset.dims else dataset
            cells = "".join(
                f"{float(row[v]):>10.4f}" if v in row else f"{'':>10}" for v in _COLUMNS
            )
            note = f"m = {int(m)}" if m is not None else f"k = {int(row['k'])}"
            if name == "MaRI":
                note += f", tau = {float(row['tau']):.4g}"
            lines.append(f"{name:12}{cells}   {note}")
    return "\n".join(lines)


def _is_sweep(result: xr.Dataset | xr.DataTree) -> TypeGuard[xr.Dataset]:
    return hasattr(result, "data_vars") and result.attrs.get("metric") == "probe_sweep"


def _is_benchmark(result: xr.Dataset | xr.DataTree) -> TypeGuard[xr.Dataset]:
    return hasattr(result, "data_vars") and result.attrs.get("metric") == "embedding_benchmark"


def _nodes(result: Any) -> list[tuple[str, xr.Dataset]]:
    if hasattr(result, "children"):
        found = [(name, node.to_dataset()) for name, node in result.children.items()]
        return found or [(str(result.attrs.get("metric", "")), result.to_dataset())]
    return [(str(result.attrs.get("metric", "")), result)]


def _at(dataset: xr.Dataset, name: str, position: Any, *, scalar: bool = True) -> Any:
    if name not in dataset.coords:
        return None
    coordinate = dataset[name].values
    if coordinate.ndim == 0:
        return coordinate.item() if scalar else None
    return None if position is None else coordinate[position]


def _k(dataset: xr.Dataset, where: dict[Any, int]) -> Any:
    if "k_candidate" in where:
        return int(dataset["k_candidate"].values[where["k_candidate"]])
    if "k" in where:
        return int(dataset["k"].values[where["k"]])
    return _at(dataset, "k", None)


def _free_text(result: Any) -> Any:
    """Forget how long the texts of a file were that a result was read from.

    netCDF would write longer ones cut to that length, without a word.
    """
    freed = result.copy()
    for node in getattr(freed, "subtree", [freed]):
        for variable in node.variables.values():
            if variable.dtype.kind in "OUT":
                variable.encoding = {}
    return freed


def check_target(path: str | os.PathLike[str], *, overwrite: bool = False) -> Path:
    """Check where a result is to go, before it is computed.

    Raises
    ------
    SchemaError
        The ending is none of :data:`FORMATS`, the folder is not there, or something is there
        already that may not be overwritten: only results ever are.
    """
    target = Path(path)
    if target.suffix not in FORMATS:
        raise SchemaError(
            f"result {str(path)!r} ends in {target.suffix!r}; expected one of {', '.join(FORMATS)}"
        )
    if not target.absolute().parent.is_dir():
        raise SchemaError(f"the folder of {str(path)!r} does not exist; make it first")
    if not os.access(target.absolute().parent, os.W_OK):
        raise SchemaError(f"nothing may be written into the folder of {str(path)!r}")
    if not target.exists():
        return target
    if not overwrite:
        raise SchemaError(f"{str(path)!r} exists already; remove it or pass --overwrite")
    if target.is_dir() != (target.suffix == ".zarr") or (target.is_dir() and not _is_ours(target)):
        raise SchemaError(
            f"{str(path)!r} exists and is no result of croma-dask: it is not overwritten; choose "
            "another name or remove it yourself"
        )
    return target


def _is_ours(folder: Path) -> bool:
    """Whether a folder is a result that this library wrote (a cohort store is none)."""
    try:
        attrs = json.loads((folder / "zarr.json").read_text()).get("attributes", {})
    except (OSError, ValueError):
        return False
    if "croma_dask_version" in attrs and (
        "embedding_fingerprint" in attrs or attrs.get("metric") in _OTHERS
    ):
        return True
    # A tree that somebody put together has the attributes at its metrics.
    return any(
        (folder / name / "zarr.json").is_file() and _is_ours(folder / name) for name in METRICS
    )


def save(
    result: xr.Dataset | xr.DataTree, path: str | os.PathLike[str], *, overwrite: bool = False
) -> None:
    """Write a result, whole or not at all.

    Parameters
    ----------
    result
        What :func:`croma_dask.score` returned, a probe sweep, or an embedding benchmark.
    path
        ``.zarr`` or ``.nc``: everything, labelled; ``.csv``: the tidy frame; ``.json``: the same by
        metric.
    overwrite
        Replace what is there.
    """
    target = check_target(path, overwrite=overwrite)
    # Beside the target, on the same file system, so that the last step is one rename.
    partial = target.with_name(f".{target.name}.partial-{os.getpid()}{target.suffix}")
    try:
        if target.suffix == ".zarr":
            with warnings.catch_warnings():
                # Consolidated, so that plain xarray opens it: zarr warns that version 3 of the
                # format does not describe that yet. This one warning, and no other.
                warnings.filterwarnings("ignore", message="Consolidated metadata is currently")
                result.to_zarr(partial, mode="w", consolidated=True)
        elif target.suffix == ".nc":
            _free_text(result).to_netcdf(partial, engine="h5netcdf")
        elif target.suffix == ".csv":
            to_frame(result).to_csv(partial, index=False)
        else:
            partial.write_text(json.dumps(_as_json(result), indent=1, allow_nan=False) + "\n")
        if target.is_dir():
            # Aside first: a rename that fails must not have cost the old result.
            old = target.with_name(f".{target.name}.old-{os.getpid()}")
            os.replace(target, old)
            os.replace(partial, target)
            shutil.rmtree(old)
        else:
            os.replace(partial, target)
    finally:
        if partial.is_dir():
            shutil.rmtree(partial)
        else:
            partial.unlink(missing_ok=True)


def _as_json(result: xr.Dataset | xr.DataTree) -> dict[str, Any]:
    """Nested plain values; NaN becomes null, as JSON has none."""
    if _is_sweep(result) or _is_benchmark(result):
        rows = "probes" if _is_sweep(result) else "values"
        return {
            "attrs": _plain(dict(result.attrs)),
            rows: [_plain(row) for row in to_frame(result).to_dict("records")],
        }
    found: dict[str, Any] = {"attrs": _plain(dict(result.attrs)), "metrics": {}}
    for name, dataset in _nodes(result):
        found["metrics"][name] = {
            "attrs": _plain(dict(dataset.attrs)),
            **{c: _plain(dataset[c].values.tolist()) for c in ("k", "m", "k_candidate", "subset")
               if c in dataset.coords},
            **{
                str(v): _plain(array.values.tolist())
                for v, array in dataset.data_vars.items()
                if "sample" not in array.dims
            },
        }  # fmt: skip
    return found


def _plain(value: Any) -> Any:
    if isinstance(value, dict):
        return {k: _plain(v) for k, v in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(v) for v in value]
    if isinstance(value, np.generic):
        value = value.item()
    if isinstance(value, float) and not np.isfinite(value):
        return None
    return value
