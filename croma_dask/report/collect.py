"""From results to what a page shows: plain values, and blocks of arrays."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from croma_dask.report import about, cautions, curves, summary, tables
from croma_dask.report.encode import Blocks
from croma_dask.report.explorer import explorer
from croma_dask.report.inputs import Material
from croma_dask.report.others import benchmark_section, sweep_section
from croma_dask.report.pick import main_radius, number, radii
from croma_dask.report.words import Words
from croma_dask.schema import METRICS

if TYPE_CHECKING:
    import xarray as xr

__all__ = ["collect"]

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
        scored = _Scored.of(material.panel, n_draws, seed)
        payload |= scored.payload(blocks)
        heading = f"Robustness of {' and '.join(scored.names[:2])}"
        if len(scored.names) > 2:
            heading = f"Robustness of {len(scored.names)} models"
        elif not material.named:
            heading = "Robustness of an embedding"
        heading += f" to {scored.words.confounder}"
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
    payload["title"] = heading if title is None else title
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
            label=str(attrs.get("label_column", "label")),
            confounder=str(attrs.get("confounder_column", "confounder")),
            group=str(attrs.get("group_column", "group_id")),
            paired=attrs.get("evaluation_design") == "paired_2x2",
        )
        intervals, without = _intervals(panel, nodes, n_draws, seed, words)
        return cls(panel, nodes, names_of(panel), words, intervals, without)

    def payload(self, blocks: Blocks) -> dict[str, Any]:
        nodes, names, words, intervals = self.nodes, self.names, self.words, self.intervals
        found: dict[str, Any] = {
            "words": {
                "label": words.label, "confounder": words.confounder, "group": words.group,
                "unit": words.unit, "units": words.units, "subset": "subset",
            },
            "models": names,
            "lead": about.lead(nodes, names, words),
            "cautions": cautions.cautions(
                nodes, names, words,
                # The paired design asks for complete subsets, and not for all cells.
                empty=(0, []) if words.paired else tables.empty_cells(self.panel),
                without_intervals=self.without,
            ),
            "summary": {
                "text": self._summary_text(),
                "table": summary.summary_table(nodes, intervals, names, words),
                "caption": "Each model in numbers"
                + ("; below a value its interval" if intervals else ""),
                "more": summary.basis_table(nodes, names, words),
                "readings": summary.readings(nodes, intervals, names, words),
                "pareto": self._pareto(),
                "pairs": summary.pairs(nodes, intervals) if len(names) > 1 else [],
            },
            "curves": self._curves(),
            "about": {
                "facts": about.facts(nodes, intervals, words),
                "models": about.model_table(nodes, names),
                "definitions": about.DEFINITIONS,
                "library": LIBRARY,
            },
        }  # fmt: skip
        if "CRoMa" in nodes:
            every = radii(nodes["CRoMa"])
            found["explorer"] = explorer(nodes["CRoMa"], names, blocks)
            found["breakdowns"] = {
                **tables.breakdowns(self.panel, words),
                "m": every,
                "main_m": main_radius(every),
            }
        return found

    def _summary_text(self) -> str:
        words = self.words
        text = (
            "A sample is one row of the manifest, usually one image. Its nearest neighbours should "
            f"share its {words.label}, and should not depend on the {words.confounder}."
        )
        if self.intervals:
            draws = next(iter(self.intervals.values())).attrs
            text += (
                f" Intervals hold the middle {100 * float(draws.get('level', 0.95)):g} % of "
                f"{draws.get('n_draws')} draws of whole groups ({words.group}), each among the "
                "neighbours that it has here; those of another cohort would be about half as wide "
                "again."
            )
        return text

    def _pareto(self) -> list[dict[str, Any]]:
        croma = self.nodes.get("CRoMa")
        if croma is None or "pareto_front" not in croma:
            return []
        m = main_radius(radii(croma))
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


def _intervals(
    panel: xr.DataTree, nodes: dict[str, xr.Dataset], n_draws: int, seed: int, words: Words
) -> tuple[dict[str, xr.Dataset], str]:
    """Bootstrap by metric, and why there is none."""
    if n_draws == 0:
        return {}, "They were not asked for (0 draws): what is noise is not known."
    from croma_dask.uncertainty import bootstrap

    groups = next(iter(nodes.values()))["group_id"].values
    if len(set(groups.tolist())) < 2:
        return {}, f"All samples are of one group ({words.group}), and so cannot be drawn again."
    drawn = bootstrap(panel, n_draws=n_draws, seed=seed)
    return {name: node.to_dataset() for name, node in drawn.children.items()}, ""
