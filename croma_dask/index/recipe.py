"""With what an index is built, and what tells it from another one."""

from __future__ import annotations

import json
import operator
from dataclasses import dataclass
from typing import Any

from croma_dask import __version__
from croma_dask.errors import SchemaError
from croma_dask.kernels.frame import Distance

__all__ = ["KINDS", "Recipe", "library_of"]

KINDS = ("ivf", "pynndescent")

_LEAST = {"cluster_rows": 1, "shard_rows": 1, "n_neighbors": 1, "seed": 0}


@dataclass(frozen=True)
class Recipe:
    """With what an index is built.

    Attributes
    ----------
    kind
        ``ivf`` or ``pynndescent``.
    cluster_rows, shard_rows
        Rows of a cluster on average, and of a shard at most; None for what suits size and memory.
    n_neighbors
        Neighbours a row in the graph of a pynndescent index.
    seed
        Of everything random.
    distance
        ``cosine`` or ``euclidean``.
    """

    kind: str
    cluster_rows: int | None = None
    shard_rows: int | None = None
    n_neighbors: int = 60
    seed: int = 0
    distance: Distance = "cosine"

    def __post_init__(self) -> None:
        """Check the values."""
        if self.kind not in KINDS:
            raise SchemaError(
                f"there is no index of the kind {self.kind!r}; there are {', '.join(KINDS)}"
            )
        if self.distance not in ("cosine", "euclidean"):
            raise SchemaError(f"distance is 'cosine' or 'euclidean', found {self.distance!r}")
        for name, least in _LEAST.items():
            value = getattr(self, name)
            if value is None and name in ("cluster_rows", "shard_rows"):
                continue
            try:
                number = operator.index(value)
            except TypeError as err:
                raise SchemaError(f"{name} must be a whole number, found {value!r}") from err
            if isinstance(value, bool) or not least <= number < 1 << 32:
                raise SchemaError(
                    f"{name} must be at least {least} and below 2**32, found {value!r}"
                )
            object.__setattr__(self, name, number)

    def key(self, fingerprint: str) -> dict[str, Any]:
        """Return what tells this index from another one."""
        return {
            "kind": self.kind,
            "distance": self.distance,
            "embedding_fingerprint": fingerprint,
            "croma_dask_version": __version__,
            "library": library_of(self.kind),
            "parameters": json.dumps(self.parameters, sort_keys=True),
        }

    @property
    def parameters(self) -> dict[str, Any]:
        """What was asked for."""
        found: dict[str, Any] = {"cluster_rows": self.cluster_rows, "seed": self.seed}
        if self.kind == "pynndescent":
            found |= {"n_neighbors": self.n_neighbors, "shard_rows": self.shard_rows}
        return found


def library_of(kind: str) -> str:
    """Library whose arrays an index of a kind holds, with the version that is installed."""
    if kind != "pynndescent":
        return ""
    from croma_dask.index.descent import library_version

    return f"pynndescent {library_version()}"
