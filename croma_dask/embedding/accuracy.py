"""Acc@kNN: how often the five nearest cells of other folds have the label of a cell.

1. Labels of fewer than five cells are dropped. At least ten cells of two labels have to be left.
2. The others are dealt to five folds, stratified by label and shuffled (seed 42).
3. Every cell takes the majority of its five nearest cells of other folds; of equal votes the
   label whose name sorts first.
4. The accuracy of each fold, then the unweighted mean of the five. In [0, 1], higher is better.

The source is scikit-learn's cross-validated 5-nearest-neighbour classifier. That one trains and
searches five times; here the votes are read from one list: the nearest cells of other folds are
the first in the list of all nearest cells whose fold is another. Where a list does not hold five
of them the row is short and has to be voted on again with a longer one.

The folds depend on the order of the rows, so rows come in the order of the manifest.

Memory: the folds are a byte a cell, and the splitter holds about 50 bytes a cell while it deals;
a block of votes takes about 8 bytes an entry of its lists.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from croma_dask.embedding.outcome import Outcome
from croma_dask.errors import SchemaError
from croma_dask.kernels.typing import I32

__all__ = ["LEFT_OUT", "N_FOLDS", "N_VOTERS", "SHORT", "accuracy", "folds", "vote_block"]

N_FOLDS = 5
"""Also the least number of cells of a label that is kept."""

N_VOTERS = 5
SEED = 42

SHORT = -1
"""Predicted for a row whose list holds too few cells of other folds."""

LEFT_OUT = -2
"""Predicted for a row that is in no fold, or has nobody to ask."""

I8 = NDArray[np.int8]


def folds(codes: I32) -> I8:
    """Deal the cells to five folds, as scikit-learn's StratifiedKFold (shuffled, seed 42) does.

    Only which cells share a label, and their order, decides; the names do not.

    Parameters
    ----------
    codes
        (n,) labels in the order of the rows.

    Returns
    -------
    ndarray
        (n,) int8 fold from 0 to 4; -1 for cells of labels with fewer than five cells.
    """
    from sklearn.model_selection import StratifiedKFold

    out = np.full(len(codes), -1, np.int8)
    if len(codes) == 0:
        return out
    kept = np.flatnonzero(np.bincount(codes)[codes] >= N_FOLDS)
    if len(kept) == 0:
        return out
    splitter = StratifiedKFold(N_FOLDS, shuffle=True, random_state=SEED)
    # Features are not looked at, only counted.
    parts = splitter.split(np.broadcast_to(np.int8(0), (len(kept), 1)), codes[kept])
    for fold, (_, test) in enumerate(parts):
        out[kept[test]] = fold
    return out


def vote_block(index: I32, own_fold: I8, fold: I8, codes: I32, *, complete: bool) -> I32:
    """Predict the labels of the rows of a block from their nearest cells of other folds.

    Parameters
    ----------
    index
        (rows, k) nearest others of each row, -1 behind the last.
    own_fold
        (rows,) fold of the rows.
    fold, codes
        (n,) fold and label of every row of the scope.
    complete
        Whether the lists hold every other row of the scope. Then fewer than five voters are all
        that there are, and they decide; otherwise such a row is short.

    Returns
    -------
    ndarray
        (rows,) int32 label; `SHORT` (-1), or `LEFT_OUT` (-2) for rows in no fold.
    """
    neighbour_fold = fold[index]  # -1 reads some fold, which the mask forgets
    usable = (index >= 0) & (neighbour_fold >= 0) & (neighbour_fold != own_fold[:, None])
    rank = np.cumsum(usable, axis=1, dtype=np.int32)
    row, column = np.nonzero(usable & (rank <= N_VOTERS))
    vote = np.full((len(index), N_VOTERS), -1, np.int32)
    vote[row, rank[row, column] - 1] = codes[index[row, column]]
    support = (vote[:, :, None] == vote[:, None, :]).sum(axis=2)
    support[vote < 0] = 0
    most = support.max(axis=1)
    winner = np.where(support == most[:, None], vote, np.iinfo(np.int32).max).min(axis=1)
    predicted: I32 = winner.astype(np.int32)
    if complete:
        predicted[most == 0] = LEFT_OUT
    else:
        predicted[vote[:, -1] < 0] = SHORT
    predicted[np.asarray(own_fold) < 0] = LEFT_OUT
    return predicted


def accuracy(predicted: I32, codes: I32, fold: I8) -> Outcome:
    """Mean over the five folds of the share of cells whose label was predicted.

    Parameters
    ----------
    predicted, codes, fold
        (n,) of every row of the scope.

    Raises
    ------
    SchemaError
        If rows are still short: their lists have to be longer.
    """
    tested = np.asarray(fold) >= 0
    n_kept = int(tested.sum())
    dropped = len(fold) - n_kept
    protocol = f"n_neighbors={N_VOTERS};folds={N_FOLDS};random_state={SEED}"
    if n_kept < 10 or _n_distinct(codes[tested]) < 2:
        note = f"insufficient_cells_after_dropping_rare_classes;dropped_cells={dropped};{protocol}"
        reason = f"no ten cells of two labels with {N_FOLDS} or more cells"
        return Outcome.undefined(reason, note)
    short = int((np.asarray(predicted)[tested] == SHORT).sum())
    if short:
        raise SchemaError(
            f"{short} rows have fewer than {N_VOTERS} cells of other folds in their lists: "
            "vote on them again with longer ones"
        )
    hit = (predicted == codes) & tested
    hits = np.bincount(fold[hit], minlength=N_FOLDS)
    value = float(np.mean(hits / np.bincount(fold[tested], minlength=N_FOLDS)))
    note = f"dropped_cells={dropped};{protocol}" if dropped else protocol
    return Outcome(value, note)


def _n_distinct(codes: I32) -> int:
    return int((np.bincount(codes) > 0).sum()) if len(codes) else 0
