"""One probe: scikit-learn's logistic regression, its C chosen on validation rows.

The probe is fitted by scikit-learn itself, so that it has the reference's bits. Predictions and
scores are made here, from coefficients and from counts, so that a probe can be sent to where test
rows are and blocks of test rows can be added up.
"""

from __future__ import annotations

import threading
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

__all__ = ["C_GRID", "FittedProbe", "balanced_accuracy", "count_hits", "fit_probe", "predict"]

F64 = NDArray[np.float64]
I64 = NDArray[np.int64]

C_GRID: F64 = 10.0 ** np.linspace(-8.0, 4.0, 15)
"""Values of C that are tried, in this order."""


@dataclass(frozen=True)
class FittedProbe:
    """A probe with the C that did best on its validation rows.

    Attributes
    ----------
    classes
        (n_classes,) int64 classes of the training rows, ascending.
    coef
        (n_classes, n_features), or (1, n_features) of two classes. Its memory layout is that of
        scikit-learn: matrix products of another layout differ in their last bits.
    intercept
        (n_classes,) or (1,).
    C
        The first C with the highest validation score.
    validation_score
        Balanced accuracy on the validation rows.
    n_iter
        Iterations of the fit with this C.
    converged
        Whether that fit ended by its tolerance, and not by running out of iterations or steps.
    n_fits
        Values of C that were tried.
    """

    classes: I64
    coef: F64
    intercept: F64
    C: float
    validation_score: float
    n_iter: int
    converged: bool
    n_fits: int


def fit_probe(x: F64, y: I64, x_validation: F64, y_validation: I64) -> FittedProbe:
    """Fit the probe for each C, and keep the one that predicts the validation rows best.

    Parameters
    ----------
    x
        (n_rows, n_features) training rows, C-contiguous.
    y
        (n_rows,) their classes, two or more.
    x_validation, y_validation
        Validation rows and their classes, in the same form. Classes without training rows are never
        predicted and count as missed.

    Returns
    -------
    FittedProbe
        The probe as it was fitted at the chosen C; it is not fitted again.

    Notes
    -----
    A fit that does not converge does not warn: of 15 values of C some seldom do, and the protocol
    takes the probe as it is. `converged` tells. May be called from several threads at once.
    """
    from sklearn.linear_model import LogisticRegression

    classes = np.unique(y_validation)
    best: FittedProbe | None = None
    for n_fits, C in enumerate(C_GRID.tolist(), start=1):
        model = LogisticRegression(C=C, random_state=0)
        with _convergence_noted() as note:
            model.fit(x, y)
        n_iter = int(model.n_iter_.max())
        probe = FittedProbe(
            classes=model.classes_,
            # A copy that keeps the layout: pickled, it stays what it is.
            coef=np.array(model.coef_, order="K"),
            intercept=np.array(model.intercept_),
            C=C,
            validation_score=0.0,
            n_iter=n_iter,
            # Warnings are dropped unseen where the same one was shown before.
            converged=not note.warned and n_iter < model.max_iter,
            n_fits=n_fits,
        )
        score = balanced_accuracy(*count_hits(predict(probe, x_validation), y_validation, classes))
        if best is None or score > best.validation_score:
            best = replace(probe, validation_score=score)
        # Nothing scores above 1, and of equal scores the first wins: the other fits cannot matter.
        if score == 1.0:
            break
    assert best is not None
    return replace(best, n_fits=n_fits)


def predict(probe: FittedProbe, x: F64) -> I64:
    """Class of every row, as scikit-learn's ``predict`` gives it.

    Parameters
    ----------
    probe
        The probe.
    x
        (n_rows, n_features) float64 rows.

    Returns
    -------
    ndarray
        (n_rows,) classes.
    """
    scores = x @ probe.coef.T + probe.intercept
    at = (scores[:, 0] > 0.0).astype(np.intp) if scores.shape[1] == 1 else scores.argmax(axis=1)
    predicted: I64 = probe.classes[at]
    return predicted


def count_hits(predicted: I64, labels: I64, classes: I64) -> tuple[I64, I64]:
    """Count the rows of each class, and those that were predicted right.

    Counts of blocks of rows add up to the counts of all of them, in any order.

    Parameters
    ----------
    predicted, labels
        (n_rows,) predicted and true classes.
    classes
        All classes of `labels`, ascending; perhaps more.

    Returns
    -------
    hits, totals
        (classes,) int64 each.
    """
    at = np.searchsorted(classes, labels)
    hits = np.bincount(at[predicted == labels], minlength=classes.size)
    return hits, np.bincount(at, minlength=classes.size)


def balanced_accuracy(hits: I64, totals: I64) -> float:
    """Mean over the classes of the share of rows that was predicted right.

    Classes without rows are left out; the value equals scikit-learn's to the last bit.

    Parameters
    ----------
    hits, totals
        (classes,) counts, the classes ascending.
    """
    present = totals > 0
    return float(np.mean(hits[present] / totals[present]))


class _Thread(threading.local):
    """What this thread is doing."""

    fitting = False
    warned = False


_thread = _Thread()


class _WhileFitting(type):
    """Makes a category of the convergence warnings that come while this thread fits a probe."""

    def __subclasscheck__(cls, category: type) -> bool:
        if not _thread.fitting:
            return False
        from sklearn.exceptions import ConvergenceWarning

        if not issubclass(category, ConvergenceWarning):
            return False
        _thread.warned = True
        return True


class _FitWarning(UserWarning, metaclass=_WhileFitting):
    """A probe has not converged."""


@contextmanager
def _convergence_noted() -> Iterator[_Thread]:
    """Take note of convergence warnings of this thread, and keep them from being shown.

    ``warnings.catch_warnings`` replaces the filters of the whole process, and with several threads
    leaves them in disorder. One filter stays in place instead, which by its category concerns the
    fits of this module only: what other code fits at the same time warns as ever. (Should another
    thread swap the filters during a fit, its warning may be shown; nothing else is lost.)
    """
    # Whoever leaves `catch_warnings` takes out what was added inside it: look every time.
    if not warnings.filters or warnings.filters[0][2] is not _FitWarning:
        warnings.filterwarnings("ignore", category=_FitWarning)
    _thread.fitting, _thread.warned = True, False
    try:
        yield _thread
    finally:
        _thread.fitting = False
