"""Small samples of cells as files, as a user has them for the embedding benchmark."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

__all__ = ["cells", "digest_tree", "write_h5ad"]


def cells(
    seed: int, n: int = 150, *, n_features: int = 6, n_labels: int = 3, n_batches: int = 2
) -> tuple[np.ndarray, pd.DataFrame]:
    """Rows that follow their label, and an obs: `cell_type`, `batch_id` and a second batch."""
    rng = np.random.default_rng(seed)
    label, batch = rng.integers(0, n_labels, n), rng.integers(0, n_batches, n)
    x = rng.normal(size=(n, n_features)) + 1.5 * rng.normal(size=(n_labels, n_features))[label]
    obs = pd.DataFrame(
        {
            "cell_type": pd.Categorical([f"T{k}" for k in label]),
            "batch_id": [f"b{k}" for k in batch],
            "site": [f"s{k}" for k in rng.integers(0, 2, n)],
        },
        index=[f"cell-{seed}-{i}" for i in range(n)],
    )
    return x.astype(np.float32), obs


def write_h5ad(path: Path, x: Any, obs: pd.DataFrame, **more: Any) -> Path:
    """Write an AnnData file, its folders with it."""
    import anndata

    path.parent.mkdir(parents=True, exist_ok=True)
    anndata.AnnData(x, obs=obs, **more).write_h5ad(path)
    return path


def digest_tree(folder: Path) -> dict[str, bytes]:
    """Content of every file below a folder, hidden ones too."""
    return {
        str(path.relative_to(folder)): path.read_bytes()
        for path in sorted(folder.rglob("*"))
        if path.is_file()
    }
