"""Ten million rows: how fast the plan comes, and how large the graph is."""

from __future__ import annotations

import json
import os
import tempfile
import time
from pathlib import Path

import numpy as np

from benchmarks import timing


def sparse_store(folder: Path, n: int, d: int) -> str:
    """A store whose embedding is a hole in the file system: right in size, zero in content."""
    import croma_dask as cd

    place = folder / "cohort.zarr"
    rng = np.random.default_rng(0)
    step = 4096
    cd.write_cohort(
        place,
        np.ones((step, d), np.float32),
        {
            "sample_id": np.arange(step).astype(str),
            "label": rng.integers(0, 5, step).astype(str),
            "group_id": (np.arange(step) // 50).astype(str),
            "center": rng.integers(0, 4, step).astype(str),
        },
    )
    _stretch(place, n, step)
    return str(place)


def _stretch(place: Path, n: int, step: int) -> None:
    """Let every array of a store of `step` rows claim n rows; chunks become holes or copies."""
    for meta in place.rglob("zarr.json"):
        described = json.loads(meta.read_text())
        if described.get("node_type") != "array" or described["shape"][0] != step:
            continue
        described["shape"][0] = n
        folder = meta.parent / "c"
        two = len(described["shape"]) == 2
        first = folder / "0" / "0" if two else folder / "0"
        content = first.read_bytes()
        rows = described["chunk_grid"]["configuration"]["chunk_shape"][0]
        if two:
            for number in range(-(-n // rows)):
                target = folder / str(number) / "0"
                target.parent.mkdir(exist_ok=True)
                with open(target, "wb") as f:
                    os.truncate(f.fileno(), rows * described["shape"][1] * 4)
        else:
            described["chunk_grid"]["configuration"]["chunk_shape"][0] = step
            for number in range(-(-n // step)):
                (folder / str(number)).write_bytes(content)
        meta.write_text(json.dumps(described))
    root = place / "zarr.json"
    described = json.loads(root.read_text())
    described.pop("consolidated_metadata", None)
    root.write_text(json.dumps(described))


def main(n: int = 10_000_000, d: int = 1_024, allowed: str = "8GB") -> None:
    """Measure."""
    import cloudpickle

    import croma_dask as cd
    from croma_dask.cohort.align import resolve
    from croma_dask.graph import pair_graph
    from croma_dask.index.scratch import Scratch
    from croma_dask.index.source import StoreSource
    from croma_dask.index.spec import ListSpec
    from croma_dask.index.streamed import Job
    from croma_dask.kernels.frame import Frame
    from croma_dask.layout import lay_out
    from croma_dask.options import Options

    with tempfile.TemporaryDirectory() as folder:
        place = sparse_store(Path(folder), n, d)
        started = time.perf_counter()
        plan = cd.plan(place, confounder="center", memory=allowed)
        seconds = time.perf_counter() - started
        print(plan, "\n")
        embedding, _ = resolve(cd.open_cohort(place), None, ())
        spec = ListSpec(51, 5)
        layout = lay_out(
            embedding, n, spec, Options(memory=allowed), n_tasks=plan.tasks_at_once, fixed=0
        )
        job = Job(
            StoreSource(embedding.data), Scratch(folder), layout.edges, layout.per_block, spec,
            Frame(np.zeros(d)),
        )  # fmt: skip
        size = len(cloudpickle.dumps(pair_graph(job)[0]))
    timing.table(
        [f"{n:,} x {d:,}", ""],
        [
            ("seconds until the plan is there", f"{seconds:.1f}"),
            ("tasks", f"{plan.n_tasks:,}"),
            ("graph, pickled", f"{size / 1024:.0f} kiB"),
        ],
    )
