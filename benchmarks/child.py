"""Run one measurement in a process of its own: its memory is its own, its threads are counted.

python -m benchmarks.child MODULE:FUNCTION ARGUMENTS calls the function with a `Meter` and what the
JSON text holds, and prints what it returns as JSON.
"""

from __future__ import annotations

import importlib
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any


def _status(field: str) -> int:
    """Bytes of a field of the kernel's account of this process."""
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith(field + ":"):
            return int(line.split()[1]) * 1024
    raise LookupError(field)


class Meter:
    """Peak memory of this process, above what a bare Python had.

    The kernel keeps the peak itself: no sample is missed while a library holds Python's lock.
    """

    def __init__(self) -> None:
        self._bare = _status("VmRSS")

    def peak(self) -> int:
        """Bytes above the bare process at the worst moment since the last call; starts anew."""
        found = _status("VmHWM") - self._bare
        Path("/proc/self/clear_refs").write_text("5")
        return found


def run(function: str, *, threads: int | None = None, **arguments: Any) -> dict[str, Any]:
    """Call a function of benchmarks in a child process.

    Parameters
    ----------
    function
        ``module:name`` within benchmarks. It takes a `Meter` first.
    threads
        Cores that the process may use, whatever library it calls; None for all.
    arguments
        JSON values.

    Returns
    -------
    dict
        What it returned. It is also printed to standard error, so that a long benchmark that fails
        has not measured in vain.
    """
    shown = ", ".join(f"{name}={value!r}" for name, value in arguments.items())
    print(f"{function}({shown})", file=sys.stderr, flush=True)
    done = subprocess.run(
        [sys.executable, "-m", "benchmarks.child", function, str(threads or 0)],
        input=json.dumps(arguments),
        cwd=Path(__file__).resolve().parents[1],
        check=True,
        stdout=subprocess.PIPE,
        text=True,
    )
    found = done.stdout.splitlines()[-1]
    print(f"  {found}", file=sys.stderr, flush=True)
    return dict(json.loads(found))


def main() -> None:
    """Do as the parent says."""
    meter = Meter()
    function, threads = sys.argv[1], int(sys.argv[2])
    if threads:
        # Before any library counts the cores: whatever threads it starts share these.
        os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[:threads])
    module, name = function.split(":")
    found = getattr(importlib.import_module(f"benchmarks.{module}"), name)(
        meter, **json.load(sys.stdin)
    )
    print(json.dumps(found))


if __name__ == "__main__":
    main()
