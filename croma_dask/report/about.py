"""What was computed: the terms of a scored cohort, and what each metric means."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from croma_dask.report.pick import fact, number, radii
from croma_dask.report.words import Words, listed

if TYPE_CHECKING:
    import xarray as xr

__all__ = ["DEFINITIONS", "facts", "lead", "model_table"]

Nodes = dict[str, "xr.Dataset"]

DEFINITIONS = [
    [
        "RI, robustness index",
        "Among the k nearest neighbours of all samples: the share that have the sample's label but "
        "another confounder, of those that share exactly one of the two. 0 to 1; 0.5 is neutral.",
    ],
    [
        "MaRI, margin-aware robustness index",
        "RI with each neighbour weighted by exp(-d / tau), d its cosine distance and tau the "
        "median distance of such neighbours: near ones count more. 0 to 1; 0.5 is neutral.",
    ],
    [
        "CRoMa, cross-confounder robustness margin",
        "Of each sample, (d_OS - d_SO) / (d_OS + d_SO): d_SO is the mean cosine distance to the m "
        "nearest samples of the same label and another confounder, d_OS to the m nearest of "
        "another label and the same confounder. -1 to 1; the value is the median, above 0 the "
        "label is nearer.",
    ],
    [
        "Lower-tail mean",
        "Mean of the margins at or below their alpha-quantile: how the worst samples fare. It does "
        "not get better when the good ones do.",
    ],
    [
        "F(0)",
        "Share of the samples whose margin is 0 or below: there the confounder is at least as near "
        "as the label. Lower is better.",
    ],
    [
        "Support",
        "Share of the samples that have a value. What a metric says holds for these alone.",
    ],
]
"""Term and definition, in two sentences each."""

CITE = (
    "Cite the croma_dask release above together with the publications of the metrics you report, "
    "and give k, m, alpha and the fingerprints below, so that others can repeat the computation."
)


def lead(nodes: Nodes, names: list[str], words: Words) -> str:
    """Describe the cohort in a sentence."""
    dataset = next(iter(nodes.values()))
    labels, confounders, groups = (
        sorted(set(np.asarray(dataset[name].values).tolist()))
        for name in ("label", "confounder", "group_id")
    )
    n = int(dataset.attrs.get("n_rows", dataset.sizes["sample"]))
    subsets = (
        f" Neighbours are looked for within {dataset.sizes['subset']} paired 2 x 2 subsets."
        if words.paired
        else ""
    )
    models = f"{len(names)} models" if len(names) > 1 else "one embedding"
    return (
        f"{n:,} {words.units} with {len(labels)} levels of {words.label} ({listed(labels)}) and "
        f"{len(confounders)} of {words.confounder} ({listed(confounders)}), in {len(groups):,} "
        f"groups ({words.group}), scored for {models}.{subsets}"
    )


def facts(nodes: Nodes, intervals: Nodes, words: Words) -> list[list[str]]:
    """Terms and values that all models share."""
    dataset = next(iter(nodes.values()))
    attrs = dataset.attrs
    found = [
        ["Data set", str(attrs.get("dataset", ""))],
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
        found.append(["m", ", ".join(map(str, radii(croma)))])
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
