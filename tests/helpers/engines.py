"""Choose the search engine from outside, which a user cannot and need not do."""

from __future__ import annotations

import importlib
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from croma_dask import layout
from croma_dask.index.neighbors import Neighbors

ENGINES = ("small", "direct", "streamed")

# By name: the package binds some public functions over the submodules they live in.
_USERS = [importlib.import_module(f"croma_dask.{name}") for name in ("search", "graph")]


@contextmanager
def engine(name: str, *, range_rows: int = 1 << 17) -> Iterator[set[str]]:
    """Search with one engine whatever the size of the scope.

    Parameters
    ----------
    name
        ``small``, ``direct`` or ``streamed``.
    range_rows
        Rows of the longest range of a streamed search.

    Yields
    ------
    set
        The engines that were used, to check that the choice was obeyed.
    """
    used: set[str] = set()

    def recorded(*args: object, **kwargs: object) -> Neighbors:
        found = Neighbors(*args, **kwargs)  # type: ignore[arg-type]
        used.add(found.engine)
        return found

    with pytest.MonkeyPatch.context() as patch:
        for module in _USERS:
            patch.setattr(module, "Neighbors", recorded)
        if name == "streamed":
            patch.setattr(layout, "DIRECT_ROWS", 0)
            patch.setattr(layout, "LARGEST_RANGE", range_rows)
        else:
            pairs = 1 << 62 if name == "small" else 0
            patch.setattr(layout, "SMALL_PAIRS", pairs)
            patch.setattr(layout, "SMALL_PAIRS_COMPILED", pairs)
        yield used
    assert used <= {name}, f"asked for the engine {name}, got {used}"
