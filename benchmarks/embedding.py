"""The embedding benchmark: time, memory and growth of each metric, and the whole beside a peer."""

from __future__ import annotations

import os
import resource
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from benchmarks import child, cohorts, timing

Row = dict[str, Any]

OURS = {
    "NMI, HOM, COM, FMI, ARI (leiden)": ["NMI", "HOM", "COM", "FMI", "ARI"],
    "ASW": ["ASW"],
    "cLISI": ["cLISI"],
    "Acc@kNN": ["Acc@kNN"],
    "GC": ["GC"],
    "kBET": ["kBET"],
    "BRAS": ["BRAS"],
    "iLISI": ["iLISI"],
    "CiLISI": ["CiLISI"],
    "all thirteen": ["all"],
}
"""Each from nothing: those that look at neighbours search for them; all of them search once."""


def cells(n: int, d: int, n_labels: int = 20, n_batches: int = 8, seed: int = 0) -> Any:
    """Cells whose labels overlap a little, and whose batches are shifted."""
    rng = np.random.default_rng([seed, 5])
    labels = rng.choice(n_labels, n, p=rng.dirichlet(np.full(n_labels, 3.0)))
    batches = rng.integers(0, n_batches, n)
    scale = np.linspace(1.2, 0.3, d)
    centres = rng.normal(size=(n_labels, d)) * scale
    shifts = 0.3 * rng.normal(size=(n_batches, d)) * scale
    x = np.empty((n, d), np.float32)
    for lo in range(0, n, 65_536):
        part = slice(lo, lo + 65_536)
        noise = rng.normal(size=(labels[part].size, d)) * scale
        x[part] = centres[labels[part]] + shifts[batches[part]] + noise
    obs = pd.DataFrame({
        "cell_type": [f"type{c:02d}" for c in labels], "batch_id": [f"batch{b}" for b in batches],
    })  # fmt: skip
    return x, obs


def make(_: child.Meter, folder: str, n: int, d: int) -> Row:
    """Write a store and an h5ad file, in a child so that the rows are not carried along."""
    import anndata

    import croma_dask as cd

    place = Path(folder) / f"{n}x{d}"
    if not (place / "done").exists():
        place.mkdir(parents=True, exist_ok=True)
        x, obs = cells(n, d)
        frame = obs.assign(sample_id=[f"c{i}" for i in range(n)])
        cd.write_cohort(place / "cohort.zarr", x, frame, label="cell_type", overwrite=True)
        obs.index = frame["sample_id"]
        anndata.AnnData(x, obs=obs).write_h5ad(place / "cohort.h5ad")
        (place / "done").touch()
    return {"place": str(place)}


def ours(
    meter: child.Meter, place: str, metrics: list[str], memory: str | None = None,
    folder: str | None = None,
) -> Row:  # fmt: skip
    """Score a store; kernels are compiled before the clock starts."""
    import croma_dask as cd

    x, obs = cells(400, 8)
    how: Row = {"metrics": metrics, "batch": "batch_id"}
    timing.timed(lambda: cd.embedding_benchmark(np.tile(x, (6, 1)), pd.concat([obs] * 6), **how))
    store = f"{place}/cohort.zarr"
    plan = cd.plan_embedding_benchmark(store, memory=memory, **how)
    found: list[Any] = []
    meter.peak()
    seconds = timing.timed(lambda: found.append(cd.embedding_benchmark(
        store, memory=memory, scratch=folder, resume=False, quiet=False, **how
    )))  # fmt: skip
    values = {str(m): found[0].value.sel(metric=m).item() for m in found[0].metric.values}
    status = {str(m): str(found[0].status.sel(metric=m).item()) for m in found[0].metric.values}
    return {
        "seconds": seconds, "peak": meter.peak(), "values": values, "planned": plan.peak_memory,
        "planned_seconds": plan.seconds, "status": status,
        "children": resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss * 1024,
    }  # fmt: skip


def _loaded(place: str) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    import croma_dask as cd

    cohort = cd.open_cohort(f"{place}/cohort.zarr")
    return cohort.embedding.values, cohort.cell_type.values.astype(str), (
        cohort.batch_id.values.astype(str)
    )  # fmt: skip


def theirs(meter: child.Meter, place: str, what: str) -> Row:
    """One metric of scikit-learn or scib-metrics, rows in memory, as their documentation calls it.

    jax compiles for each shape, which is theirs to pay.
    """
    x, labels, batches = _loaded(place)
    call = _THEIRS[what]
    meter.peak()
    found: list[float] = []
    seconds = timing.timed(lambda: found.append(call(x, labels, batches)))
    return {"seconds": seconds, "peak": meter.peak(), "value": found[0]}


def _neighbors(x: np.ndarray, k: int) -> Any:
    from pynndescent import NNDescent
    from scib_metrics.nearest_neighbors import NeighborsResults

    index = NNDescent(x, n_neighbors=k, random_state=0, low_memory=True, n_jobs=-1)
    indices, distances = index.neighbor_graph
    return NeighborsResults(indices=indices, distances=distances)


def _silhouette(x: Any, labels: Any, batches: Any) -> float:
    from sklearn.metrics import silhouette_score

    return float(silhouette_score(x.astype(np.float64), labels))


def _bras(x: Any, labels: Any, batches: Any) -> float:
    import scib_metrics

    return float(scib_metrics.bras(x, labels, batches, between_cluster_distances="mean_other"))


def _clisi(x: Any, labels: Any, batches: Any) -> float:
    import scib_metrics

    return float(scib_metrics.clisi_knn(_neighbors(x, 90), labels))


def _ilisi(x: Any, labels: Any, batches: Any) -> float:
    import scib_metrics

    return float(scib_metrics.ilisi_knn(_neighbors(x, 90), batches))


def _kbet(x: Any, labels: Any, batches: Any) -> float:
    import scib_metrics

    return float(scib_metrics.kbet_per_label(_neighbors(x, 50), batches, labels))


def _connectivity(x: Any, labels: Any, batches: Any) -> float:
    import scib_metrics

    return float(scib_metrics.graph_connectivity(_neighbors(x, 15), labels))


def _votes(x: Any, labels: Any, batches: Any) -> float:
    from sklearn.model_selection import StratifiedKFold, cross_val_score
    from sklearn.neighbors import KNeighborsClassifier

    folds = StratifiedKFold(5, shuffle=True, random_state=42)
    model = KNeighborsClassifier(5)
    return float(cross_val_score(model, x.astype(np.float64), labels, cv=folds).mean())


_THEIRS: dict[str, Callable[[Any, Any, Any], float]] = {
    "ASW": _silhouette, "BRAS": _bras, "cLISI": _clisi, "iLISI": _ilisi, "kBET": _kbet,
    "GC": _connectivity, "Acc@kNN": _votes,
}  # fmt: skip


def whole(_: child.Meter, place: str, side: str, folder: str, python: str | None) -> Row:
    """A whole process from an h5ad file to its tables: ours, or the scorer of scfoundry.

    scanpy 1.11 fails above 8,192 rows beside pynndescent 0.7, which we need: `python` is that of an
    environment with scfoundry 0.2.1, pynndescent 0.5 and scipy 1.15.
    """
    source = Path(folder) / f"{side}-in" / "method"
    source.mkdir(parents=True, exist_ok=True)
    link = source / "cohort.h5ad"
    if not link.exists():
        os.link(f"{place}/cohort.h5ad", link)
    out = Path(folder) / f"{side}-out-{time.time_ns()}"
    if side == "ours":
        command = [str(Path(sys.executable).parent / "croma-dask"), "benchmark", str(source),
                   "--batch-key", "batch_id", "--output-dir", str(out), "-q"]  # fmt: skip
    else:
        python = python or sys.executable
        where = "import importlib.util as u; print(*u.find_spec('scfoundry').submodule_search_"
        found = subprocess.check_output([python, "-c", where + "locations)"], text=True)
        package = Path(found.strip())
        command = [python, str(package / "pipeline/bin/benchmark/embedding_metrics.py"),
                   "--embedding-dir", str(source), "--method", "method", "--output-dir", str(out),
                   "--metric-set", "all", "--clustering", "leiden"]  # fmt: skip
    started = time.perf_counter()
    done = subprocess.run(command, capture_output=True, text=True)
    seconds = time.perf_counter() - started
    if done.returncode:
        raise RuntimeError(done.stderr[-2000:])
    tables = sorted(out.rglob("*_wide.csv"))
    values: dict[str, float] = {}
    for table in tables:
        row = pd.read_csv(table).iloc[0]
        values |= {k: float(v) for k, v in row.items() if k not in ("sample_id", "method")}
    peak = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss * 1024
    return {"seconds": seconds, "peak": peak, "values": values}


def main(
    n: int = 200_000, d: int = 50, sizes: Sequence[int] = (50_000, 100_000, 200_000),
    peers: int = 50_000, threads: int = 2, large: tuple[int, int] = (60_000, 4_096),
    allowed: str = "800MB", only: Sequence[str] = ("metrics", "peers", "whole", "memory"),
    python: str | None = None, metrics: Sequence[str] = tuple(OURS),
    libraries: Sequence[str] = tuple(_THEIRS), folder: str | None = None,
) -> None:  # fmt: skip
    """Measure each metric, its growth, its peers, the whole, and a store larger than its memory.

    `sizes` are the cohorts of which growth is measured, the last of them `n`; `peers` is the size
    at which the other libraries are measured. `only` names parts; `python` is that of an
    environment in which scfoundry runs; `metrics` and `libraries` choose among the lines.
    """
    with cohorts.kept_folder(folder) as kept:
        place = {
            size: str(child.run("embedding:make", folder=str(kept), n=size, d=d)["place"])
            for size in sorted({*sizes, n, peers})
        }
        scratch = str(kept / "scratch")
        if "metrics" in only:
            _metrics(place, sizes, d, threads, scratch, metrics)
        if "peers" in only:
            _peers(place[peers], peers, d, threads, scratch, libraries)
        if "whole" in only:
            _whole(place[peers], peers, d, threads, str(kept), python)
        if "memory" in only:
            rows, features = large
            made = child.run("embedding:make", folder=str(kept), n=rows, d=features)
            found = child.run(
                "embedding:ours", threads=threads, place=made["place"], metrics=["all"],
                memory=allowed, folder=scratch,
            )  # fmt: skip
            _memory(found, rows, features, allowed)


def _metrics(
    place: dict[int, str], sizes: Sequence[int], d: int, threads: int, scratch: str,
    names: Sequence[str],
) -> None:  # fmt: skip
    rows = []
    for name in names:
        metrics = OURS[name]
        found = [
            child.run("embedding:ours", threads=threads, place=place[size], metrics=metrics,
                      folder=scratch)
            for size in sizes
        ]  # fmt: skip
        seconds = [one["seconds"] for one in found]
        exponent = float(np.polyfit(np.log(sizes), np.log(seconds), 1)[0])
        rows.append((
            name, *(f"{s:.1f}" for s in seconds), f"{exponent:.2f}",
            f"{found[-1]['peak'] / 1e6:,.0f} MB", f"{found[-1]['planned'] / 1e6:,.0f} MB",
        ))  # fmt: skip
    timing.table(
        [f"croma-dask from Zarr, {d} features, 20 labels, 8 batches, {threads} cores: seconds",
         *(f"{size:,}" for size in sizes), "exponent", f"peak at {sizes[-1]:,}", "plan"],
        rows,
    )  # fmt: skip


def _peers(place: str, n: int, d: int, threads: int, scratch: str, names: Sequence[str]) -> None:
    rows = []
    for name in names:
        mine = child.run("embedding:ours", threads=threads, place=place, metrics=[name],
                         folder=scratch)  # fmt: skip
        other = child.run("embedding:theirs", threads=threads, place=place, what=name)
        rows.append((
            name, f"{mine['seconds']:.2f}", f"{other['seconds']:.1f}",
            f"{other['seconds'] / mine['seconds']:.1f}", f"{mine['peak'] / 1e6:,.0f} MB",
            f"{other['peak'] / 1e6:,.0f} MB", f"{mine['values'][name]:.6f}",
            f"{other['value']:.6f}",
        ))  # fmt: skip
    print()
    timing.table(
        [f"{n:,} x {d}, {threads} cores", "ours, s", "theirs, s", "times as fast", "our peak",
         "their peak", "our value", "their value"],
        rows,
    )  # fmt: skip


def _whole(place: str, n: int, d: int, threads: int, folder: str, python: str | None) -> None:
    mine, other = (
        child.run(
            "embedding:whole", threads=threads, place=place, side=side, folder=folder, python=python
        )
        for side in ("ours", "theirs")
    )
    print()
    timing.table(
        [f"all thirteen, {n:,} x {d} in h5ad, tables out, {threads} cores", "croma-dask",
         "scfoundry 0.2.1", "ratio"],
        [
            ("seconds, whole process", f"{mine['seconds']:.1f}", f"{other['seconds']:.1f}",
             f"{other['seconds'] / mine['seconds']:.2f}"),
            ("peak of the largest process", f"{mine['peak'] / 1e6:,.0f} MB",
             f"{other['peak'] / 1e6:,.0f} MB", f"{other['peak'] / mine['peak']:.2f}"),
            *(
                (name, f"{mine['values'][name]:.6f}", f"{other['values'].get(name, np.nan):.6f}",
                 "")
                for name in mine["values"]
            ),
        ],
    )  # fmt: skip


def _memory(found: Row, n: int, d: int, allowed: str) -> None:
    bad = {name: status for name, status in found["status"].items() if status != "ok"}
    print()
    timing.table(
        [f"all thirteen, {n:,} x {d:,} ({n * d * 4 / 1e9:.2f} GB)", "allowed", "plan", "measured"],
        [
            (
                "peak above a bare Python",
                allowed,
                f"{found['planned'] / 1e6:.0f} MB",
                f"{found['peak'] / 1e6:.0f} MB, {found['seconds']:.0f} s",
            )
        ],
    )
    print(f"\nNot ok: {bad}" if bad else "\nEvery metric has its value.")
