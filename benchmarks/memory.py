"""A cohort larger than the memory it is scored in: what the process took against what plan said."""

from __future__ import annotations

import subprocess
import sys
import tempfile
from pathlib import Path

from benchmarks import timing
from benchmarks.streamed import store

CHILD = """
import sys, threading, time, warnings
warnings.simplefilter("ignore")

def resident():
    with open("/proc/self/statm") as f:
        return int(f.read().split()[1]) * 4096

bare = resident()
import croma_dask as cd
peak, done = 0, False

def watch():
    global peak
    while not done:
        peak = max(peak, resident())
        time.sleep(0.005)

plan = cd.plan(sys.argv[1], confounder="center", memory=sys.argv[2])
watcher = threading.Thread(target=watch)
watcher.start()
started = time.perf_counter()
cd.score(sys.argv[1], confounder="center", memory=sys.argv[2], scratch=sys.argv[3], quiet=False)
seconds = time.perf_counter() - started
done = True
watcher.join()
print(plan.peak_memory, peak - bare, plan.seconds, seconds, plan.n_ranges)
"""


def measure(place: str, allowed: str, scratch: str) -> list[float]:
    """Score in a process of its own: planned peak, peak above bare Python, seconds, ranges."""
    out = subprocess.run(
        [sys.executable, "-c", CHILD, place, allowed, scratch],
        check=True,
        stdout=subprocess.PIPE,
        text=True,
    ).stdout
    return [float(part) for part in out.split()]


def main(n: int = 200_000, d: int = 1_024, allowed: str = "512MB") -> None:
    """Measure."""
    title = f"{n:,} x {d:,} ({n * d * 4 / 1e9:.2f} GB)"
    with tempfile.TemporaryDirectory() as folder:
        place = store(Path(folder), n, d)
        planned, peak, said, took, ranges = measure(place, allowed, folder)
    timing.table(
        [title, "allowed", "plan", "measured"],
        [
            (
                "peak above a bare Python",
                allowed,
                f"{planned / 1e6:.0f} MB",
                f"{peak / 1e6:.0f} MB",
            ),
            (f"seconds ({ranges:.0f} ranges)", "", f"{said:.0f}", f"{took:.0f}"),
        ],
    )
