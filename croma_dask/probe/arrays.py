"""The probe sweep on arrays, with the arguments of `croma`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from croma_dask.cohort.align import Embedding, check_embedding
from croma_dask.errors import SchemaError
from croma_dask.options import merged
from croma_dask.probe.cut import check_rows
from croma_dask.probe.label import check_names, label_sweep
from croma_dask.probe.opened import Protocol, Rows
from croma_dask.probe.run import run_sweep
from croma_dask.probe.schedule import SplitPlan
from croma_dask.probe.slides import IN_DOMAIN, SlideArrangement

if TYPE_CHECKING:
    import xarray as xr
    from numpy.typing import ArrayLike

__all__ = ["probe_sweep", "probe_sweep_over_test_sets", "check_test_set"]


def probe_sweep(
    embeddings: Any,
    confounders: ArrayLike,
    labels: ArrayLike,
    *,
    schedule: Sequence[SplitPlan],
    rows_per_slide: int = 1,
    iterations: int = 20,
    seed: int = 1000,
    validation_fraction: float | None = None,
    **options: Any,
) -> xr.DataArray:
    """Train probes while their training set walks from balanced to confounded; score held-out rows.

    Parameters
    ----------
    embeddings
        (n_rows, n_features) array of any kind that slices: numpy, memmap, dask, zarr, DataArray.
    confounders, labels
        (n_rows,) indices from 0, as the schedule has them; see
        :func:`croma_dask.downstream.names_to_indices`.
    schedule
        One split after the other, the balanced one first: (cells, max_train_slides), cells being
        (confounder, class, rows to train on). See :func:`croma_dask.downstream.pathorob_schedule`
        and :func:`croma_dask.downstream.linear_schedule`.
    rows_per_slide
        Consecutive rows of a cell that are shuffled as one.
    iterations
        Replicates, 1 to 10,000; each shuffles the slides anew.
    seed
        Seed of the replicates' seeds.
    validation_fraction
        Validation rows as a share of the training rows of a cell, in [0, 1); None: one slide's
        worth of the largest training set.
    **options
        ``memory``, ``threads``, ``scratch``, ``resume``, ``keep_scratch``, ``quiet`` (see
        :class:`croma_dask.options.Options`), and ``client``.

    Returns
    -------
    xarray.DataArray
        (split, iteration) balanced accuracies on the held-out rows, which are the same for all
        splits. ``np.asarray`` of it is what `croma` returns; coordinates as in
        :data:`croma_dask.schema.SWEEP`.

    Raises
    ------
    SchemaError
        (a ValueError) Arrays do not fit together or the schedule, or hold what is no finite number.
    MemoryLimitError
        The largest split does not fit the allowed memory.

    Notes
    -----
    Each probe is scikit-learn's logistic regression on float64 rows; for 15 values of C the first
    with the best validation score is kept. Memory: rows of a split in float64 a task. A run that
    was interrupted goes on when the same call is made again.

    References
    ----------
    PathoROB, https://doi.org/10.48550/arXiv.2507.17845
    """
    return probe_sweep_over_test_sets(
        embeddings, confounders, labels, schedule=schedule, rows_per_slide=rows_per_slide,
        iterations=iterations, seed=seed, validation_fraction=validation_fraction, **options,
    )[IN_DOMAIN]  # fmt: skip


def probe_sweep_over_test_sets(
    embeddings: Any,
    confounders: ArrayLike,
    labels: ArrayLike,
    *,
    schedule: Sequence[SplitPlan],
    test_sets: Mapping[str, tuple[Any, ArrayLike]] | None = None,
    rows_per_slide: int = 1,
    iterations: int = 20,
    seed: int = 1000,
    validation_fraction: float | None = None,
    arrange_slides: SlideArrangement | None = None,
    client: Any = None,
    **options: Any,
) -> xr.Dataset:
    """Run :func:`probe_sweep` and score its probes on further test sets, too.

    Parameters
    ----------
    embeddings, confounders, labels, schedule, rows_per_slide, iterations, seed
        As of :func:`probe_sweep`.
    validation_fraction, **options
        As of :func:`probe_sweep`.
    test_sets
        Name to (embeddings, labels), labels being class indices as above. A name may not be
        ``in_domain`` nor that of a coordinate.
    arrange_slides
        Gives the slides of a replicate in another order than a shuffle; see
        :data:`croma_dask.downstream.SlideArrangement`.
    client
        `distributed.Client` to run on; by default the active one, or else threads.

    Returns
    -------
    xarray.Dataset
        Variables ``in_domain`` and one a test set, (split, iteration).

    Raises
    ------
    SchemaError
        (a ValueError) As of :func:`probe_sweep`; a test set is empty, misaligned or of another
        width, or its name is taken; an arrangement is not one.
    """
    settings = merged(**options)
    values = check_embedding(embeddings)
    confounder, label = check_rows(confounders, labels, int(values.shape[0]))
    rows = Rows(Embedding(values, None), None, label, "embeddings")
    sets = test_sets or {}
    check_names(list(sets))
    tests = {name: check_test_set(name, *_pair(name, given), rows) for name, given in sets.items()}
    how = Protocol(schedule, rows_per_slide, iterations, seed, validation_fraction, arrange_slides)
    found = run_sweep(rows, confounder, tests, how, settings, client)
    return label_sweep(
        found, how, confounders=range(int(confounder.max()) + 1),
        labels=range(int(label.max()) + 1), attrs={"n_rows": int(label.size)},
    )  # fmt: skip


def _pair(name: str, given: Any) -> tuple[Any, Any]:
    if not isinstance(given, tuple | list) or len(given) != 2:
        raise SchemaError(f"test set {name!r} must be (embeddings, labels), found {type(given)}")
    return given[0], given[1]


def check_test_set(name: str, embeddings: Any, labels: Any, rows: Rows) -> Rows:
    """Check a further test set of a sweep."""
    what = f"test set {name!r}"
    try:
        values = check_embedding(embeddings)
        if int(values.shape[0]) == 0:
            raise SchemaError("it has no rows")
        found = np.asarray(labels)
        _, label = check_rows(np.zeros(int(values.shape[0]), np.int64), found, values.shape[0])
    except SchemaError as err:
        raise SchemaError(f"{what}: {err}") from err
    if int(values.shape[1]) != rows.embedding.n_features:
        raise SchemaError(
            f"{what} has {values.shape[1]} features, the embeddings of the sweep have "
            f"{rows.embedding.n_features}; both must come from one model"
        )
    return Rows(Embedding(values, None), None, label, what)
