"""Embeddings with a label and a batch, real and generated, on which the benchmark is compared.

Names of generated labels and batches mix cases and digits, so that the order of code points is
neither that of the alphabet nor that of the sizes. Rows are shuffled: no order is given away.
"""

from __future__ import annotations

import importlib.util
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

__all__ = ["AWKWARD", "GENERATED", "Embedding", "pbmc68k", "symphony"]


@dataclass(frozen=True)
class Embedding:
    """Rows and what is known of them.

    Attributes
    ----------
    x
        (n, d) float32 or float64.
    obs
        One row a cell: `sample_id` (also the index), `cell_type`, `batch_id` and perhaps more.
    """

    x: np.ndarray
    obs: pd.DataFrame

    def __len__(self) -> int:
        return len(self.obs)


def _frame(label: Any, batch: Any, sample_id: Any = None, **more: Any) -> pd.DataFrame:
    n = len(label)
    ids = [f"cell-{i:04d}" for i in range(n)] if sample_id is None else [str(v) for v in sample_id]
    frame = pd.DataFrame(
        {
            "sample_id": ids,
            "cell_type": np.asarray(label, dtype=object),
            "batch_id": np.asarray(batch, dtype=object),
            **more,
        }
    )
    return frame.set_index(pd.Index(ids, name="cell"))


# ---- real ------------------------------------------------------------------------------------


def symphony(shared_data: Path) -> Embedding:
    """1,200 blood cells of three donors, 20 components, with fine and broad labels."""
    folder = shared_data / "symphony_pbmc1200"
    obs = pd.read_csv(folder / "obs.csv", dtype=str, keep_default_na=False)
    broad = obs["cell_type_broad"].to_numpy(dtype=object)
    frame = _frame(obs["cell_type"], obs["donor"], obs["sample_id"], cell_type_broad=broad)
    return Embedding(np.load(folder / "X.npy"), frame)


def pbmc68k() -> Embedding:
    """700 blood cells that scanpy carries, 50 components; the phase of a cell is its batch."""
    import anndata

    spec = importlib.util.find_spec("scanpy")
    assert spec is not None, "scanpy belongs to the extra 'test'"
    assert spec.submodule_search_locations is not None
    (folder,) = spec.submodule_search_locations
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the file is older than today's layout
        data = anndata.read_h5ad(Path(folder) / "datasets" / "10x_pbmc68k_reduced.h5ad")
    obs = data.obs
    frame = _frame(obs["bulk_labels"].astype(str), obs["phase"].astype(str), obs.index)
    return Embedding(np.asarray(data.obsm["X_pca"]), frame)


# ---- generated -------------------------------------------------------------------------------


def _names(kinds: Sequence[tuple[str, int]]) -> np.ndarray:
    """Repeat each name as often as it is asked for."""
    return np.repeat(np.array([k for k, _ in kinds], dtype=object), [n for _, n in kinds])


def _cells(
    seed: int,
    labels: np.ndarray,
    batches: np.ndarray,
    n_features: int,
    *,
    biology: float = 1.0,
    shortcut: float = 0.5,
) -> np.ndarray:
    """Rows that follow their label and, differently within each label, their batch."""
    rng = np.random.default_rng(seed)
    label_names, label = np.unique(labels, return_inverse=True)
    batch_names, batch = np.unique(batches, return_inverse=True)
    centre = biology * rng.normal(size=(len(label_names), n_features))
    shift = shortcut * rng.normal(size=(len(label_names), len(batch_names), n_features))
    spread = rng.uniform(0.6, 1.4, size=(len(label_names), 1))
    scale = np.linspace(2.0, 0.3, n_features)  # as components are: a few matter most
    x = centre[label] + shift[label, batch] + spread[label] * rng.normal(size=(len(label), 1))
    return scale * (x + rng.normal(size=(len(label), n_features)))


def rare() -> Embedding:
    """1,500 cells of twelve labels, six of them with 1, 4, 5, 9, 10 and 12 cells; float32.

    Of four batches one has a single cell, and a label lies in one batch only. Three labels are torn
    apart, so that kBET finds their graphs in parts: "T10" in two that are both large enough, "b
    cell" with two small ones that may be left out, "Mono" with two of which too much is left out.
    """
    rng = np.random.default_rng(40)
    kinds = [
        ("T8", 420), ("b cell", 352), ("T10", 260), ("Mono", 211), ("NK", 126), ("dc", 90),
        ("Plt", 12), ("HSC", 10), ("pDC", 9), ("Ery", 5), ("Baso", 4), ("ILC", 1),
    ]  # fmt: skip
    labels = _names(kinds)
    batches = rng.choice(np.array(["run10", "run9", "Run2"], dtype=object), 1500, p=[0.6, 0.3, 0.1])
    batches[labels == "dc"] = "run9"
    x = _cells(41, labels, batches, 16)
    at = {name: np.flatnonzero(labels == name) for name, _ in kinds}
    x[at["T10"][:80], 0] += 40.0
    for axis in (1, 2):  # seventy cells each: lists of fifty stay among them
        x[at["Mono"][30 * axis : 30 * (axis + 1)], axis] += 40.0
        x[at["b cell"][40 * axis : 40 * (axis + 1)], axis] += 40.0
    batches[at["T8"][0]] = "alone"
    order = rng.permutation(1500)
    return Embedding(x[order].astype(np.float32), _frame(labels[order], batches[order]))


def one_batch() -> Embedding:
    """1,000 cells of five labels in one batch; float64."""
    rng = np.random.default_rng(50)
    labels = rng.choice(np.array(["c", "B", "a1", "a10", "a9"], dtype=object), 1000)
    batches = np.full(1000, "only", dtype=object)
    return Embedding(_cells(51, labels, batches, 12), _frame(labels, batches))


def one_label() -> Embedding:
    """1,000 cells of one label in three batches; float64."""
    rng = np.random.default_rng(60)
    batches = rng.choice(np.array(["x", "Y", "z1"], dtype=object), 1000, p=[0.5, 0.3, 0.2])
    labels = np.full(1000, "cell", dtype=object)
    return Embedding(_cells(61, labels, batches, 12), _frame(labels, batches))


def missing() -> Embedding:
    """1,100 cells, 40 without a label and 60 others without a batch, 5 without both; float64.

    Labels whose names look like missing ones ("nan", "NA", "unknown") are labels like any other.
    """
    rng = np.random.default_rng(70)
    names = np.array(["nan", "NA", "unknown", "T", "B"], dtype=object)
    labels = rng.choice(names, 1100, p=[0.25, 0.2, 0.05, 0.3, 0.2])
    batches = rng.choice(np.array(["None", "p2", "p10"], dtype=object), 1100, p=[0.4, 0.4, 0.2])
    x = _cells(71, labels, batches, 12, shortcut=0.2)
    out = rng.choice(1100, 105, replace=False)
    labels[out[:45]] = np.nan
    batches[out[40:]] = None
    return Embedding(x, _frame(labels, batches))


# ---- small and awkward -----------------------------------------------------------------------


def _small(seed: int, n: int = 240) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    labels = rng.choice(np.array(["k", "L", "m"], dtype=object), n)
    batches = rng.choice(np.array(["u", "V"], dtype=object), n)
    return _cells(seed + 1, labels, batches, 8, shortcut=0.3), labels, batches


def duplicated_cell() -> Embedding:
    """A cell that turns up twice, under the same label, in two batches."""
    x, labels, batches = _small(80)
    x[200], labels[200] = x[17], labels[17]
    batches[[17, 200]] = ["u", "V"]
    return Embedding(x, _frame(labels, batches))


def forty_identical() -> Embedding:
    """Forty cells at one and the same place, of all labels and batches."""
    x, labels, batches = _small(90)
    x[np.random.default_rng(92).choice(len(x), 40, replace=False)] = x[0]
    return Embedding(x.astype(np.float32), _frame(labels, batches))


def label_of_one() -> Embedding:
    """A label with a single cell."""
    x, labels, batches = _small(100)
    labels[31] = "A"
    return Embedding(x, _frame(labels, batches))


def batch_of_one() -> Embedding:
    """A batch with a single cell."""
    x, labels, batches = _small(110)
    batches[77] = "W"
    return Embedding(x, _frame(labels, batches))


GENERATED: dict[str, Callable[[], Embedding]] = {
    make.__name__: make for make in (rare, one_batch, one_label, missing)
}

AWKWARD: dict[str, Callable[[], Embedding]] = {
    make.__name__: make for make in (duplicated_cell, forty_identical, label_of_one, batch_of_one)
}
