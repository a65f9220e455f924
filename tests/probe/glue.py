"""A sweep made of the parts, one probe after the other, and the cohorts it is tried on."""

from __future__ import annotations

from typing import Any

import numpy as np

from croma_dask.probe.cut import check_rows, check_schedule
from croma_dask.probe.fit import balanced_accuracy, count_hits, fit_probe, predict
from croma_dask.probe.slides import arrange_replicates, group_rows


def sweep(
    embeddings: Any,
    confounders: Any,
    labels: Any,
    *,
    schedule: Any,
    test_sets: dict[str, tuple[Any, Any]] | None = None,
    rows_per_slide: int = 1,
    iterations: int = 20,
    seed: int = 1000,
    validation_fraction: float | None = None,
    arrange_slides: Any = None,
) -> dict[str, np.ndarray]:
    """Accuracies (split, iteration) of the held-out rows and of each test set."""
    x = np.ascontiguousarray(embeddings, dtype=np.float64)
    confounders, labels = check_rows(confounders, labels, x.shape[0])
    sizes = [[cell.size for cell in level] for level in group_rows(confounders, labels)]
    cut = check_schedule(
        schedule,
        sizes,
        rows_per_slide=rows_per_slide,
        iterations=iterations,
        validation_fraction=validation_fraction,
    )
    sets = {
        name: (np.asarray(rows, np.float64), true)
        for name, (rows, true) in (test_sets or {}).items()
    }
    found = {n: np.full((cut.n_splits, iterations), np.nan) for n in ["in_domain", *sets]}
    replicates = arrange_replicates(
        confounders,
        labels,
        rows_per_slide=rows_per_slide,
        iterations=iterations,
        seed=seed,
        arrange_slides=arrange_slides,
    )
    for r, order in enumerate(replicates):
        for s in range(cut.n_splits):
            train, validate = cut.training(s, order), cut.validation(s, order)
            probe = fit_probe(x[train], labels[train], x[validate], labels[validate])
            held_out = cut.held_out(s, order)
            tests = {"in_domain": (x[held_out], labels[held_out]), **sets}
            for name, (rows, true) in tests.items():
                classes = np.unique(true)
                counts = count_hits(predict(probe, rows), true, classes)
                found[name][s, r] = balanced_accuracy(*counts)
    return found


def cohort(
    cells: Any, *, n_features: int = 4, seed: int = 0, scale: float = 1.0, shuffled: bool = True
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Embedding, confounders and labels with so many rows in every cell.

    Classes and confounders both move the rows, so that a confounded probe does lose accuracy.
    """
    rng = np.random.default_rng(seed)
    cells = np.asarray(cells)
    i, j = (at.ravel() for at in np.indices(cells.shape))
    confounders, labels = np.repeat(i, cells.ravel()), np.repeat(j, cells.ravel())
    if shuffled:
        at = rng.permutation(labels.size)
        confounders, labels = confounders[at], labels[at]
    of_class = rng.normal(size=(cells.shape[1], n_features))
    of_confounder = rng.normal(size=(cells.shape[0], n_features))
    x = of_class[labels] + of_confounder[confounders] + rng.normal(size=(labels.size, n_features))
    return x * scale, confounders, labels
