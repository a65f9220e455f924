"""How many bytes each step needs: integer arithmetic, and the refusal that follows from it."""

from __future__ import annotations

import os
from dataclasses import dataclass

from croma_dask.errors import MemoryLimitError, SchemaError

__all__ = [
    "batch_bytes",
    "columns_bytes",
    "RangeCost",
    "allowed_bytes",
    "direct_bytes",
    "holds_ids",
    "id_bytes",
    "format_bytes",
    "largest_range",
    "manifest_bytes",
    "parse_bytes",
    "scratch_bytes",
    "streamed_bytes",
    "task_bytes",
]

TILE = 1024 * 2048 * 4
"""One tile of products (index/sweep.py)."""

TEXT_IN_MEMORY = 2_000_000
TEXT_LENGTH = 64 << 20
"""Samples, and characters of their ids together, up to which a result holds these; beyond, they
stay in the store until asked for."""

TEXT_BLOCK = 8 << 20
"""Bytes of ids that are read and looked at together."""

ID_LENGTH = 8.0
"""Characters of an id, where nothing else is known."""

_STRING = 57
"""Bytes of a string and of the pointer to it, beside its characters."""

MODEL = 64 << 10
"""Bytes of the result of a model of a panel, beside its values."""

_COLUMN = 24 << 10
"""Bytes that the metadata of a column of a store take once it is open (measured)."""

SMALLEST_RANGE = 256
"""Rows below which a range is not worth a task."""

_ROW_CODES = 64
"""Codes, positions, norms and half-norms of a row."""

_ROW_PROBES = 2048
"""Probes of a row, by row and by cluster: 8 bytes each, for up to 128 (index/probing.py)."""

INDEX_LIBRARIES = 110 << 20
"""The compiled kernels of an approximate search, beside `LIBRARIES` (measured)."""

INDEX_ROW = 110
"""Bytes a row that the driver of an approximate search holds at its worst moment: the order of the
index, its codes, counts of own groups while they are made (index/probing.py, measured)."""

_GATHERED = 3072
"""Rows that are gathered for one tile of probed pairs (index/probing.py)."""

LIBRARIES = 320 << 20
"""What the process holds once pandas, xarray, zarr, dask, numba and LLVM are loaded and the kernels
compiled: 312 MB above a bare Python (measured, benchmarks/README.md)."""

_SMALL_BLOCKS = 24 << 20
"""What the numpy search holds of a block of queries (index/small.py)."""

_TRANSIENT = 12 << 20
"""Blocks of rows being converted, pairs being measured (index/sweep.py, kernels/screen.py)."""


def format_bytes(n: float) -> str:
    """Write bytes as a person reads them: ``1.50 GB``."""
    for unit, size in (("TB", 1e12), ("GB", 1e9), ("MB", 1e6), ("kB", 1e3)):
        if abs(n) >= size:
            return f"{n / size:.2f} {unit}"
    return f"{n:.0f} B"


def parse_bytes(value: int | float | str) -> int:
    """Return the number of bytes in a number or a text such as ``"4GB"`` or ``"512MiB"``."""
    if isinstance(value, int | float):
        if value != value or abs(value) > 1e18:
            raise SchemaError(f"memory {value!r} is no size; write it as '512MB' or '4GB'")
        n = int(value)
    else:
        from dask.utils import parse_bytes as parse

        try:
            n = int(parse(value))
            if not value.strip():
                raise ValueError("empty")
        except (ValueError, OverflowError) as err:
            raise SchemaError(f"memory {value!r} is no size; write it as '512MB' or '4GB'") from err
    if n <= 0:
        raise SchemaError(f"memory must be above 0, found {value!r}")
    return n


def allowed_bytes(memory: int | str | None) -> int:
    """Bytes that a run in this process may take: what was asked for, or six tenths of what is."""
    if memory is not None:
        return parse_bytes(memory)
    total = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    for path in ("/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes"):
        try:
            with open(path) as f:
                total = min(total, int(f.read()))
        except (OSError, ValueError):
            continue
    return int(0.6 * total)


@dataclass(frozen=True)
class RangeCost:
    """What a range of rows costs while a task holds it.

    Attributes
    ----------
    n_features, itemsize
        Length of a row, and bytes of a native value (4 or 8).
    screened
        Screened entries of a row over the three lists.
    chunk
        Bytes of one chunk as it is read.
    probed
        Whether rows look through an index.
    """

    n_features: int
    itemsize: int
    screened: int
    chunk: int
    probed: bool = False

    @property
    def row(self) -> int:
        """Bytes of a row: exact values, screening values, codes, probes."""
        probes = _ROW_PROBES if self.probed else 0
        return self.n_features * (self.itemsize + 4) + _ROW_CODES + probes

    @property
    def lists(self) -> int:
        """Bytes of a row's lists: a buffer of keys twice the screened length, known distances."""
        return 28 * self.screened

    @property
    def closing(self) -> int:
        """Bytes of a row while its lists are measured, sorted and packed (one range at a time)."""
        return 40 * self.screened


def id_bytes(n_rows: int, length: float) -> int:
    """Bytes of ids of so many characters on average, as Python holds text."""
    return int(n_rows * (_STRING + length))


def holds_ids(n_rows: int, length: float) -> bool:
    """Tell whether a result holds its ids, instead of leaving them where they are."""
    return n_rows <= TEXT_IN_MEMORY and n_rows * length <= TEXT_LENGTH


def columns_bytes(n_columns: int) -> int:
    """Bytes of what is known of the columns of a store once it is open."""
    return _COLUMN * n_columns


def manifest_bytes(
    n_rows: int, *, n_scores: int, id_length: float = ID_LENGTH, n_columns: int = 0
) -> int:
    """Bytes of codes, hashes of ids, text coordinates and per-sample results in the driver.

    Parameters
    ----------
    n_rows, n_scores
        Samples, and values that each has.
    id_length
        Characters of an id, on average. Ids are held as `holds_ids` says.
    n_columns
        Columns of the store.
    """
    ids = id_bytes(n_rows, id_length)
    # What is read or saved at once is there as it is stored, decoded and as Python's strings.
    block = 3 * int(n_rows * id_length)
    if not holds_ids(n_rows, id_length):
        # A few blocks side by side, where threads of Dask save them.
        ids, block = 0, 16 * min(ids, TEXT_BLOCK)
    return n_rows * (3 * 4 + 24 + 4 * 8 + 9 * n_scores) + ids + block + columns_bytes(n_columns)


def task_bytes(cost: RangeCost, rows: int) -> dict[str, int]:
    """Bytes of a task on two ranges of `rows` rows, term by term."""
    return {
        "rows": 2 * rows * cost.row,
        "lists": 2 * rows * cost.lists + rows * cost.closing,
        "tile": TILE + _gathered(cost),
        "chunk": cost.chunk,
        "transient": _TRANSIENT,
    }


def _gathered(cost: RangeCost) -> int:
    """Bytes of the rows that are copied together for a tile of probed pairs."""
    return _GATHERED * cost.n_features * 4 if cost.probed else 0


def largest_range(cost: RangeCost, allowed: int, n_tasks: int, fixed: int) -> int:
    """Rows of the largest range with which `n_tasks` tasks at once stay in the allowed memory.

    Parameters
    ----------
    cost
        Cost of a row.
    allowed
        Bytes for the whole process.
    n_tasks
        Tasks that run side by side in it.
    fixed
        Bytes that the driver holds besides.

    Raises
    ------
    MemoryLimitError
        Not even ranges of a few hundred rows fit.
    """
    budget = (allowed - fixed - LIBRARIES) // max(n_tasks, 1)
    per_row = 2 * (cost.row + cost.lists) + cost.closing
    rows = (budget - TILE - _gathered(cost) - cost.chunk - _TRANSIENT) // per_row
    if rows >= SMALLEST_RANGE:
        return int(rows)
    least = (task_total(cost, SMALLEST_RANGE)) * max(n_tasks, 1) + fixed + LIBRARIES
    terms = task_bytes(cost, SMALLEST_RANGE)
    costs = {name: size * max(n_tasks, 1) for name, size in terms.items()}
    costs |= {"manifest and results": fixed, "libraries": LIBRARIES}
    worst = max(costs, key=lambda name: costs[name])
    raise MemoryLimitError(
        f"the search needs at least {format_bytes(least)} with {n_tasks} "
        f"task{'s' * (n_tasks != 1)} at once ("
        + ", ".join(f"{name} {format_bytes(size)}" for name, size in terms.items())
        + f" a task; manifest and results {format_bytes(fixed)}; libraries "
        f"{format_bytes(LIBRARIES)}), over the allowed {format_bytes(allowed)}; the largest "
        f"term is {worst!r}: raise memory= (--memory), or lower threads= to run fewer tasks at once"
        + (", or ask for smaller k and m" if worst == "lists" else "")
    )


def task_total(cost: RangeCost, rows: int) -> int:
    """Bytes of a task on two ranges of `rows` rows."""
    return sum(task_bytes(cost, rows).values())


def scratch_bytes(n_rows: int, screened: int, delivered: int) -> int:
    """Bytes of the lists in scratch: two generations with exact distances, and the final ones."""
    return n_rows * (2 * 16 * screened + 12 * delivered + 24)


def streamed_bytes(cost: RangeCost, rows: int, n_tasks: int, fixed: int) -> int:
    """Peak of a process that runs `n_tasks` tasks side by side."""
    return task_total(cost, rows) * n_tasks + fixed + LIBRARIES


def batch_bytes(
    cost: RangeCost, largest: int, n_threads: int, rows: int, listed: int, fixed: int
) -> dict[str, int]:
    """Bytes of many small scopes side by side, term by term.

    Parameters
    ----------
    cost
        Cost of a row.
    largest
        Rows of the largest scope; each thread works on one.
    rows
        Stored rows of a batch, held while its scopes are searched.
    listed
        Bytes of lists that are kept in memory.
    fixed
        Bytes that the driver holds besides.
    """
    work = largest * (cost.row + cost.lists + cost.closing) + TILE + _SMALL_BLOCKS
    return {
        "batch": rows * cost.n_features * cost.itemsize,
        "scopes being searched": n_threads * work,
        "chunk": cost.chunk,
        "kept lists": listed,
        "manifest and results": fixed,
        "libraries": LIBRARIES,
    }


def direct_bytes(cost: RangeCost, n_rows: int, n_threads: int, fixed: int) -> int:
    """Peak of a search with all rows resident."""
    return (
        n_rows * (cost.row + cost.lists + cost.closing)
        + n_threads * (TILE + cost.chunk + _TRANSIENT)
        + fixed
        + LIBRARIES
    )
