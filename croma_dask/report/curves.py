"""Curves of a report: RI and MaRI by k, CRoMa by m."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from croma_dask.report.pick import interval, m_values, number
from croma_dask.report.words import Words

if TYPE_CHECKING:
    import xarray as xr

__all__ = ["k_curves", "m_sweep"]

Nodes = dict[str, "xr.Dataset"]


def k_curves(nodes: Nodes, names: list[str], words: Words) -> list[dict[str, Any]]:
    """Pooled value at every candidate k, and how well the label is told from k neighbours.

    Returns
    -------
    list of dict
        Charts (`title`, `x`, `series`, `text`), each with the `table` of what it draws; empty
        where a single k was asked for.
    """
    charts = []
    for metric in ("RI", "MaRI"):
        if metric not in nodes or nodes[metric].sizes.get("k_candidate", 1) < 2:
            continue
        dataset = nodes[metric]
        ks = [int(k) for k in dataset["k_candidate"].values]
        order = sorted(range(len(ks)), key=ks.__getitem__)
        charts.append(
            _chart(
                f"{metric} by k", "k, nearest neighbours looked at", metric,
                [ks[j] for j in order], names,
                [
                    [number(dataset, "curve", model=i, k_candidate=j) for j in order]
                    for i in range(len(names))
                ],
                f"Above 0.5 the {words.label} prevails among the neighbours that tell the two "
                f"apart. A dot marks the operating k, at which the {words.label} is told best from "
                "the neighbours.",
                neutral=0.5, least=0.0,
                marks=[int(number(dataset, "k", model=i)) for i in range(len(names))],
            )
        )  # fmt: skip
    first = next((nodes[m] for m in ("RI", "MaRI") if m in nodes), None)
    if charts and first is not None:
        ks = [int(k) for k in first["k_candidate"].values]
        order = sorted(range(len(ks)), key=ks.__getitem__)
        charts.append(
            _chart(
                f"How well the {words.label} is told from k neighbours",
                "k, nearest neighbours looked at", "balanced accuracy",
                [ks[j] for j in order], names,
                [
                    [number(first, "balanced_accuracy", model=i, k_candidate=j) for j in order]
                    for i in range(len(names))
                ],
                "The operating k is the candidate with the highest balanced accuracy.", least=0.0,
                marks=[int(number(first, "k", model=i)) for i in range(len(names))],
            )
        )  # fmt: skip
    return charts


def m_sweep(nodes: Nodes, intervals: Nodes, names: list[str], words: Words) -> list[dict[str, Any]]:
    """CRoMa's value, lower-tail mean and F(0) at every m; empty for a single m."""
    croma = nodes.get("CRoMa")
    if croma is None or len(m_values(croma)) < 2:
        return []
    every = m_values(croma)
    order = sorted(range(len(every)), key=every.__getitem__)
    charts = []
    for variable, title, text in (
        ("value", "CRoMa value by m", f"Above 0 the {words.label} prevails."),
        ("ltm_alpha", "Lower-tail mean by m", "Mean margin over the worst of them."),
        ("f0", "F(0) by m", f"Share of the {words.units} at which {words.confounder} wins."),
    ):
        cells = [
            [
                interval(
                    intervals.get("CRoMa"), variable, number(croma, variable, model=i, m=j),
                    model=i, m=j,
                )
                for j in order
            ]
            for i in range(len(names))
        ]  # fmt: skip
        charts.append(
            _chart(
                title, f"m, nearest {words.units} of each type looked at",
                title.removesuffix(" by m"),
                [every[j] for j in order], names, cells, text,
                neutral=None if variable == "f0" else 0.0, percent=variable == "f0",
                least=0.0 if variable == "f0" else -1.0,
            )
        )  # fmt: skip
    return charts


def _chart(
    title: str, x_title: str, y_title: str, x: list[int], names: list[str], cells: list[list[Any]],
    text: str, *, neutral: float | None = None, percent: bool = False,
    least: float, marks: list[int] | None = None,
) -> dict[str, Any]:  # fmt: skip
    """Chart with the table of what it draws; a cell is a number, or one with its interval."""
    spread = any(isinstance(c, list) for row in cells for c in row)
    kind = ("percent " if percent else "") + ("interval" if spread else "")
    kind = kind.strip() or "number"
    return {
        "title": title, "x_title": x_title, "y_title": y_title, "x": x, "text": text,
        "neutral": neutral, "percent": percent, "least": least,
        "series": [
            {"name": name, "y": [c[0] if isinstance(c, list) else c for c in row],
             "mark": None if marks is None else marks[i]}
            for i, (name, row) in enumerate(zip(names, cells, strict=True))
        ],
        "table": {
            "columns": [
                {"title": "Model", "kind": "text"},
                *({"title": f"{x_title.split(',')[0]} = {at}", "kind": kind} for at in x),
            ],
            "rows": [[name, *row] for name, row in zip(names, cells, strict=True)],
        },
    }  # fmt: skip
