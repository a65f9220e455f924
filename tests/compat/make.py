"""Write the golden files of a release: one of everything that it leaves on disk, and its values.

    python tests/compat/make.py tests/compat/0.1.0.zip

Run it with the release that the files shall be of (its clone first in ``PYTHONPATH``), once, and
commit the archive: it is never made again. Nothing of the tests is imported, and only what the
release makes public. The archive's ``values.json`` holds every array as the release itself had it,
in memory or read back: shape, dtype, and the numbers, floats as hexadecimal ones.
"""

from __future__ import annotations

import json
import os
import shutil
import sys
import tempfile
import warnings
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

N, D = 120, 6
SCORE = {"confounder": "center", "k_candidates": [3, 5, 7], "m": [1, 2], "quiet": True}

RESULTS = (
    "scored", "pairs", "one", "panel", "bootstrapped", "sweep", "benchmark", "ranks", "breakdown",
)  # fmt: skip


def rows(seed: int, dtype: str) -> tuple[Any, pd.DataFrame]:
    """Embedding and manifest: 3 labels, 2 centres, 20 groups, awkward names, two 2 x 2 subsets."""
    rng = np.random.default_rng(seed)
    at = np.arange(N)
    label, center = at % 3, (at // 3) % 2
    x = rng.normal(size=(3, D))[label] + rng.normal(size=(2, D))[center] + rng.normal(size=(N, D))
    frame = pd.DataFrame(
        {
            "sample_id": [f"s{i:02d}" for i in at],
            "label": np.array(["tumour", "stroma", "<b>Lymphozyten, ü</b>"])[label],
            "center": np.array(["Zürich", "RUMC"])[center],
            "group_id": [f"slide-{i // 3}" for i in at],
            "age": [("" if i % 7 == 0 else str(20 + i)) for i in at],
        }
    )
    return x.astype(dtype), frame


def paired(x: Any, frame: pd.DataFrame) -> tuple[Any, pd.DataFrame]:
    """The same rows in two comparisons: tiles repeat."""
    first = frame[frame.label != "tumour"].assign(subset="stroma against lymphocytes")
    second = frame[frame.label != "stroma"].assign(subset="tumour against lymphocytes")
    both = pd.concat([first, second])
    taken = both.index.to_numpy()
    return x[taken], both.reset_index(drop=True)


def written(folder: Path) -> dict[str, Any]:
    """Write everything below a folder; returns the values by artifact."""
    import croma_dask as cd
    from croma_dask.cli import main

    x, frame = rows(0, "float32")
    values: dict[str, Any] = {}
    store = str(folder / "cohort.zarr")
    cd.write_cohort(store, x, frame, chunk_rows=16, progress=False)
    values["cohort.zarr"] = dump(cd.open_cohort(store))
    twice = str(folder / "paired.zarr")
    cd.write_cohort(twice, *paired(*rows(1, "float64")), progress=False)
    values["paired.zarr"] = dump(cd.open_cohort(twice))
    for kind in ("ivf", "pynndescent"):
        place = folder / f"cohort.{kind}.zarr"
        cd.build_index(store, kind, path=place, cluster_rows=15, n_neighbors=8, quiet=True)
        searched = cd.score(store, index=place, recall=0.5, calibration=100, **SCORE)
        values[place.name] = dump(searched)

    scored = cd.score(store, keep_neighbors=folder / "neighbors.zarr", **SCORE)
    with cd.open_neighbors(folder / "neighbors.zarr") as kept:
        values["neighbors.zarr"] = dump(kept)
    pairs = cd.score(twice, design="paired_2x2", **SCORE)
    other = cd.score(rows(2, "float16")[0], frame, **SCORE)
    for arguments in (
        f"probe {store} --confounder center --schedule linear:8:3 --confounders RUMC,Zürich "
        f"--labels stroma,tumour --iterations 3 --validation-fraction 0.2 "
        f"--out {folder / 'by-cli.zarr'} --quiet",
        f"benchmark {store} --label-key label --batch-key center --clustering kmeans "
        f"--method raw --output-dir {folder / 'tables'} --quiet",
    ):
        main(arguments.split(), standalone_mode=False)
    with cd.open_result(folder / "by-cli.zarr") as opened:
        sweep = opened.load()
    shutil.rmtree(folder / "by-cli.zarr")
    bench = cd.embedding_benchmark(
        {("set", "raw"): (x, frame), ("set", "other"): rows(2, "float64")},
        label="label", batch="center", clustering="kmeans", quiet=True,
    )  # fmt: skip
    ranks = cd.rank_embeddings(bench)
    results = {
        "scored": scored,
        "pairs": pairs,
        "one": scored["RI"].to_dataset(),
        "panel": cd.combine_results({"raw": scored, "ünder / other": other}),
        "bootstrapped": cd.bootstrap(scored, n_draws=50),
        "sweep": sweep,
        "benchmark": bench,
        "ranks": ranks,
        "breakdown": cd.breakdown(scored, "label"),
    }
    assert set(results) == set(RESULTS)
    for name, result in results.items():
        values[f"{name}.zarr"] = values[f"{name}.nc"] = dump(result)
        for suffix in ("zarr", "nc"):
            cd.results.save(result, folder / f"{name}.{suffix}")
        for suffix in ("csv", "json"):
            if name in ("scored", "benchmark", "sweep"):
                cd.results.save(result, folder / f"{name}.{suffix}")
    return values


def dump(result: Any) -> dict[str, Any]:
    """Every array of a Dataset, or of each node of a tree."""
    nodes = result.subtree if hasattr(result, "subtree") else [result]
    found = {}
    for node in nodes:
        path = getattr(node, "path", "/")
        dataset = node.to_dataset(inherit=False) if hasattr(node, "subtree") else node
        found[path] = {str(name): plain(v) for name, v in sorted(dataset.variables.items())}
    return found


def plain(variable: Any) -> dict[str, Any]:
    array = np.asarray(variable.values)
    if array.dtype.kind == "f":
        flat: list[Any] = [float(v).hex() for v in array.ravel()]
    elif array.dtype.kind in "biu":
        flat = array.ravel().tolist()
    else:
        flat = [str(v) for v in array.ravel()]
    kind = array.dtype.str.lstrip("<=|") if array.dtype.kind in "fiub" else "text"
    return {"dims": list(variable.dims), "dtype": kind, "shape": list(array.shape), "values": flat}


def pack(target: str) -> None:
    warnings.simplefilter("ignore")
    os.environ["TZ"] = "UTC"
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary) / "golden"
        folder.mkdir()
        values = written(folder)
        text = json.dumps(values, ensure_ascii=False, separators=(",", ":"))
        (folder / "values.json").write_text(text, encoding="utf-8")
        partial = Path(temporary) / "golden.zip"
        with zipfile.ZipFile(partial, "w", zipfile.ZIP_DEFLATED, compresslevel=9) as archive:
            for path in sorted(folder.rglob("*")):
                if path.is_file():
                    archive.write(path, path.relative_to(folder))
        shutil.copyfile(partial, target)


if __name__ == "__main__":
    pack(sys.argv[1])
