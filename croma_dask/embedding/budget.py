"""Bytes of the steps of a benchmark that are not streamed, and how many of them fit at once."""

from __future__ import annotations

from dataclasses import dataclass

from croma_dask import memory
from croma_dask.embedding.connectivity import GC_NEIGHBORS
from croma_dask.embedding.leiden_runs import process_bytes
from croma_dask.embedding.rows import Rows
from croma_dask.errors import MemoryLimitError
from croma_dask.options import Options

__all__ = ["Budget", "at_once", "leiden_bytes"]

_EDGES = 11
"""Undirected edges a row of the graph of 15-lists, each once (spec: 10 to 12)."""

_SCORES = 7
"""Values of a row."""

_LIBRARIES = 200 << 20
"""scipy, igraph, scikit-learn and the compiled kernels of the metrics, beside `memory.LIBRARIES`:
all thirteen metrics of 2,000 cells take 534 MB above a bare Python (measured)."""


@dataclass(frozen=True)
class Budget:
    """What the driver of a benchmark holds.

    Attributes
    ----------
    n_rows
        Rows of the manifest.
    id_length
        Characters of an id.
    n_columns
        Columns of the store.
    """

    n_rows: int
    id_length: float = memory.ID_LENGTH
    n_columns: int = 0

    @classmethod
    def of(cls, rows: Rows) -> Budget:
        """Of the rows of an embedding."""
        return cls(rows.n_rows, rows.id_length, rows.n_columns)

    def search(self, n: int) -> int:
        """Bytes beside the search of n rows: libraries, codes, ids, values, edges of the graphs."""
        held = memory.manifest_bytes(
            self.n_rows, n_scores=_SCORES, id_length=self.id_length, n_columns=self.n_columns
        )
        return held + 4 * GC_NEIGHBORS * n + _LIBRARIES


def leiden_bytes(n: int) -> dict[str, int]:
    """Bytes of one process that clusters n rows, and of the graph while it is made."""
    return {
        "graph of a process": process_bytes(n, _EDGES * n),
        # Lists, weights, both directions, their sum and product.
        "graph being made": n * (GC_NEIGHBORS - 1) * (4 + 8) + 4 * 2 * _EDGES * n * 12,
    }


def at_once(what: str, one: int, held: int, options: Options, wanted: int) -> int:
    """How many of a thing fit the allowed memory side by side.

    Parameters
    ----------
    what
        What errors call it.
    one, held
        Bytes of one, and what the process holds besides.
    options
        Allowed memory.
    wanted
        At most so many.

    Raises
    ------
    MemoryLimitError
        Not even one fits.
    """
    allowed = memory.allowed_bytes(options.memory)
    room = allowed - memory.LIBRARIES - held
    if one > room:
        raise MemoryLimitError(
            f"{what} takes {memory.format_bytes(one)} beside {memory.format_bytes(held)} of values "
            f"and {memory.format_bytes(memory.LIBRARIES)} of libraries, over the allowed "
            f"{memory.format_bytes(allowed)}: raise memory= (--memory), or leave its metrics out"
        )
    return max(1, min(wanted, room // max(one, 1)))
