"""``python -m tests.fuzz --minutes 60``: fuzz every reader, and print what came of it."""

from __future__ import annotations

import argparse
import importlib.util
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from tests.fuzz import harness

__all__ = ["main"]

AT_ONCE = 2
_REPOSITORY = Path(__file__).resolve().parents[2]


def main(arguments: list[str] | None = None) -> int:
    """Fuzz targets and return the number of findings."""
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz", description=__doc__)
    parser.add_argument("--minutes", type=float, default=60, help="of all targets together")
    parser.add_argument("--targets", default="", help="names, by comma; default: all")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--at-once", type=int, default=AT_ONCE, help="processes; default: 2")
    parser.add_argument("--out", type=Path, help="folder of failing inputs and logs")
    parser.add_argument("--corpus", type=Path, help="more inputs: CORPUS/TARGET/<files or folders>")
    parser.add_argument("--no-atheris", action="store_true", help="mutators alone")
    parser.add_argument("--list", action="store_true", help="print the targets' names")
    parser.add_argument("--replay", type=Path, nargs="+", help="run kept inputs; needs one target")
    options = parser.parse_args(arguments)

    targets = harness.all_targets()
    if options.list:
        print("\n".join(targets))
        return 0
    names = options.targets.split(",") if options.targets else list(targets)
    unknown = [name for name in names if name not in targets]
    if unknown:
        parser.error(f"no targets {', '.join(unknown)}; there are {', '.join(targets)}")
    if options.replay:
        return _replay(targets[names[0]], options.replay)
    engine = "random"
    if options.no_atheris:
        print("Engine: the harness's own mutators and hypothesis, without coverage.")
    elif importlib.util.find_spec("atheris") is None:
        print(
            "Engine: the harness's own mutators and hypothesis, WITHOUT coverage: atheris is not "
            "installed (pip install croma-dask[fuzz])."
        )
    else:
        engine = "atheris"
        print("Engine: atheris (coverage-guided), with the harness's mutators and hypothesis.")
    out = options.out or Path(tempfile.mkdtemp(prefix="croma_dask_fuzz_"))
    share = options.minutes * 60 * min(options.at_once, len(names)) / len(names)
    print(
        f"{len(names)} targets, {share:.0f} s each; failing inputs are kept in {out}\n", flush=True
    )
    begin = time.monotonic()
    with ThreadPoolExecutor(options.at_once) as pool:
        jobs = [
            pool.submit(_fuzz, name, out / name, share, options.seed, engine, options.corpus)
            for name in names
        ]
        results = [job.result() for job in jobs]
    _print_table(names, results)
    count = sum(len(result["findings"]) for result in results)
    total = sum(result["executions"] for result in results)
    minutes = (time.monotonic() - begin) / 60
    print(f"\n{total:,} executions in {minutes:.1f} minutes, {count} findings.")
    for name, result in zip(names, results, strict=True):
        for key, finding in result["findings"].items():
            print(f"- {name}: {finding['kind']}: {key} ({out / name / finding['input']})")
    return 1 if count else 0


def _fuzz(
    name: str, folder: Path, seconds: float, seed: int, engine: str, corpus: Path | None
) -> dict[str, Any]:
    """Fuzz one target for some seconds, in as many processes as it takes: a crash ends one."""
    folder.mkdir(parents=True, exist_ok=True)
    end = time.monotonic() + seconds
    total: dict[str, Any] = {
        "executions": 0, "read": 0, "refused": 0, "findings": {}, "slowest": 0.0, "peak": 0,
        "seconds": 0.0, "restarts": 0,
    }  # fmt: skip
    # inputs on a file system in memory where there is one: there are many, and small
    fast = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None
    begin = time.monotonic()
    while (left := end - time.monotonic()) > 1:
        work = Path(tempfile.mkdtemp(prefix=f"fuzz_{name}_", dir=fast))
        for kept in folder.glob("corpus/*"):
            (work / "corpus").mkdir(exist_ok=True)
            shutil.copy(kept, work / "corpus")
        code = _one_child(name, work, left, seed + total["restarts"], engine, corpus)
        state = _collect(total, work, folder)
        if code != 0:
            _add_crash(total, work, folder, code)
            if state is None and total["restarts"] > 2:
                break  # it does not even start
        shutil.rmtree(work, ignore_errors=True)
        total["restarts"] += 1
    total["seconds"] = time.monotonic() - begin
    return total


def _one_child(
    name: str, work: Path, seconds: float, seed: int, engine: str, corpus: Path | None
) -> int:
    """Run the child and return its exit code, negative for a signal."""
    environment = {
        **os.environ,
        # few arenas and threads: the limit of memory is one of address space
        "MALLOC_ARENA_MAX": "2", "OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1",
        "ARROW_DEFAULT_MEMORY_POOL": "system", "PYTHONHASHSEED": "0", "TMPDIR": str(work),
    }  # fmt: skip
    command = [
        sys.executable, "-m", "tests.fuzz.child", name, str(work), f"{seconds:.1f}", str(seed),
        engine, str(corpus or ""),
    ]  # fmt: skip
    with (work / "child.log").open("wb") as log:
        child = subprocess.Popen(
            command,
            cwd=_REPOSITORY,
            env=environment,
            stdout=log,
            stderr=log,
            stdin=subprocess.DEVNULL,
        )
        try:
            # it has a watchdog of its own; this is for the case that even that hangs
            return child.wait(seconds + 120)
        except subprocess.TimeoutExpired:
            child.kill()
            child.wait()
            return -9


def _collect(total: dict[str, Any], work: Path, folder: Path) -> dict[str, Any] | None:
    """Add what a child has done to the total, and keep its inputs."""
    try:
        state = json.loads((work / "state.json").read_text())
    except FileNotFoundError:
        state = None
    else:
        for field in ("executions", "read", "refused"):
            total[field] += state[field]
        total["slowest"] = max(total["slowest"], state["slowest"])
        total["peak"] = max(total["peak"], state["peak"])
        for key, finding in state["findings"].items():
            total["findings"].setdefault(key, finding)
    for path in [*work.glob("failing-*"), *work.glob("slow-*"), work / "child.log"]:
        if path.exists():
            shutil.copy(path, folder)
    if (work / "corpus").is_dir():
        (folder / "corpus").mkdir(exist_ok=True)
        for path in (work / "corpus").iterdir():
            shutil.copy(path, folder / "corpus")
    return state


def _add_crash(total: dict[str, Any], work: Path, folder: Path, code: int) -> None:
    """Count a child that died, with the input that it died of."""
    trace = (work / "fatal.log").read_text() if (work / "fatal.log").exists() else ""
    log = (work / "child.log").read_text(errors="replace")
    what = "hang" if "Timeout" in trace else f"signal {-code}" if code < 0 else f"exit {code}"
    lines = [line.strip() for line in (trace or log).splitlines() if line.strip()]
    where = next((line for line in lines if "croma_dask/" in line), lines[-1] if lines else "")
    key = f"{what} at {where[-100:]}"
    if key in total["findings"]:
        return
    number = len(total["findings"])
    if (work / "current.bin").exists():
        shutil.copy(work / "current.bin", folder / f"failing-crash-{number}")
    (folder / f"failing-crash-{number}.txt").write_text(trace + log)
    total["findings"][key] = {"kind": "crash", "input": f"failing-crash-{number}"}


def _print_table(names: list[str], results: list[dict[str, Any]]) -> None:
    columns = (
        "executions", "read", "refused", "seconds", "findings", "slowest input, s",
        "peak memory, MiB",
    )  # fmt: skip
    print(f"| reader | {' | '.join(columns)} |")
    print("|---|" + "---:|" * len(columns))
    for name, result in zip(names, results, strict=True):
        print(
            f"| {name} | {result['executions']:,} | {result['read']:,} | {result['refused']:,} | "
            f"{result['seconds']:.0f} | {len(result['findings'])} | {result['slowest']:.2f} | "
            f"{result['peak'] / 2**20:.0f} |"
        )


def _replay(target: harness.Target, paths: list[Path]) -> int:
    """Run inputs that were kept, and print what comes of each."""
    worst = 0
    harness.watch_files()
    for path in paths:
        tree = harness.unpack(path.read_bytes())
        with tempfile.TemporaryDirectory() as root:
            (Path(root) / "outside").mkdir()
            harness.plant_canaries(Path(root) / "outside")
            outcome = harness.run_one(target, tree, Path(root))
        names = ", ".join(f"{name} ({len(content)} bytes)" for name, content in tree.items())
        print(f"{path.name}: {outcome.kind if outcome else 'no tree'}: {names[:300]}")
        if outcome is not None and outcome.is_finding:
            worst = 1
            print(f"{outcome.key}\n{outcome.detail}")
    return worst


if __name__ == "__main__":
    sys.exit(main())
