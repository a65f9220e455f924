"""From results to what a page shows: plain values, and blocks of arrays."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from croma_dask.report import about, cautions, curves, summary
from croma_dask.report.caution_leaning import index_leaning, margin_leaning
from croma_dask.report.encode import Blocks, printable
from croma_dask.report.explorer import Explorer
from croma_dask.report.inputs import Material
from croma_dask.report.others import benchmark_section, sweep_section
from croma_dask.report.pick import m_values, main_m, number, ranked, scored
from croma_dask.report.tables import Breakdowns, empty_cells
from croma_dask.report.words import Words, isolated, listed
from croma_dask.schema import METRICS

if TYPE_CHECKING:
    import xarray as xr

    from croma_dask.breakdown.leaning import Leaning

__all__ = ["collect"]

MOST_PAIRED = 60
"""Models of which every pair is shown: of a thousand the pairs would be most of the page."""

LIBRARY = (
    "Charts: Apache ECharts 6.1.0, under the Apache License 2.0, part of this file. The page asks "
    "the network for nothing, and its policy forbids it to."
)


def collect(
    material: Material, *, title: str | None, n_draws: int, seed: int
) -> tuple[dict[str, Any], Blocks]:
    """Gather what a report shows.

    Parameters
    ----------
    material
        The results.
    title
        Of the page; None: from what is in it.
    n_draws, seed
        Of the bootstrap; no intervals with 0 draws.

    Returns
    -------
    payload, blocks
        Plain values, for :func:`croma_dask.report.page.render`.
    """
    from croma_dask import __version__

    blocks = Blocks()
    payload: dict[str, Any] = {
        "version": __version__,
        "made": time.strftime("%Y-%m-%d %H:%M UTC", time.gmtime()),
        "curves": [],
        "about": {"facts": [], "models": None, "definitions": [], "library": LIBRARY},
    }
    if material.panel is not None:
        told = _Scored.of(material.panel, n_draws, seed)
        payload |= told.payload(blocks)
        heading = f"Robustness of {listed(told.names[:2])}"
        if len(told.names) > 2:
            heading = f"Robustness of {len(told.names)} models"
        elif not material.named:
            heading = "Robustness of an embedding"
        heading += f" to {told.words.confounder}"
    elif material.sweeps:
        heading = "Probe sweep" + (" and embedding benchmark" if material.benchmarks else "")
    else:
        heading = "Embedding benchmark"
    payload["others"] = [
        *(sweep_section(name, sweep) for name, sweep in material.sweeps.items()),
        *(benchmark_section(name, one) for name, one in material.benchmarks.items()),
    ]
    for i, one in enumerate(payload["others"]):
        one["id"] = f"other-{i}"
    payload["title"] = printable(heading if title is None else title)
    return payload, blocks


@dataclass
class _Scored:
    """Scored models of one cohort, with what is said of all of them."""

    panel: xr.DataTree
    nodes: dict[str, xr.Dataset]
    names: list[str]
    words: Words
    intervals: dict[str, xr.Dataset]
    without: str

    @classmethod
    def of(cls, panel: xr.DataTree, n_draws: int, seed: int) -> _Scored:
        from croma_dask.panel.models import datasets_of, names_of

        given = datasets_of(panel)
        # Files hold the metrics in the order of their names.
        nodes = {metric: given[metric] for metric in METRICS if metric in given}
        attrs = next(iter(nodes.values())).attrs
        words = Words(
            label=isolated(str(attrs.get("label_column", "label"))),
            confounder=isolated(str(attrs.get("confounder_column", "confounder"))),
            group=isolated(str(attrs.get("group_column", "group_id"))),
            paired=attrs.get("evaluation_design") == "paired_2x2",
        )
        intervals, without = _intervals(panel, nodes, n_draws, seed, words)
        return cls(panel, nodes, names_of(panel), words, intervals, without)

    def payload(self, blocks: Blocks) -> dict[str, Any]:
        nodes, names, words, intervals = self.nodes, self.names, self.words, self.intervals
        leaning = index_leaning(nodes)
        of_samples = self._of_samples(blocks, leaning) if "CRoMa" in nodes else {}
        found: dict[str, Any] = {
            "words": {
                "label": words.label, "confounder": words.confounder, "group": words.group,
                "unit": words.unit, "units": words.units, "subset": "subset",
            },
            "models": names,
            "best": ranked(nodes, len(names))[0],
            "lead": about.lead(nodes, names, words),
            "cautions": cautions.cautions(
                nodes, [isolated(name) for name in names], words,
                # The paired design asks for complete subsets, and not for all cells.
                empty=(0, []) if words.paired else empty_cells(self.panel),
                without_intervals=self.without,
                leaning=leaning,
            ),
            "summary": {
                "text": self._summary_text(),
                "table": summary.summary_table(nodes, intervals, names, words),
                "caption": "Each model in numbers"
                + (", best mean rank first" if _has_ranks(nodes) and len(names) > 1 else "")
                + ("; below a value its interval" if intervals else ""),
                "more": summary.basis_table(nodes, names, words),
                "readings": summary.readings(nodes, intervals, names, words),
                "pareto": self._pareto(),
                "axes": {
                    "value": words.value_title,
                    "typical": words.typical,
                    "worst": words.units,
                },
                "pairs": summary.pairs(nodes, intervals, words)
                if 1 < len(names) <= MOST_PAIRED
                else [],
            },
            "curves": self._curves(),
            "about": {
                "facts": about.facts(nodes, intervals, words),
                "models": about.model_table(nodes, names),
                "definitions": about.definitions(nodes, words),
                "library": LIBRARY,
            },
        }  # fmt: skip
        return found | of_samples

    def _of_samples(self, blocks: Blocks, leaning: list[Leaning]) -> dict[str, Any]:
        """Explorer and breakdowns, from the margins of one model after the other.

        What rests on one group is added to `leaning`.
        """
        croma = self.nodes["CRoMa"]
        explorer, breakdowns = Explorer(croma, blocks), Breakdowns(croma, self.words)
        # Ids are long; neither is needed for these.
        margins = croma.drop_vars(["sample_id", "defined"], errors="ignore")
        for i in range(croma.sizes["model"]):
            one = margins.isel(model=[i]).load()
            explorer.add(one)
            breakdowns.add(one)
            leaning += margin_leaning(one)
        return {"explorer": explorer.finish(self.names), "breakdowns": breakdowns.finish()}

    def _summary_text(self) -> str:
        words = self.words
        text = (
            "An occurrence is one row of the manifest: a sample in one of its subsets."
            if words.paired
            else "A sample is one row of the manifest, usually one image."
        )
        text += (
            f" Its nearest neighbours should share its {words.label}, and should not depend on the "
            f"{words.confounder}."
        )
        if self.intervals:
            draws = next(iter(self.intervals.values())).attrs
            text += (
                f" Intervals hold the middle {100 * float(draws.get('level', 0.95)):g} % of "
                f"{draws.get('n_draws')} draws of whole groups ({words.group}), each among the "
                "neighbours that it has here; those of another cohort would be about half as wide "
                "again."
            )
            if len(self.names) > MOST_PAIRED:
                text += (
                    " Pairs of so many models are not shown here; croma-dask bootstrap --out "
                    "writes them."
                )
        return text

    def _pareto(self) -> list[dict[str, Any]]:
        croma = self.nodes.get("CRoMa")
        if croma is None or "pareto_front" not in croma:
            return []
        m = main_m(m_values(croma))
        points = [
            {
                "name": name,
                "value": number(croma, "value", model=i, m=m),
                "tail": number(croma, "ltm_alpha", model=i, m=m),
                "front": number(croma, "pareto_front", model=i, m=m) == 1,
            }
            for i, name in enumerate(self.names)
        ]
        return [p for p in points if p["value"] == p["value"]]

    def _curves(self) -> list[dict[str, Any]]:
        by_k = curves.k_curves(self.nodes, self.names, self.words)
        by_m = curves.m_sweep(self.nodes, self.intervals, self.names, self.words)
        found = []
        if by_k:
            found.append(
                {
                    "id": "curves-k", "title": "RI and MaRI over k", "figures": by_k,
                    "text": "What looks robust at one k should do so at its neighbours.",
                }
            )  # fmt: skip
        if by_m:
            found.append(
                {
                    "id": "curves-m", "title": "CRoMa over m", "figures": by_m,
                    "text": "Small m looks at the very nearest samples, large m at neighbourhoods.",
                }
            )  # fmt: skip
        return found


def _has_ranks(nodes: dict[str, xr.Dataset]) -> bool:
    return "CRoMa" in nodes and "mean_rank" in nodes["CRoMa"]


def _intervals(
    panel: xr.DataTree, nodes: dict[str, xr.Dataset], n_draws: int, seed: int, words: Words
) -> tuple[dict[str, xr.Dataset], str]:
    """Bootstrap by metric, and why there is none."""
    if n_draws == 0:
        return {}, "They were not asked for (0 draws): what is noise is not known."
    from croma_dask.uncertainty import bootstrap

    first = next(iter(nodes.values()))
    if len(set(first["group_id"].values[scored(first)].tolist())) < 2:
        return (
            {},
            f"All {words.units} are of one group ({words.group}), and so cannot be drawn again.",
        )
    drawn = bootstrap(panel, n_draws=n_draws, seed=seed)
    return {name: node.to_dataset() for name, node in drawn.children.items()}, ""
