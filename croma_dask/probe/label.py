"""From the numbers of a sweep to a labelled result."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from croma_dask import schema
from croma_dask.errors import SchemaError
from croma_dask.probe.opened import Protocol
from croma_dask.probe.run import Sweep
from croma_dask.probe.schedule import association
from croma_dask.probe.slides import IN_DOMAIN, replicate_seeds

if TYPE_CHECKING:
    import xarray as xr

__all__ = ["check_names", "label_sweep"]


def check_names(names: Sequence[Any]) -> None:
    """Refuse names of test sets that would hide something else in the result.

    Raises
    ------
    SchemaError
        A name is taken, or no text.
    """
    for name in names:
        if not isinstance(name, str) or not name:
            raise SchemaError(f"test set {name!r}: a name is a text that is not empty")
        if "/" in name or name.startswith(".") or name == "zarr.json":
            raise SchemaError(
                f"test set {name!r}: files of results cannot hold that name; leave '/', and a dot "
                "at the start, out"
            )
        if name == IN_DOMAIN or name in schema.SWEEP:
            what = "the held-out rows" if name == IN_DOMAIN else "a coordinate of every result"
            raise SchemaError(f"test set {name!r}: the name is that of {what}; choose another")


def label_sweep(
    found: Sweep, how: Protocol, *, confounders: Sequence[Any], labels: Sequence[Any],
    attrs: Mapping[str, Any],
) -> xr.Dataset:  # fmt: skip
    """Label the numbers of a sweep.

    Parameters
    ----------
    found, how
        The sweep, and what was asked for.
    confounders, labels
        Names of the levels and classes, by index.
    attrs
        What the result says of its input.

    Returns
    -------
    xarray.Dataset
        A variable a test set; coordinates as declared in :data:`croma_dask.schema.SWEEP`.
    """
    import sklearn
    import xarray as xr

    from croma_dask import __version__

    n_splits, iterations = found.C.shape
    values: dict[str, Any] = {
        "split": np.arange(n_splits),
        "iteration": np.arange(iterations),
        "cramers_v": association(found.training),
        "replicate_seed": np.array(replicate_seeds(how.seed, iterations)),
        "training_rows": found.training.sum(axis=(1, 2)),
        "training_table": found.training,
        "confounder": _names(confounders),
        "label": _names(labels),
        "C": found.C,
        "validation_score": found.validation_score,
        "lbfgs_iterations": found.n_iter,
        "converged": found.converged,
        "fits": found.n_fits,
    }
    coords = {}
    for name, declared in schema.SWEEP.items():
        coords[name] = (declared.dims, values[name], declared.attrs())
    # Indices that no row has, and classes that are never trained, are no classes to guess among.
    n_classes = int(found.training.any(axis=(0, 1)).sum())
    variables = {}
    for name, accuracy in found.accuracy.items():
        said_of = {"n_classes": n_classes, "n_test_rows": found.n_test[name], "test_set": name}
        variables[name] = (schema.ACCURACY.dims, accuracy, schema.ACCURACY.attrs() | said_of)
    said = {
        "metric": "probe_sweep",
        **attrs,
        "rows_per_slide": how.rows_per_slide,
        # Files hold 64 bits.
        "seed": int(how.seed) if abs(int(how.seed)) < 2**63 else str(how.seed),
        "validation_fraction": (
            "1 / max_train_slides" if how.validation_fraction is None else how.validation_fraction
        ),
        "arrangement": "shuffled" if how.arrange_slides is None else "given",
        "probes_not_converged": int((~found.converged).sum()),
        "embedding_fingerprint": found.fingerprint,
        "scikit_learn_version": sklearn.__version__,
        "croma_dask_version": __version__,
        "created": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
    }
    return xr.Dataset(variables, coords, said)


def _names(levels: Sequence[Any]) -> Any:
    if all(isinstance(level, int | np.integer) for level in levels):
        return np.asarray(levels, np.int64)
    names = np.empty(len(levels), object)
    names[:] = [str(level) for level in levels]
    return names
