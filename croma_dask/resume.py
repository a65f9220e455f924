"""Where a run keeps what it finds, and what becomes of that: resumed, kept, or deleted."""

from __future__ import annotations

import contextlib
import logging
import shutil
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import IO, Any

import numpy as np

from croma_dask.cohort.location import Location
from croma_dask.errors import MemoryLimitError, StoreError
from croma_dask.fingerprint import text_digest
from croma_dask.index.scratch import Scratch
from croma_dask.layout import Layout
from croma_dask.memory import format_bytes
from croma_dask.options import Options
from croma_dask.temporary import private_root
from croma_dask.whole_folders import hidden

__all__ = ["own_folder", "scratch_beside", "take_folder", "take_scratch"]

log = logging.getLogger("croma_dask")

Cut = tuple[tuple[int, ...], int]
"""Edges of the ranges of a run, and how many of these a task takes on each side."""


def take_scratch(
    options: Options, key: str, layout: Layout, keep: contextlib.ExitStack
) -> tuple[Scratch, Cut]:
    """Take the folder of a run, with what the same run has left there before.

    Parameters
    ----------
    options
        `scratch`: where the folders of runs lie; `resume`: False deletes what is there;
        `keep_scratch`: whether the folder outlives a run that ends well.
    key
        Name of the run: whatever its lists depend on. How its rows are cut into ranges is none of
        that: with other workers, or another memory, it is still the same run.
    layout
        How it would be cut if it began now, and bytes that it will take on disk.
    keep
        Settles what becomes of the folder when the caller is done with it. Until then it is locked.

    Returns
    -------
    scratch, cut
        Tasks are to follow the cut: that of the earlier run as long as its ranges fit the memory.
    """
    root = _root(options)
    now = layout.edges, layout.per_block
    # Each cut has a folder of its own: a worker may still have a task of a driver that was killed,
    # and write lists of ranges that are no longer those of this run.
    own = root / f"{key[:32]}-{text_digest(repr(now))[:8]}"
    earlier = sorted(root.glob(f"{key[:32]}-*"))
    free = shutil.disk_usage(root).free
    if free < layout.scratch and not earlier:
        raise MemoryLimitError(
            f"the lists of the search take {format_bytes(layout.scratch)} on disk, and "
            f"{str(root)!r} has {format_bytes(free)} free: name a folder with more room as "
            "scratch= (--scratch)"
        )
    for place in [*earlier, own]:
        scratch = Scratch(str(place))
        lock = scratch.lock()
        if lock is None:
            break
        cut = _taken_up(scratch, options, layout)
        if cut is not None or place == own:
            break
        scratch.remove()
        lock.close()
    taken = _held(scratch, lock, key, root, options, keep, _has_lists)
    if taken is not scratch:
        scratch, cut = taken, None
    if cut is None:
        cut = now
        scratch.write("cut.npz", {"edges": np.array(cut[0]), "per_block": np.array(cut[1])})
    return scratch, cut


def take_folder(
    options: Options, key: str, keep: contextlib.ExitStack, holds: Callable[[Scratch], bool]
) -> Scratch:
    """Take the folder of a run whose files do not depend on how it is cut up.

    Parameters
    ----------
    options, key, keep
        As of :func:`take_scratch`.
    holds
        Whether there is anything in a folder to resume from.
    """
    root = _root(options)
    scratch = Scratch(str(root / key[:32]))
    lock = scratch.lock()
    if lock is not None and holds(scratch):
        if options.resume and (Path(scratch.path) / "finished").exists():
            log.warning("the same run has kept what it found (%s): used again", scratch.path)
        elif options.resume:
            log.warning("resuming a run that was interrupted (%s)", scratch.path)
        else:
            log.warning("deleting what the same run left in %s, as asked for", scratch.path)
            scratch.empty()
    return _held(scratch, lock, key, root, options, keep, holds, empty="goes")


def _held(
    scratch: Scratch, lock: IO[str] | None, key: str, root: Path, options: Options,
    keep: contextlib.ExitStack, holds: Callable[[Scratch], bool], empty: str = "stays",
) -> Scratch:  # fmt: skip
    """Hold a folder until the caller is done; another one, where somebody else has this one.

    `empty` says what becomes of one that holds nothing to resume from when a run fails.
    """
    beside = lock is None
    if lock is None:
        # The same run goes on elsewhere: leave it alone and work beside it.
        log.warning("the same run goes on elsewhere (%s); working beside it", scratch.path)
        scratch = Scratch(tempfile.mkdtemp(prefix=key[:16], dir=root))
        lock = scratch.lock()
    if lock is not None:
        keep.callback(lock.close)

    def leave(exc_type: Any, *_: Any) -> None:
        if exc_type is None and options.keep_scratch and not beside:
            (Path(scratch.path) / "finished").touch()
            log.warning("what was found stays in %s: the same call uses it again", scratch.path)
        elif exc_type is None or beside:
            scratch.remove()
        elif holds(scratch):
            # Interrupted or failed: what was found stays for the next try, where that can find it.
            log.warning("what was found so far stays in %s: the same call resumes", scratch.path)
        elif empty == "goes":
            scratch.remove()

    keep.push(leave)
    return scratch


def _taken_up(scratch: Scratch, options: Options, layout: Layout) -> Cut | None:
    """Cut of what the same run has left, if this one goes on from it; None, and it is deleted."""
    cut = _read_cut(scratch)
    finished = (Path(scratch.path) / "finished").exists()
    if cut is not None and options.resume:
        longest = max(layout.most_rows, int(np.diff(layout.edges).max()))
        if finished:
            log.warning("the same run has kept its lists (%s): they are used again", scratch.path)
            return cut
        if int(np.diff(cut[0]).max()) <= longest:
            if _has_lists(scratch):
                log.warning("resuming a run that was interrupted (%s)", scratch.path)
            return cut
        why = "it was begun with more memory than this one may take"
    else:
        why = "as asked for"
    if finished or _has_lists(scratch):
        log.warning("deleting what the same run left in %s and starting afresh: %s",
                    scratch.path, why)  # fmt: skip
    scratch.empty()
    return None


def _read_cut(scratch: Scratch) -> Cut | None:
    try:
        arrays = scratch.read("cut.npz")
    except (OSError, StoreError):
        return None
    edges, per_block = (arrays.get(name) for name in ("edges", "per_block"))
    if edges is None or edges.ndim != 1 or edges.size < 2 or (np.diff(edges) <= 0).any():
        return None
    if per_block is None or per_block.ndim or {edges.dtype.kind, per_block.dtype.kind} != {"i"}:
        return None
    return tuple(int(e) for e in edges), int(per_block)


def _has_lists(scratch: Scratch) -> bool:
    return any(Path(scratch.path).glob("range-*/lists-*.npz"))


def _root(options: Options) -> Path:
    root = Path(options.scratch or private_root())
    root.mkdir(parents=True, exist_ok=True)
    return root


def own_folder(options: Options, prefix: str, keep: contextlib.ExitStack) -> str:
    """Make a folder that goes with this run, however that ends.

    Parameters
    ----------
    options
        Where it is made.
    prefix
        Of its name. Folders of this prefix whose process died are deleted on the way.
    keep
        Deletes it when the caller is done.
    """
    root = _root(options)
    for dead in root.glob(f"{prefix}*"):
        _delete_unless_owned(dead)
    while True:
        folder = tempfile.mkdtemp(prefix=prefix, dir=root)
        lock = Scratch(folder).lock()
        if lock is not None:
            keep.enter_context(lock)
            keep.callback(shutil.rmtree, folder, ignore_errors=True)
            return folder


def _delete_unless_owned(folder: Path) -> None:
    """Delete what a run has left, unless that run is still alive."""
    if not folder.is_dir():
        return
    # Other users' folders are none of our business.
    with contextlib.suppress(StoreError, OSError):
        lock = Scratch(str(folder)).lock()
        if lock is not None:
            with lock:
                shutil.rmtree(folder, ignore_errors=True)


@contextlib.contextmanager
def scratch_beside(
    result: str | Path, *, keep_scratch: bool = False
) -> Iterator[str | None]:  # fmt: skip
    """Folder for scratch beside a result, as long as there is something to keep in it.

    Parameters
    ----------
    result
        Path or URL where the result will be written.
    keep_scratch
        Leave what is in it.

    Yields
    ------
    str
        ``.NAME.scratch``; of a URL a folder of this user's under the temporary one, with a name
        that the same URL leads to again. It is made by whoever writes into it. When the block ends
        well it is deleted, with all that interrupted runs for the same result had left there.
    """
    place = Location.of(result)
    if place.is_local:
        target = Path(result).absolute()
        folder = hidden(target, "scratch")
    else:
        folder = Path(private_root()) / f"scratch-{text_digest(place.url)[:32]}"
    try:
        yield str(folder)
        if not keep_scratch and folder.is_dir():
            for left in folder.iterdir():
                _delete_unless_owned(left)
    finally:
        with contextlib.suppress(OSError):
            folder.rmdir()
