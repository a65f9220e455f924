"""What a fuzzing target is, and what running one input of it may and may not end in.

A target reads something that others made. Its input is a *tree*: the content of files by their
relative path, all below one entry (``x.npy``, or a folder ``x.zarr``), so that one lone file and a
store of many are mutated and kept alike. An input may be refused with an error of
`croma_dask.errors`; everything else that is no result is a finding: another exception, more than
ten seconds, more memory than the target may take, a file opened outside of the input's folder.
"""

from __future__ import annotations

import contextlib
import hashlib
import importlib
import io
import os
import shutil
import struct
import sys
import time
import traceback
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from croma_dask.errors import CromaDaskError

__all__ = [
    "CANARY",
    "LINK",
    "Outcome",
    "Target",
    "Tree",
    "all_targets",
    "all_trees",
    "digest",
    "load_tree",
    "plant_canaries",
    "pack",
    "run_one",
    "save_tree",
    "seed_trees",
    "unpack",
    "watch_files",
]

SECONDS = 10.0
MEMORY = 1 << 30
LONGEST_MESSAGE = 10_000

# A value that lies only in files outside of the input: a target that reads it has left the input.
CANARY = 7.25e30

Tree = dict[str, bytes]

# An entry whose content begins with this is a symbolic link to the path that follows.
LINK = b"\0link\0"


@dataclass(frozen=True)
class Target:
    """One reader to fuzz.

    Parameters
    ----------
    name
        What `--targets` and the table call it.
    seeds
        Writes inputs into an empty folder: every entry of it (file or folder) is one. Most should
        be valid, so that mutations of them get far; some may be hostile on purpose.
    run
        ``run(path, work)`` reads the input at `path`; `work` is an empty folder for output. Reads
        what a user would: also the values, not only the header. May assert what must hold.
    allowed
        Exceptions beside `CromaDaskError` that the reader documents.
    mutators
        ``mutate(content, random) -> content`` of this target alone, by the ending of the file's
        name ("" for any). Those in `mutators.py` are used as well.
    build
        Returns a hypothesis strategy that makes trees, where structure matters more than bytes.
    memory
        Bytes that an input may take above what the process had before.
    quick
        Mutations in the default tests; 0 for a target whose seeds alone take long: its quick pass
        is among the slow tests.
    follows_links
        A symbolic link in the input may lead out of it (the reader warns of it).
    slow
        It takes so long to begin with (kernels are compiled) that the default tests leave it out.
    """

    name: str
    seeds: Callable[[Path], None]
    run: Callable[[Path, Path], object]
    allowed: tuple[type[BaseException], ...] = ()
    mutators: dict[str, Callable[[bytes, Any], bytes]] = field(default_factory=dict)
    build: Callable[[], Any] | None = None
    memory: int = MEMORY
    quick: int = 20
    follows_links: bool = False
    slow: bool = False


@dataclass(frozen=True)
class Outcome:
    """What came of one input: ``read``, ``refused``, or a finding.

    `key` is the same for findings of one cause: the exception and the innermost line of this
    library.
    """

    kind: str
    key: str = ""
    detail: str = ""
    seconds: float = 0.0

    @property
    def is_finding(self) -> bool:
        return self.kind not in {"read", "refused"}


def all_targets() -> dict[str, Target]:
    """Every target of the modules ``targets_*.py`` beside this one (their list ``TARGETS``)."""
    found: dict[str, Target] = {}
    for path in sorted(Path(__file__).parent.glob("targets_*.py")):
        for target in importlib.import_module(f"tests.fuzz.{path.stem}").TARGETS:
            assert target.name not in found, f"two targets are called {target.name}"
            found[target.name] = target
    return found


# --- trees ---


def load_tree(path: Path) -> Tree:
    """Read a file or folder, symbolic links as such."""
    if path.is_symlink():
        return {path.name: LINK + os.readlink(path).encode()}
    if path.is_file():
        return {path.name: path.read_bytes()}
    tree: Tree = {}
    for child in sorted(path.iterdir()):
        for name, content in load_tree(child).items():
            tree[f"{path.name}/{name}"] = content
    return tree


def save_tree(tree: Tree, folder: Path) -> Path:
    """Write a tree below a folder; return the path of its entry.

    Raises
    ------
    ValueError
        A name that no file can have, or that leads out of `folder`.
    """
    if not tree:
        raise ValueError("empty tree")
    for name, content in tree.items():
        if any(part in {"", ".", ".."} for part in name.split("/")) or "\0" in name:
            raise ValueError(f"{name!r} is no file's path")
        path = folder / name
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            if content.startswith(LINK):
                path.symlink_to(os.fsdecode(content[len(LINK) :]))
            elif not path.is_symlink():  # never write through a link
                path.write_bytes(content)
        except OSError as err:  # too long, or a file where a folder has to be
            raise ValueError(str(err)) from err
    return folder / next(iter(tree)).split("/")[0]


def pack(tree: Tree) -> bytes:
    """Return a tree as bytes, for the corpus of a fuzzer."""
    out = io.BytesIO()
    for name, content in tree.items():
        raw = os.fsencode(name)
        out.write(struct.pack("<HI", len(raw), len(content)) + raw + content)
    return out.getvalue()


def unpack(data: bytes) -> Tree:
    """Undo `pack`.

    Raises
    ------
    ValueError
        The bytes are no tree.
    """
    tree: Tree = {}
    at = 0
    while at < len(data):
        if at + 6 > len(data):
            raise ValueError("cut")
        name, size = struct.unpack_from("<HI", data, at)
        at += 6
        if at + name + size > len(data):
            raise ValueError("cut")
        tree[os.fsdecode(data[at : at + name])] = data[at + name : at + name + size]
        at += name + size
    return tree


def seed_trees(target: Target, folder: Path) -> list[Tree]:
    """Make the seeds of a target in an empty folder, and return them."""
    folder.mkdir(parents=True, exist_ok=True)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        target.seeds(folder)
    trees = [load_tree(path) for path in sorted(folder.iterdir())]
    trees = [tree for tree in trees if tree]
    assert trees, f"{target.name} has no seeds"
    return trees


def all_trees(target: Target, folder: Path, corpus: Path | None = None) -> list[Tree]:
    """Return the seeds of a target, and what lies in a folder of more of them by its name."""
    trees = seed_trees(target, folder)
    if corpus is not None and (corpus / target.name).is_dir():
        trees += [load_tree(path) for path in sorted((corpus / target.name).iterdir())]
    return trees


# --- running one input ---


def run_one(target: Target, tree: Tree, root: Path) -> Outcome | None:
    """Run one input in a fresh folder ``root/case``, which is removed; None where it is no tree.

    What took too long is run once more: on a machine that others use the second time tells.
    """
    outcome = _run(target, tree, root)
    if outcome is not None and outcome.kind == "slow":
        outcome = _run(target, tree, root)
    return outcome


def _run(target: Target, tree: Tree, root: Path) -> Outcome | None:
    case = root / "case"
    shutil.rmtree(case, ignore_errors=True)
    (case / "input").mkdir(parents=True)
    (case / "work").mkdir()
    try:
        path = save_tree(tree, case / "input")
    except ValueError:
        return None
    begin = time.monotonic()
    try:
        with warnings.catch_warnings(), _watched_files(case) as outside:
            warnings.simplefilter("ignore")
            outcome = _attempt(target, path, case / "work")
    finally:
        shutil.rmtree(case, ignore_errors=True)
    seconds = time.monotonic() - begin
    may_leave = target.follows_links and any(c.startswith(LINK) for c in tree.values())
    if outside and not may_leave and not outcome.is_finding:
        outcome = Outcome("outside", f"opens {Path(outside[0]).name}", "\n".join(outside))
    if seconds > SECONDS and not outcome.is_finding:
        outcome = Outcome("slow", f"{target.name} takes long", f"{seconds:.1f} s")
    return Outcome(outcome.kind, outcome.key, outcome.detail, seconds)


def _attempt(target: Target, path: Path, work: Path) -> Outcome:
    # What a reader prints is no part of the fuzzer's own report.
    with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
        try:
            target.run(path, work)
        except CromaDaskError as err:
            if len(str(err)) > LONGEST_MESSAGE:
                where = _innermost(err)
                return Outcome("message", f"long message at {where}", str(err)[:500])
            return Outcome("refused")
        except (KeyboardInterrupt, SystemExit):
            raise
        # whatever is raised here is what we look for
        except BaseException as err:  # noqa: BLE001
            if isinstance(err, target.allowed):
                return Outcome("refused")
            detail = "".join(traceback.format_exception(err))
            kind = "memory" if isinstance(err, MemoryError) else "exception"
            return Outcome(kind, f"{type(err).__name__} at {_innermost(err)}", detail)
    return Outcome("read")


def _innermost(err: BaseException) -> str:
    """Name the innermost line of the library that an exception came through."""
    where = "the target"
    for frame in traceback.extract_tb(err.__traceback__):
        if f"{os.sep}croma_dask{os.sep}" in frame.filename:
            name = frame.filename.rpartition(f"{os.sep}croma_dask{os.sep}")[2]
            where = f"{name}:{frame.lineno}"
    return where


def digest(tree: Tree) -> str:
    """Return a short name for an input."""
    return hashlib.sha256(pack(tree)).hexdigest()[:12]


# --- files opened outside of the input ---

_watched: list[tuple[str, list[str]]] = []
_hooked = False


def watch_files() -> None:
    """Notice every file that Python opens from now on (for a process of its own: it stays)."""
    global _hooked
    if not _hooked:
        sys.addaudithook(_on_event)
        _hooked = True


def _on_event(event: str, args: tuple[Any, ...]) -> None:
    if event != "open" or not _watched:
        return
    name = args[0]
    if isinstance(name, bytes):
        name = os.fsdecode(name)
    if not isinstance(name, str):
        return
    case, outside = _watched[-1]
    path = os.path.abspath(name)
    # A link inside of the input may lead anywhere.
    real = os.path.realpath(path)
    if not real.startswith((case, *_OWN)):
        outside.append(f"{path} -> {real}" if path != real else path)


_OWN = (
    os.path.realpath(sys.prefix),
    os.path.realpath(sys.base_prefix) + "/lib",
    str(Path(__file__).resolve().parents[2]),
    *(
        "/proc/",
        "/sys/",
        "/dev/null",
        "/dev/urandom",
        "/usr/",
        "/etc/localtime",
        "/etc/mime.types",
        "/etc/magic",
    ),
)


@contextlib.contextmanager
def _watched_files(case: Path) -> Iterator[list[str]]:
    entry: tuple[str, list[str]] = (os.path.realpath(case), [])
    _watched.append(entry)
    try:
        yield entry[1]
    finally:
        _watched.pop()


# --- what lies outside of every input ---


def plant_canaries(folder: Path) -> None:
    """Write files that no input may lead to, beside the folder ``case`` of the inputs.

    From an input's folder they are ``../../outside/canary.*``. Their features are all `CANARY`.
    """
    import h5py
    import numpy as np

    values = np.full((6, 4), CANARY)
    np.save(folder / "canary.npy", values)
    (folder / "canary.bin").write_bytes(values.tobytes())
    (folder / "canary.csv").write_text("sample_id,label\ncanary,canary\n")
    with h5py.File(folder / "canary.h5", "w") as file:
        file["features"] = values
