"""All commands of croma-dask, one after the other, over places of one kind."""

from __future__ import annotations

import io
import warnings
from collections.abc import Callable, Sequence

import numpy as np
import pandas as pd
from click.testing import CliRunner

from croma_dask.cli import main

N, D = 240, 12


def inputs() -> tuple[bytes, bytes]:
    """Make a .npy file of embeddings, in which labels and centers show, and a .csv manifest."""
    rng = np.random.default_rng(3)
    label = np.arange(N) % 2
    center = np.arange(N) // 2 % 3
    x = rng.standard_normal((N, D)) + 1.2 * label[:, None] + 0.6 * center[:, None]
    frame = pd.DataFrame({
        "sample_id": [f"s{i:04d}" for i in range(N)],
        "label": [f"l{i}" for i in label],
        "center": [f"c{i}" for i in center],
        "group_id": [f"g{i // 6}" for i in range(N)],
    })  # fmt: skip
    file = io.BytesIO()
    np.save(file, x.astype("f4"))
    return file.getvalue(), frame.to_csv(index=False).encode()


def steps(at: Callable[[str], str]) -> list[list[str]]:
    """Commands without storage options; `at` makes a place of a name."""
    design = ["--confounder", "center"]
    return [
        ["ingest", at("x.npy"), at("m.csv"), at("c.zarr"), "--chunk-rows", "64", "-q"],
        ["info", at("c.zarr"), "--verify", "--json"],
        ["plan", at("c.zarr"), *design, "--k", "5"],
        ["score", at("c.zarr"), *design, "--k", "5,11", "--m", "3", "--out", at("r.zarr"),
         "--keep-neighbors", at("kept.zarr"), "-q"],
        ["score", at("c.zarr"), *design, "--k", "5", "--m", "3", "--out", at("again.nc"),
         "--keep-neighbors", at("kept.zarr"), "-q"],
        ["score", at("c.zarr"), *design, "--k", "5", "--m", "3", "--out", at("r.csv"), "-q"],
        ["index", at("c.zarr"), "--kind", "ivf", "--out", at("c.ivf.zarr"), "-q"],
        ["score", at("c.zarr"), *design, "--k", "5", "--m", "3", "--index", at("c.ivf.zarr"),
         "--calibration", "120", "--out", at("ivf.json"), "-q"],
        ["bootstrap", at("r.zarr"), "--draws", "50", "--out", at("sure.zarr"), "-q"],
        ["breakdown", at("r.zarr"), "--by", "label", "--out", at("cells.csv"), "-q"],
        ["explain", at("c.zarr"), "s0007", "--neighbors", at("kept.zarr"), "--out",
         at("why.zarr"), "-q"],
        ["probe", at("c.zarr"), *design, "--schedule", "linear:10:2", "--validation-fraction",
         "0.2", "--out", at("sweep.zarr"), "-q"],
        ["benchmark", at("c.zarr"), "--label-key", "label", "--batch-key", "center",
         "--metrics", "ASW,iLISI", "--output-dir", at("tables"), "--out",
         at("bench.zarr"), "-q"],
        ["rank", at("bench.zarr"), "--draws", "50", "--out", at("ranks.csv"), "-q"],
        ["report", at("r.zarr"), at("sweep.zarr"), "--draws", "50", "--out", at("page.html"),
         "-q"],
    ]  # fmt: skip


def run(arguments: Sequence[str], code: int = 0) -> str:
    """Run one command, and look at its exit code."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        done = CliRunner().invoke(main, list(arguments))
    told = f"{arguments[0]}: exit {done.exit_code}\n{done.output}\n{done.exception!r}"
    if done.exception is not None and not isinstance(done.exception, SystemExit):
        raise AssertionError(told) from done.exception
    assert done.exit_code == code, told
    return done.output
