"""No room, no leave to write: file systems that turn against a run."""

from __future__ import annotations

import contextlib
import ctypes
import os
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from tests.faults.forks import buried
from tests.faults.trial import Outcome, Skipped, Trial


@contextlib.contextmanager
def small_disk(place: Path, size: int) -> Iterator[Callable[[str], None]]:
    """Mount a disk of so many bytes at a folder; yields a function that mounts it otherwise.

    Raises
    ------
    Skipped
        This user may not mount anything.
    """
    made = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", f"size={max(size, 4096)},mode=777", "tmpfs", str(place)],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    if made.returncode != 0:
        raise Skipped(f"a disk cannot be mounted here: {made.stderr.strip()}")

    def remount(options: str) -> None:
        subprocess.run(["mount", "-o", f"remount,{options}", str(place)], check=True)

    try:
        yield remount
    finally:
        subprocess.run(["umount", "--lazy", str(place)], check=True)


def obey_modes() -> None:
    """Make this process obey permissions, whoever runs it: root gives up what it may beyond."""
    if os.geteuid() != 0:
        return
    libc = ctypes.CDLL(None, use_errno=True)
    header = (ctypes.c_uint32 * 2)(0x20080522, 0)  # _LINUX_CAPABILITY_VERSION_3, this process
    none = (ctypes.c_uint32 * 6)()
    if libc.capset(header, none) != 0:
        raise OSError(ctypes.get_errno(), "capset")


def _used(trial: Trial) -> int:
    """Bytes on disk of the outputs of a clean run, in pages."""
    return trial.clean.pages * 4096


def disk_full(trial: Trial) -> Outcome:
    """The disk of the outputs (and of scratch beside them) has too little room, or just enough."""
    size = int(trial.rng.uniform(0.02, 1.3) * _used(trial))
    with small_disk(trial.out, size) as remount:
        ended = trial.run()
        trial.settle(ended)
        remount("size=1g")
        return trial.after(ended, f"disk of {size:,} bytes, then enough")


def temporary_full(trial: Trial) -> Outcome:
    """The folder for temporary files is full, or nearly so."""
    place = trial.folder / "tmp"
    place.mkdir()
    size = int(trial.rng.choice((0.0, 0.1, 0.5, 1.0)) * _used(trial))

    def before() -> None:
        tempfile.tempdir = str(place)

    with small_disk(place, size):
        ended = trial.run(before=before)
        return trial.after(ended, f"temporary folder of {max(size, 4096):,} bytes")


def read_only(trial: Trial) -> Outcome:
    """Nothing may be written where the output is to go: by its mode, or by its mount."""
    if trial.rng.random() < 0.5:
        with small_disk(trial.out, 1 << 30) as remount:
            remount("ro")
            ended = trial.run()
            trial.settle(ended)
            remount("rw")
            return trial.after(ended, "mounted read-only")
    trial.out.chmod(0o555)
    ended = trial.run(before=obey_modes)
    trial.settle(ended)
    trial.out.chmod(0o777)
    return trial.after(ended, "mode 555")


def permission_lost(trial: Trial) -> Outcome:
    """In the middle of a run what it reads, or where it writes, is closed."""
    inputs = trial.own_inputs()
    reads = [inputs / name for name in trial.one.reads]
    which = trial.rng.choice(("output", *trial.one.reads))
    at = trial.rng.uniform(0.0, 1.0) * trial.clean.seconds
    child = trial.start(before=obey_modes)
    with buried(child):
        time.sleep(at)
        closed = [trial.out] if which == "output" else [p for p in reads if p.name == which]
        modes = _close(closed, 0o222 if which == "output" else 0o777)
        ended = child.end()
    for path, mode in reversed(modes):
        with contextlib.suppress(FileNotFoundError):
            path.chmod(mode)
    return trial.after(ended, f"{which} closed after {at:.3f} s")


def _close(places: list[Path], bits: int) -> list[tuple[Path, int]]:
    """Take permissions from everything below some places; returns what they were."""
    modes = []
    for place in places:
        for path in (place, *place.rglob("*")):
            with contextlib.suppress(FileNotFoundError):
                modes.append((path, path.stat().st_mode & 0o777))
                if not path.is_symlink():
                    path.chmod(modes[-1][1] & ~bits)
    return modes
