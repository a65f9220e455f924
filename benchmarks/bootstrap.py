"""The cluster bootstrap: its time and memory, and an implementation that puts rows together."""

from __future__ import annotations

import time
from typing import Any

import numpy as np
import xarray as xr

from benchmarks import child, timing

FEW_DRAWS = 5
"""Draws of the slow implementation, which takes most of a second for each."""

TAU = 0.3

SHAPES = ((1_000_000, 10_000, 1), (1_000_000, 100_000, 1), (100_000, 1_000, 12))
"""Rows, groups, models."""


def result(rows: int, groups: int, seed: int = 0) -> xr.DataTree:
    """A result with made-up values, as it would come of scoring: searching a million rows takes
    minutes, and a bootstrap looks at nothing of it but the values and the groups.
    """
    rng = np.random.default_rng(seed)
    group = rng.integers(0, groups, rows)
    names = np.char.add("slide-", np.arange(groups).astype(str)).astype(object)
    coords: dict[str, Any] = {
        "group_id": ("sample", names[group]),
        "sample_subset": ("sample", np.full(rows, "dataset", object)),
        "subset": ("subset", np.array(["dataset"], object)),
    }
    attrs = {"alpha": 0.1, "group_column": "group_id", "manifest_fingerprint": "made up"}
    why = ("sample", np.zeros(rows, np.int8))
    margin = np.tanh(0.2 + 0.2 * rng.normal(size=groups)[group] + 0.3 * rng.normal(size=rows))
    so = rng.binomial(11, 0.3 + 0.2 * rng.random(groups)[group]).astype(np.float64)
    os = rng.binomial(11 - so.astype(int), 0.4).astype(np.float64)
    nodes = {}
    distance = rng.random(rows)
    for name, scale in (("RI", np.ones(rows)), ("MaRI", np.exp(-distance / TAU))):
        evidence = {"so_evidence": ("sample", so), "os_evidence": ("sample", os)}
        value = {"value": (so * scale).sum() / ((so + os) * scale).sum(), "undefined_type": why}
        nodes[name] = xr.Dataset({**value, **evidence}, {**coords, "k": 11}, {"metric": name})
    nodes["MaRI"] = nodes["MaRI"].assign(evidence_distance=("sample", distance), tau=TAU)
    nodes["CRoMa"] = xr.Dataset(
        {
            "value": np.median(margin), "f0": (margin <= 0).mean(),
            "ltm_alpha": margin[margin <= np.quantile(margin, 0.1)].mean(),
            "sample_values": ("sample", margin), "undefined_type": why,
        },
        {**coords, "m": 5},
        {"metric": "CRoMa"},
    )  # fmt: skip
    for node in nodes.values():
        node.attrs |= attrs
    return xr.DataTree.from_dict(nodes)


def panel(rows: int, groups: int, models: int) -> xr.DataTree:
    """One result, or several of the same rows."""
    one = result(rows, groups)
    if models == 1:
        return one
    nodes = {}
    for name, node in one.children.items():
        alone = node.to_dataset()
        several = [alone * (1.0 - 0.01 * i) for i in range(models)]
        nodes[name] = xr.concat(several, "model", data_vars="all", coords="minimal")
        nodes[name] = nodes[name].assign_coords(model=[f"model {i}" for i in range(models)])
        nodes[name].attrs = alone.attrs
    return xr.DataTree.from_dict(nodes)


def measure(
    meter: child.Meter, rows: int, groups: int, models: int, n_draws: int
) -> dict[str, float]:
    """Seconds, those of the processor, and peak above what the process held with the result."""
    import croma_dask as cd

    scored = panel(rows, groups, models)
    timing.timed(lambda: cd.bootstrap(result(100, 10), n_draws=3))
    meter.peak()
    held = meter.peak()
    processor = time.process_time()
    seconds = timing.timed(lambda: cd.bootstrap(scored, n_draws=n_draws))
    processor = time.process_time() - processor
    return {"seconds": seconds, "processor": processor, "peak": meter.peak() - held}


def slow(meter: child.Meter, rows: int, groups: int, n_draws: int) -> dict[str, float]:
    """Processor seconds of a draw that puts the rows of the drawn groups together."""
    scored = result(rows, groups)
    margin = scored["CRoMa"].sample_values.values
    weight = np.exp(-scored["MaRI"].evidence_distance.values / TAU)
    evidence = [
        scored[name][f"{kind}_evidence"].values * scale
        for name, scale in (("RI", 1.0), ("MaRI", weight))
        for kind in ("so", "os")
    ]
    code = np.unique(scored["CRoMa"].group_id.values.astype(str), return_inverse=True)[1]
    of_group = np.split(np.argsort(code, kind="stable"), np.cumsum(np.bincount(code))[:-1])
    rng = np.random.default_rng(0)
    started = time.process_time()
    for _ in range(n_draws):
        drawn = np.concatenate([of_group[g] for g in rng.integers(groups, size=groups)])
        for so, os in (evidence[:2], evidence[2:]):
            so[drawn].sum() / (so[drawn].sum() + os[drawn].sum())
        mine = margin[drawn]
        np.median(mine)
        mine[mine <= np.quantile(mine, 0.1)].mean()
        np.mean(mine <= 0)
    return {"seconds": (time.process_time() - started) / n_draws}


def main(n_draws: int = 2_000, shapes: Any = SHAPES) -> None:
    """Measure every shape, and the slow implementation at the first one."""
    rows = []
    for n, groups, models in shapes:
        found = {
            threads: child.run(
                "bootstrap:measure", rows=n, groups=groups, models=models, n_draws=n_draws,
                threads=threads,
            )
            for threads in (2, 1)
        }  # fmt: skip
        rows.append(
            (f"{n:,} rows, {groups:,} groups, {models} model{'s' * (models > 1)}",
             f"{found[2]['seconds']:.1f}", f"{found[1]['seconds']:.1f}",
             f"{found[1]['processor']:.1f}",
             f"{found[2]['peak'] / 1e6:.0f} MB")
        )  # fmt: skip
    timing.table(
        [f"{n_draws:,} draws: RI, MaRI and CRoMa at one m", "seconds, 2 cores",
         "seconds, 1 core", "processor seconds, 1 core", "peak above the result"],
        rows,
    )  # fmt: skip
    n, groups, _ = shapes[0]
    each = child.run(
        "bootstrap:slow", rows=n, groups=groups, n_draws=FEW_DRAWS, threads=1
    )["seconds"]  # fmt: skip
    ours = float(rows[0][3])
    print(
        f"\nPutting rows together, with numpy: {each:.3f} processor seconds a draw, "
        f"{each * n_draws:,.0f} s for {n_draws:,} ({each * n_draws / ours:.0f} times ours)."
    )
