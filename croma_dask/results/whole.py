"""Results that lack a part: somebody took it out, or a file was changed."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

from croma_dask.errors import CromaDaskError, SchemaError, StoreError, name_items
from croma_dask.kinds import KINDS, Kind, kind_of
from croma_dask.schema import COORDINATES, METRICS, SWEEP, Variable
from croma_dask.schema_benchmark import BENCHMARK
from croma_dask.schema_breakdown import BREAKDOWN, EXPLANATION, EXPLANATION_COORDINATES, WORST
from croma_dask.schema_uncertainty import RESAMPLED, uncertainty_of

if TYPE_CHECKING:
    import xarray as xr

__all__ = ["told_if_incomplete"]

_SAME = {"U": "O", "T": "O", "S": "O", "u": "i"}
"""Kinds of dtypes that serve as one another: texts of any length, whole numbers of any sign."""

_ATTRS: dict[Kind, dict[str, type | tuple[type, ...]]] = {
    "bootstrap": {
        "n_draws": int, "n_groups": int, "resampled": str, "seed": int, "level": (int, float),
        "interval": str, "neighbors": str,
    },
    "explanation": dict.fromkeys(
        ("sample_id", "sample_label", "sample_confounder", "sample_group_id", "sample_subset",
         "confounder_column", "label_column", "group_column"), str,
    ),
    "result": {"alpha": (int, float)},
}  # fmt: skip
"""Attributes that something is made of; others are shown where they are there."""


@contextlib.contextmanager
def told_if_incomplete(result: Any) -> Iterator[None]:
    """Say what a result lacks, where something failed within the block because of that.

    Parameters
    ----------
    result
        What the block lays out or computes with.

    Raises
    ------
    SchemaError
        The block failed and the result is not as it is declared: says in what. What fails with a
        result that is whole is a defect, and passes as it is.
    StoreError
        Its file is damaged where it was read.
    """
    try:
        yield
    except (CromaDaskError, MemoryError):
        raise
    except OSError as err:
        if err.errno is not None:
            raise
        # HDF5's own, of a chunk or a text that is read late.
        raise StoreError(f"a result cannot be read: {err}; take a whole copy of it") from err
    # Whatever it was, it is looked at: where nothing is missing, it passes.
    except Exception as err:
        kind = kind_of(result)
        if kind in ("unknown", "cohort"):
            raise SchemaError(f"expected a result of croma-dask; found {KINDS[kind]}") from err
        faults = _faults(result, kind)
        if not faults:
            raise
        raise SchemaError(
            f"this is {KINDS[kind]} with parts missing or changed: {name_items(faults)}; take it "
            "as it was returned or saved"
        ) from err


def _faults(result: Any, kind: Kind) -> list[str]:
    found = []
    for name, node in _nodes(result):
        where = f"{name}: " if name else ""
        for variable, declared in _declared(name, node, kind).items():
            fault = _fault(node, variable, declared)
            if fault:
                found.append(f"{where}{variable} {fault}")
        if kind == "result":
            found += _coordinate_faults(where, node)
        attrs = {**result.attrs, **node.attrs}
        for attr, types in _ATTRS.get(kind, {}).items():
            if isinstance(attrs.get(attr), bool) or not isinstance(attrs.get(attr), types):
                found.append(f"{where}attribute {attr} is {attrs.get(attr)!r:.60}")
    return found


def _coordinate_faults(where: str, node: xr.Dataset) -> list[str]:
    """Say what is wrong with what samples are called, and with the operating k."""
    found = []
    if "sample" in node.dims:
        names = [name for name, declared in COORDINATES.items() if declared.dims == ("sample",)]
        found = [f"{where}{name} is missing" for name in names if name not in node.variables]
    if "k" in node.variables and node.variables["k"].dtype.kind not in "iu":
        found.append(f"{where}k is of dtype {node.variables['k'].dtype}")
    return found


def _nodes(result: Any) -> list[tuple[str, xr.Dataset]]:
    children = getattr(result, "children", None)
    if children:
        return [(str(name), node.to_dataset()) for name, node in children.items()]
    node = result.to_dataset() if hasattr(result, "to_dataset") else result
    return [("", node)]


def _declared(name: str, node: xr.Dataset, kind: Kind) -> Mapping[str, Variable]:
    """Variables that a node has to have."""
    if kind == "sweep":
        return SWEEP
    if kind == "benchmark":
        return {name: v for name, v in BENCHMARK.items() if name != "about"}
    if kind == "explanation":
        return EXPLANATION | EXPLANATION_COORDINATES
    metric = name or str(node.attrs.get("resampled_metric" if kind == "bootstrap" else "metric"))
    if metric not in METRICS:
        return {"value": METRICS["RI"]["value"]} if kind == "result" else {}
    if kind == "bootstrap" and metric in RESAMPLED:
        return uncertainty_of(metric, compared="other" in node.dims)
    if kind == "breakdown":
        return BREAKDOWN[metric] | (WORST if set(WORST) & set(node.variables) else {})
    return METRICS[metric] if kind == "result" else {}


def _fault(node: xr.Dataset, name: str, declared: Variable) -> str:
    if name not in node.variables:
        return "is missing"
    variable = node.variables[name]
    lacking = [dim for dim in declared.dims if dim not in variable.dims and dim != "model"]
    if lacking:
        return f"has no dim {', '.join(lacking)}"
    kind = variable.dtype.kind
    if _SAME.get(kind, kind) != declared.kind:
        return f"is of dtype {variable.dtype}"
    if declared.kind == "O":
        # Texts are in an array of objects, which may be anything.
        odd = next((v for v in variable.values.flat[:1000] if not isinstance(v, str)), None)
        return "" if odd is None else f"holds {odd!r:.60}"
    return ""
