"""The summary of a report: numbers of each model, sentences about them, who beats whom."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from croma_dask.report.pick import interval, m_values, main_m, number, ranked
from croma_dask.report.words import Words

if TYPE_CHECKING:
    import xarray as xr

__all__ = ["basis_table", "pairs", "readings", "summary_table"]

Nodes = dict[str, "xr.Dataset"]


def _statistics(words: Words) -> list[tuple[str, str, str, str]]:
    """Metric, variable, title, kind of cell: what is compared between models."""
    return [
        ("CRoMa", "value", words.value_title, "interval"),
        ("CRoMa", "ltm_alpha", "CRoMa lower-tail mean", "interval"),
        ("CRoMa", "f0", "F(0)", "percent interval"),
        ("RI", "value", "RI", "interval"),
        ("MaRI", "value", "MaRI", "interval"),
    ]


class _Columns:
    """A table, column by column."""

    def __init__(self, names: list[str]) -> None:
        self.columns: list[dict[str, Any]] = [{"title": "Model", "kind": "text"}]
        self.series: list[list[Any]] = [list(names)]

    def add(self, title: str, kind: str, values: list[Any], hint: str = "") -> None:
        self.columns.append({"title": title, "kind": kind, "hint": hint})
        self.series.append(values)

    def table(self, order: list[int]) -> dict[str, Any]:
        lines = list(zip(*self.series, strict=True))
        rows = [list(lines[i]) for i in order]
        return {"columns": self.columns, "rows": rows}


def summary_table(nodes: Nodes, intervals: Nodes, names: list[str], words: Words) -> dict[str, Any]:
    """Table with one line a model, the best ranked first: what is compared, with its intervals.

    Parameters
    ----------
    nodes, intervals
        Panel and its bootstrap, by metric; the latter may lack any.
    names
        Of the models.
    words
        Names of the columns.

    Returns
    -------
    dict
        `columns` and `rows` of a table.
    """
    made = _Columns(names)
    for metric, variable, title, kind in _statistics(words):
        if metric not in nodes:
            continue
        m = _main(nodes, metric)
        values = [
            interval(
                intervals.get(metric), variable, number(nodes[metric], variable, model=i, m=m),
                model=i, m=m,
            )
            for i in range(len(names))
        ]  # fmt: skip
        if variable == "f0":
            title = f"{words.confounder} wins, F(0)"
        made.add(title, kind, values, _hint(metric, variable, nodes, words))
    front = nodes.get("CRoMa")
    if front is not None and "pareto_front" in front and len(names) > 1:
        m = _main(nodes, "CRoMa")
        made.add(
            "Pareto front", "flag",
            [number(front, "pareto_front", model=i, m=m) == 1 for i in range(len(names))],
            "No other model is at least as good in both value and lower tail, and better in one.",
        )  # fmt: skip
    return made.table(ranked(nodes, len(names)))


def basis_table(nodes: Nodes, names: list[str], words: Words) -> dict[str, Any]:
    """Table with one line a model: its ranks among several, and what its values rest on."""
    made, each = _Columns(names), range(len(names))
    croma = nodes.get("CRoMa")
    if croma is not None and "mean_rank" in croma and len(names) > 1:
        m = _main(nodes, "CRoMa")
        for name, title in (
            ("mean_rank", "Mean rank"), ("value_rank", "Rank by CRoMa value"),
            ("ltm_rank", "Rank by lower tail"),
        ):  # fmt: skip
            made.add(title, "rank", [number(croma, name, model=i, m=m) for i in each])
    for metric, dataset in nodes.items():
        m = _main(nodes, metric)
        made.add(
            f"{metric} support", "percent",
            [number(dataset, "support", model=i, m=m) for i in each],
            f"Share of the {words.units} with a value.",
        )  # fmt: skip
    index = nodes.get("RI", nodes.get("MaRI"))
    if index is not None:
        made.add("Operating k", "integer", [number(index, "k", model=i) for i in each])
    with_ranks = made.columns[1]["kind"] == "rank"
    caption = "Ranks (1 is best), and what the values rest on" if with_ranks else "What it rests on"
    return {
        **made.table(ranked(nodes, len(names))), "caption": caption,
        **({"sort": [1, "ascending"]} if with_ranks else {}),
    }  # fmt: skip


def readings(
    nodes: Nodes, intervals: Nodes, names: list[str], words: Words
) -> list[dict[str, Any]]:
    """Say in sentences what the numbers of each model mean; the best ranked first."""
    found = []
    for i in ranked(nodes, len(names)):
        name = names[i]
        sentences = []
        if "CRoMa" in nodes:
            croma, draws, j = nodes["CRoMa"], intervals.get("CRoMa"), _main(nodes, "CRoMa")

            def read(variable: str) -> list[float]:
                value = number(croma, variable, model=i, m=j)  # noqa: B023
                return interval(draws, variable, value, model=i, m=j)  # noqa: B023

            m, support = m_values(croma)[j or 0], number(croma, "support", model=i, m=j)
            sentences += [
                words.margin(read("value"), m, support),
                words.wins(read("f0"), support),
                words.tail(read("ltm_alpha"), float(croma.attrs["alpha"]), support),
            ]
        for metric in ("RI", "MaRI"):
            if metric in nodes:
                value = number(nodes[metric], "value", model=i)
                sentences.append(
                    words.share(
                        metric, interval(intervals.get(metric), "value", value, model=i),
                        int(number(nodes[metric], "k", model=i)),
                        number(nodes[metric], "support", model=i),
                    )
                )  # fmt: skip
        found.append({"model": name, "sentences": [s for s in sentences if s]})
    return found


def pairs(nodes: Nodes, intervals: Nodes, words: Words) -> list[dict[str, Any]]:
    """Shares of the draws in which one model beats another, one table a statistic.

    Returns
    -------
    list of dict
        `title`, `better`, `difference`, `low`, `high`: (model, other) each; empty where there is
        one model or no bootstrap.
    """
    found = []
    for metric, variable, title, _ in _statistics(words):
        dataset = intervals.get(metric)
        if dataset is None or f"{variable}_better" not in dataset:
            continue
        j = _main(nodes, metric)

        def at(name: str) -> Any:
            array = dataset[name]  # noqa: B023
            return array.isel(m=j).values if "m" in array.dims else array.values  # noqa: B023

        found.append(
            {
                "title": title,
                "better": at(f"{variable}_better"),
                "difference": at(f"{variable}_difference"),
                "low": at(f"{variable}_difference_low"),
                "high": at(f"{variable}_difference_high"),
            }
        )
    return found


def _main(nodes: Nodes, metric: str) -> int | None:
    return main_m(m_values(nodes[metric])) if metric == "CRoMa" else None


def _hint(metric: str, variable: str, nodes: Nodes, words: Words) -> str:
    if metric == "CRoMa":
        m = m_values(nodes[metric])[_main(nodes, metric) or 0]
        alpha = float(nodes[metric].attrs["alpha"])
        return {
            "value": f"m = {m}. \N{MINUS SIGN}1 to 1; above 0 the {words.label} prevails.",
            "ltm_alpha": f"m = {m}. Mean over {words.worst(alpha)}.",
            "f0": f"m = {m}. Share of the {words.units} at which the {words.confounder} is "
            f"at least as near as the {words.label}; lower is better.",
        }[variable]
    return f"0 to 1; above 0.5 the {words.label} prevails."
