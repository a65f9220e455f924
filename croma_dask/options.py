"""Settings that hold for a process or a block of code."""

from __future__ import annotations

import os
from dataclasses import dataclass, fields, replace
from typing import Any

from croma_dask.errors import SchemaError

__all__ = ["Options", "current", "set_options"]


@dataclass(frozen=True)
class Options:
    """What a run may use.

    Attributes
    ----------
    memory
        Memory that a run may take above the bare process, as bytes or text ("4GB"); None for six
        tenths of what this process may have (on a cluster: of a worker's limit).
    threads
        Threads of this process that share the work; None for all cores.
    scratch
        Folder for the lists of a streamed run; None for one under the temporary folder, which a
        repeated call finds again and resumes from.
    quiet
        No progress.
    resume
        Go on from what the same run has left in scratch; False deletes that and starts afresh.
    keep_scratch
        Leave the lists of a streamed run in scratch when it has ended well, for the same call.
    """

    memory: int | str | None = None
    threads: int | None = None
    scratch: str | None = None
    quiet: bool = True
    resume: bool = True
    keep_scratch: bool = False

    @property
    def n_threads(self) -> int:
        """Number of threads to use."""
        if self.threads is not None:
            return max(1, int(self.threads))
        return max(1, len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else 1)


_current = Options()


def current() -> Options:
    """Return the settings in force."""
    return _current


def merged(**given: Any) -> Options:
    """Return the settings in force with the given ones (that are not None) put over them."""
    known = {f.name for f in fields(Options)}
    unknown = sorted(set(given) - known)
    if unknown:
        raise SchemaError(f"no option is called {unknown[0]!r}; there are {sorted(known)}")
    return replace(_current, **{k: v for k, v in given.items() if v is not None})


class set_options:
    """Change settings, for good or within a ``with`` block.

    Parameters
    ----------
    **options
        Any of ``memory``, ``threads``, ``scratch``, ``quiet``, ``resume``, ``keep_scratch`` (see
        :class:`croma_dask.options.Options`).

    Raises
    ------
    SchemaError
        There is no option of that name.

    Examples
    --------
    >>> with set_options(threads=1):
    ...     current().n_threads
    1
    """

    def __init__(self, **options: Any) -> None:
        global _current
        self._before = _current
        _current = merged(**options)

    def __enter__(self) -> None:
        """Do nothing: settings were changed when the object was made."""

    def __exit__(self, *exc: object) -> None:
        """Put the former settings back."""
        global _current
        _current = self._before
