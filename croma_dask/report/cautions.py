"""What a reader has to know before the numbers: the first section of a report."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from croma_dask.report.caution_k import k_cautions
from croma_dask.report.caution_leaning import leaning_cautions
from croma_dask.report.caution_support import support_cautions
from croma_dask.report.pick import fact, m_values, main_m, number, scored
from croma_dask.report.words import Words, counted, isolated, listed, percent
from croma_dask.uncertainty.groups import FEW_GROUPS

if TYPE_CHECKING:
    import xarray as xr

    from croma_dask.breakdown.leaning import Leaning

__all__ = ["cautions"]

Nodes = dict[str, "xr.Dataset"]


def cautions(
    nodes: Nodes, names: list[str], words: Words, *, empty: tuple[int, list[tuple[str, str]]],
    without_intervals: str = "", leaning: Sequence[Leaning] = (),
) -> list[dict[str, str]]:  # fmt: skip
    """Collect the warnings that a result gives rise to.

    Parameters
    ----------
    nodes
        Panel, by metric.
    names, words
        Of the models and the columns.
    empty
        Number of label x confounder cells without samples, and the first of them.
    without_intervals
        Why there are no bootstrap intervals; empty where there are.
    leaning
        Values that rest on one group.

    Returns
    -------
    list of dict
        `title` and `text`; the most serious first.
    """
    croma = nodes.get("CRoMa")
    alpha = float("nan") if croma is None else float(croma.attrs["alpha"])
    found = [
        *leaning_cautions(leaning, names, words, alpha),
        *support_cautions(nodes, names, words),
        *_approximate(nodes, names),
        *_rows(nodes, names, words),
        *_same(nodes, names),
        *_operating_k(nodes, names),
        *_groups(nodes, words),
    ]
    n_empty, first = empty
    if n_empty:
        pairs = "; ".join(f"{isolated(a)} with {isolated(b)}" for a, b in first) + (
            f" and {n_empty - len(first)} more" if n_empty > len(first) else ""
        )
        found.append(
            (
                "Label and confounder do not cover each other",
                f"{counted(n_empty, 'combination')} of {words.label} and {words.confounder} "
                f"{'holds' if n_empty == 1 else 'hold'} no sample: {pairs}. There the two cannot "
                "be told apart.",
            )
        )
    if without_intervals:
        found.append(("No intervals", without_intervals))
    found += k_cautions(nodes, names)
    return [{"title": title, "text": text} for title, text in found]


def _of(names: list[str], i: int) -> str:
    return f"{names[i]}: " if len(names) > 1 else ""


def _approximate(nodes: Nodes, names: list[str]) -> Iterator[tuple[str, str]]:
    first = next(iter(nodes.values()))
    for i in range(len(names)):
        kind = fact(first, "index", i, "exact")
        if kind == "exact":
            continue
        said = []
        for metric, dataset in nodes.items():
            m = main_m(m_values(dataset)) if metric == "CRoMa" else None
            for variable, title in (
                ("value", metric), ("ltm_alpha", "lower-tail mean"), ("f0", "F(0)")
            ):  # fmt: skip
                low = number(dataset, f"{variable}_error_low", model=i, m=m)
                high = number(dataset, f"{variable}_error_high", model=i, m=m)
                value = number(dataset, variable, model=i, m=m)
                if low == low and high == high:
                    said.append(f"{title} {_digits(value - high)} to {_digits(value - low)}")
        recall = float(fact(first, "recall", i, float("nan")))
        yield (
            f"{_of(names, i)}neighbours are approximate ({kind})",
            f"{percent(recall)} of the true neighbours of a sample of rows were found. "
            + (
                f"An exact search would give, with 95 % confidence: {', '.join(said)}."
                if said
                else "How far that moves the values was not measured."
            ),
        )


def _digits(value: float) -> str:
    return f"{value:.4f}".replace("-", "\N{MINUS SIGN}")


def _rows(nodes: Nodes, names: list[str], words: Words) -> Iterator[tuple[str, str]]:
    first = next(iter(nodes.values()))
    every, used = first.attrs.get("n_rows"), first.attrs.get("n_rows_used")
    if every is not None and used is not None and used < every:
        yield (
            f"{every - used:,} of {every:,} rows {'was' if every - used == 1 else 'were'} left out",
            f"They belong to subsets that are no complete 2 x 2 of {words.label} and "
            f"{words.confounder}.",
        )
    for i in range(len(names)):
        zero = int(fact(first, "n_zero_rows", i, 0) or 0)
        if zero:
            yield (
                f"{_of(names, i)}{counted(zero, 'row')} of the embedding "
                f"{'is' if zero == 1 else 'are'} zero",
                f"{'It lies' if zero == 1 else 'They lie'} at the same distance from everything; "
                "often something has failed where the embedding was made.",
            )
    for metric, dataset in nodes.items():
        if "pair_values" not in dataset or dataset.sizes.get("subset", 1) < 2:
            continue
        array = dataset["pair_values"]
        values = array.transpose("subset", ...).values.reshape(array.sizes["subset"], -1)
        lost = np.isnan(values).any(axis=1)
        if lost.any():
            gone = dataset["subset"].values[lost].tolist()
            yield (
                f"{metric} has no value in {len(gone)} of {lost.size} subsets",
                f"They are left out of it: {listed(gone, 5)}.",
            )


def _same(nodes: Nodes, names: list[str]) -> Iterator[tuple[str, str]]:
    first = next(iter(nodes.values()))
    by_print: dict[Any, list[str]] = {}
    for i, name in enumerate(names):
        by_print.setdefault(fact(first, "embedding_fingerprint", i), []).append(name)
    for mark, models in by_print.items():
        if mark is not None and len(models) > 1:
            yield (
                f"{listed(models)} are the same embedding",
                "Their fingerprints are equal: probably one file was given under several names.",
            )


def _operating_k(nodes: Nodes, names: list[str]) -> Iterator[tuple[str, str]]:
    index = nodes.get("RI", nodes.get("MaRI"))
    if index is None:
        return
    ks = [int(number(index, "k", model=i)) for i in range(len(names))]
    if len(set(ks)) > 1:
        each = ", ".join(f"{name} {k}" for name, k in zip(names, ks, strict=True))
        yield (
            "RI and MaRI are read at different k",
            f"The operating k differs between models ({each}). Compare them with the curves over "
            "k as well.",
        )


def _groups(nodes: Nodes, words: Words) -> Iterator[tuple[str, str]]:
    first = next(iter(nodes.values()))
    n = len(set(np.asarray(first["group_id"].values)[scored(first)].tolist()))
    if n < FEW_GROUPS:
        yield (
            f"Only {counted(n, 'group')}",
            f"Intervals rest on drawing {words.group} again; from fewer than {FEW_GROUPS} they are "
            "too narrow, and a difference between models may be one of few groups.",
        )
