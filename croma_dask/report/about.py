"""What was computed: the terms of a scored cohort, and what each metric means."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from croma_dask.report.pick import UNNAMED, fact, m_values, number, scored
from croma_dask.report.words import Words, counted, listed

if TYPE_CHECKING:
    import xarray as xr

__all__ = ["definitions", "facts", "lead", "model_table"]

Nodes = dict[str, "xr.Dataset"]

CITE = (
    "Cite the croma_dask release above together with the publications of the metrics you report, "
    "and give k, m, alpha and the fingerprints below, so that others can repeat the computation."
)


def lead(nodes: Nodes, names: list[str], words: Words) -> str:
    """Describe what was scored in a sentence; rows that were left out are not of it."""
    dataset = next(iter(nodes.values()))
    rows = scored(dataset)
    labels, confounders, groups = (
        sorted(set(np.asarray(dataset[name].values)[rows].tolist()))
        for name in ("label", "confounder", "group_id")
    )
    n_subsets = len(set(np.asarray(dataset["sample_subset"].values)[rows].tolist()))
    subsets = (
        f" Neighbours are looked for within {counted(n_subsets, 'paired 2 x 2 subset')}."
        if words.paired
        else ""
    )
    models = f"{len(names)} models" if len(names) > 1 else "one embedding"
    return (
        f"{counted(int(rows.sum()), words.unit)} with {counted(len(labels), 'level')} of "
        f"{words.label} ({listed(labels)}) and {len(confounders)} of {words.confounder} "
        f"({listed(confounders)}), in {counted(len(groups), 'group')} ({words.group}), scored for "
        f"{models}.{subsets}"
    )


def definitions(nodes: Nodes, words: Words) -> list[list[str]]:
    """Say of each metric what it means: term and definition, in two sentences each."""
    choice = nodes["MaRI"].attrs.get("tau_choice") if "MaRI" in nodes else "recommended"
    tau = {
        "pinned": "a distance that was given (above)",
        "recommended": "the median distance of such neighbours",
    }.get(str(choice), "a distance (above), by default the median of such neighbours")
    value = "the median over the subsets of their medians" if words.paired else "the median"
    return [
        [
            "RI, robustness index",
            f"Among the k nearest neighbours of all {words.units}: the share that have the "
            f"{words.unit}'s label but another confounder, of those that share exactly one of the "
            "two. 0 to 1; 0.5 is neutral.",
        ],
        [
            "MaRI, margin-aware robustness index",
            "RI with each neighbour weighted by exp(-d / tau), d its cosine distance and tau "
            f"{tau}: near ones count more. 0 to 1; 0.5 is neutral.",
        ],
        [
            "CRoMa, cross-confounder robustness margin",
            f"Of each {words.unit}, (d_OS - d_SO) / (d_OS + d_SO): d_SO is the mean cosine "
            f"distance to the m nearest {words.units} of the same label and another confounder, "
            "d_OS to the m nearest of another label and the same confounder. -1 to 1; the value is "
            f"{value}, above 0 the label is nearer.",
        ],
        [
            "Lower-tail mean",
            f"Mean of the margins at or below their alpha-quantile: how the worst {words.units} "
            "fare. It does not get better when the good ones do.",
        ],
        [
            "F(0)",
            f"Share of the {words.units} whose margin is 0 or below: there the confounder is at "
            "least as near as the label. Lower is better.",
        ],
        [
            "Support",
            f"Share of the {words.units} that have a value. What a metric says holds for these "
            "alone.",
        ],
    ]


def facts(nodes: Nodes, intervals: Nodes, words: Words) -> list[list[str]]:
    """Terms and values that all models share."""
    dataset = next(iter(nodes.values()))
    attrs = dataset.attrs
    named = str(attrs.get("dataset", "")) not in ("", UNNAMED)
    found = [
        *([["Data set", str(attrs["dataset"])]] if named else []),
        [
            "Design",
            "paired_2x2: neighbours within 2 x 2 subsets, a unit is an occurrence"
            if words.paired
            else "all: every sample of another group may be a neighbour",
        ],
        ["Label column", words.label],
        ["Confounder column", words.confounder],
        ["Group column", f"{words.group}: samples of one group are never neighbours"],
        [
            "Rows",
            f"{attrs.get('n_rows', 0):,}, of which {attrs.get('n_rows_used', 0):,} were scored",
        ],
        ["Distance", str(attrs.get("distance", ""))],
    ]
    if "RI" in nodes or "MaRI" in nodes:
        index = nodes.get("RI", nodes.get("MaRI"))
        assert index is not None
        ks = ", ".join(str(int(k)) for k in index["k_candidate"].values)
        found.append(["Candidates for k", ks])
    if "CRoMa" in nodes:
        croma = nodes["CRoMa"]
        found.append(["m", ", ".join(map(str, m_values(croma)))])
        found.append(["alpha", f"{float(croma.attrs['alpha']):g}"])
    if intervals:
        draws = next(iter(intervals.values())).attrs
        found.append(
            [
                "Intervals",
                f"{100 * float(draws.get('level', 0.95)):g} % percentile intervals of "
                f"{draws.get('n_draws')} bootstrap draws of whole groups ({words.group}), seed "
                f"{draws.get('seed')}; neighbours, k and tau are held fixed",
            ]
        )
    found += [
        ["Fingerprint of the manifest", str(attrs.get("manifest_fingerprint", ""))],
        ["croma_dask", str(attrs.get("croma_dask_version", ""))],
        ["Definition of the metrics", f"version {attrs.get('metric_version', '')}"],
        ["Scored", str(attrs.get("created", ""))],
        ["How to cite", CITE],
    ]
    return found


def model_table(nodes: Nodes, names: list[str]) -> dict[str, Any]:
    """Table of what differs from model to model."""
    dataset = next(iter(nodes.values()))
    index = nodes.get("RI", nodes.get("MaRI"))
    columns: list[dict[str, Any]] = [
        {"title": "Model", "kind": "text"},
        {"title": "Features", "kind": "integer"},
        {"title": "Type", "kind": "text"},
        {"title": "Search", "kind": "text"},
        {"title": "Recall", "kind": "percent"},
        {"title": "k", "kind": "integer"},
        {"title": "tau", "kind": "number"},
        {"title": "Zero rows", "kind": "integer"},
        {"title": "Fingerprint of the embedding", "kind": "code"},
    ]
    rows = [
        [
            name,
            fact(dataset, "n_features", i),
            str(fact(dataset, "dtype", i, "")),
            str(fact(dataset, "index", i, "")),
            fact(dataset, "recall", i),
            number(index, "k", model=i),
            number(nodes.get("MaRI"), "tau", model=i),
            fact(dataset, "n_zero_rows", i),
            str(fact(dataset, "embedding_fingerprint", i, "")),
        ]
        for i, name in enumerate(names)
    ]
    return {"columns": columns, "rows": rows}
