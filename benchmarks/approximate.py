"""The approximate index from 125,000 to a million rows, against the exact engine."""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from benchmarks import child, cohorts, extrapolated, timing

if TYPE_CHECKING:
    import xarray as xr

SIZES = (125_000, 250_000, 500_000, 1_000_000)
Row = dict[str, Any]


def make(_: child.Meter, place: str, n: int, d: int, rows: str) -> Row:
    """Write a store, in a child so that the manifest is not carried along."""
    source = cohorts.Clustered() if rows == "clustered" else cohorts.ISOTROPIC
    return {"place": source.store(Path(place), n, d)}


def through_index(
    meter: child.Meter, place: str, kind: str, folder: str, memory: str | None
) -> Row:
    """Build an index and score through it."""
    import croma_dask as cd

    timing.warm_up(kind)
    how: dict[str, Any] = {"memory": memory, "scratch": f"{folder}/scratch", "resume": False}
    plan = cd.plan(place, confounder="center", index=kind, memory=memory)
    auto = cd.plan(place, confounder="center", index="auto", memory=memory)
    index = f"{folder}/index.zarr"
    shutil.rmtree(index, ignore_errors=True)
    meter.peak()
    build = timing.timed(lambda: cd.build_index(place, kind, path=index, **how))
    peaks = [meter.peak()]
    found: list[xr.DataTree] = []
    score = timing.timed(
        lambda: found.append(cd.score(place, confounder="center", index=index, **how))
    )
    peaks.append(meter.peak())
    attrs = found[0]["RI"].attrs
    return {
        "build": build, "score": score, "peak_build": peaks[0], "peak_score": peaks[1],
        "planned": plan.peak_memory, "planned_seconds": plan.seconds, "auto": auto.choice.kind,
        "why": auto.choice.why, "recall": attrs["recall"], "probes": attrs["probes"],
        "clusters": attrs["n_clusters"], "radii": [attrs["so_radius"], attrs["os_radius"]],
        "recall_so": float(found[0]["CRoMa"]["recall_so"]),
        "recall_os": float(found[0]["CRoMa"]["recall_os"]), "k": int(found[0]["RI"]["k"]),
        "values": extrapolated.values_of(found[0]),
        "errors": {
            f"{metric} {name}": [float(found[0][metric][f"{name}_error{end}"])
                                 for end in ("", "_low", "_high")]
            for metric, name in extrapolated.POOLED
        },
    }  # fmt: skip


def main(
    sizes: Sequence[int] = SIZES, d: int = 512, kinds: Sequence[str] = ("ivf",),
    isotropic: int = 125_000, whole: int = 250_000, turns: int = 2, memory: str | None = None,
    folder: str | None = None,
) -> None:  # fmt: skip
    """Measure each size, and rows without structure beside them (0: without).

    Up to `whole` rows the exact engine is run to the end as well: for the extrapolation, and for
    the true errors. Stores stay in `folder`, or the one that CROMA_DASK_BENCH names.
    """
    found: dict[str, Row] = {}
    exact: dict[tuple[str, int], Row] = {}
    with cohorts.kept_folder(folder) as kept:
        for rows, n in [*(("clustered", n) for n in sizes), ("isotropic", isotropic)]:
            if not n:
                continue
            place = str(kept / f"{rows}-{n}-{d}.zarr")
            about: Row = {"place": place, "memory": memory, "folder": str(kept)}
            child.run("approximate:make", place=place, n=n, d=d, rows=rows)
            mine = child.run("extrapolated:tasks", turns=turns, **about)
            if n <= whole:
                mine |= {"whole": child.run("extrapolated:whole", **about)}
            exact[rows, n] = mine
            for kind in kinds:
                name = f"{n:,} {rows}" + (f", {kind}" if len(kinds) > 1 else "")
                found[name] = {
                    "rows": rows, "n": n, "kind": kind, "exact": mine,
                    **child.run("approximate:through_index", kind=kind, **about),
                }  # fmt: skip
    _tables(found, d)
    _growth(found, exact)
    for features in (d, 1_024):
        print(
            f"\nOn this machine `auto` takes the index from some "
            f"{extrapolated.auto_switches(features):,} rows x {features:,} on."
        )


def _tables(found: dict[str, Row], d: int) -> None:
    timing.table(
        [f"rows x {d:,}", "index, s", "score, s", "together", "plan said", "exact, from tasks",
         "exact, whole", "times as fast"],
        [
            (name, f"{r['build']:.1f}", f"{r['score']:.1f}", f"{r['build'] + r['score']:.1f}",
             f"{r['planned_seconds']:.0f}", f"{r['exact']['seconds']:.1f}",
             f"{r['exact']['whole']['seconds']:.1f}" if "whole" in r["exact"] else "",
             f"{r['exact']['seconds'] / (r['build'] + r['score']):.1f}")
            for name, r in found.items()
        ],
    )  # fmt: skip
    print()
    timing.table(
        ["", "recall@51", "recall SO", "recall OS", "clusters probed", "SO, OS radius",
         "peak of plan", "peak of index", "peak of score", "`auto` takes"],
        [
            (name, f"{r['recall']:.4f}", f"{r['recall_so']:.4f}", f"{r['recall_os']:.4f}",
             f"{r['probes']:,} of {r['clusters']:,}", f"{r['radii'][0]:,}, {r['radii'][1]:,}",
             f"{r['planned'] / 1e6:,.0f} MB", f"{r['peak_build'] / 1e6:,.0f} MB",
             f"{r['peak_score'] / 1e6:,.0f} MB", f"{r['auto']} ({r['why']})")
            for name, r in found.items()
        ],
    )  # fmt: skip
    print()
    lines = []
    for name, r in found.items():
        for value, (error, low, high) in r["errors"].items():
            lines.append((
                name, value, f"{r['values'][value]:.5f}", f"{error:+.5f}",
                f"{low:+.5f} to {high:+.5f}", _true_error(r, value),
            ))  # fmt: skip
    timing.table(["", "", "approximate", "estimated error", "95 % interval", "true error"], lines)


def _true_error(r: Row, value: str) -> str:
    """Approximate less exact value; at the same k as well, where they have chosen another one."""
    if "whole" not in r["exact"]:
        return ""
    whole = r["exact"]["whole"]
    text = f"{r['values'][value] - whole['values'][value]:+.5f}"
    if value in whole["curves"] and whole["k"] != r["k"]:
        same = r["values"][value] - whole["curves"][value][str(r["k"])]
        text += f" (k = {r['k']}, exact takes {whole['k']}; at {r['k']}: {same:+.5f})"
    return text


def _growth(found: dict[str, Row], exact: dict[tuple[str, int], Row]) -> None:
    """Exponents of a straight line through the logarithms, clustered rows alone."""

    def slope(points: list[tuple[int, float]]) -> str:
        if len(points) < 2:
            return ""
        n, seconds = np.log(np.array(points, float)).T
        return f"{np.polyfit(n, seconds, 1)[0]:.2f}"

    lines = []
    for kind in dict.fromkeys(r["kind"] for r in found.values()):
        mine = [r for r in found.values() if r["kind"] == kind and r["rows"] == "clustered"]
        lines.append((kind, *(
            slope([(r["n"], sum(r[part] for part in parts)) for r in mine])
            for parts in (("build",), ("score",), ("build", "score"))
        )))  # fmt: skip
    points = [(n, r["seconds"]) for (rows, n), r in exact.items() if rows == "clustered"]
    lines.append(("exact", "", "", slope(points)))
    print()
    timing.table(["cost grows with rows to the power of", "index", "score", "together"], lines)
