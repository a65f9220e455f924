"""One target, fuzzed in a process of its own until its time is over or it dies.

Started by ``python -m tests.fuzz``; what it has done so far stands in ``state.json`` of its folder,
and the input that it is about to run in ``current.bin``, so that a crash names its input.
"""

from __future__ import annotations

import faulthandler
import importlib
import json
import os
import pkgutil
import random
import resource
import sys
import time
from pathlib import Path
from typing import Any

__all__ = ["main"]

_HYPOTHESIS = b"H"  # first byte of an input that hypothesis makes of the rest
_TREE = b"T"


def main(arguments: list[str]) -> None:
    """Fuzz ``NAME FOLDER SECONDS SEED ENGINE CORPUS``."""
    name, folder, seconds, seed, engine, corpus = arguments
    if engine == "atheris":
        import atheris

        # The library alone: its parsers are what branches on the input. Kernels are compiled by
        # numba, which reads their bytecode: imported before, they are left as they are (`exclude`
        # takes no package).
        import croma_dask.kernels

        for module in pkgutil.iter_modules(croma_dask.kernels.__path__):
            importlib.import_module(f"croma_dask.kernels.{module.name}")
        with atheris.instrument_imports(["croma_dask"]):
            fuzzer = _Fuzzer(name, Path(folder), float(seconds), int(seed), corpus)
        fuzzer.run_atheris()
    else:
        fuzzer = _Fuzzer(name, Path(folder), float(seconds), int(seed), corpus)
        fuzzer.run_random()


class _Fuzzer:
    def __init__(self, name: str, folder: Path, seconds: float, seed: int, corpus: str) -> None:
        from tests.fuzz import harness, mutators

        self._harness, self._mutators = harness, mutators
        self._target = harness.all_targets()[name]
        self._folder = folder
        self._root = folder / "run"
        self._end = time.monotonic() + seconds
        self._seconds = seconds
        self._seed = seed
        self._rng = random.Random(seed)
        self._trees = harness.all_trees(
            self._target, folder / f"seeds-{os.getpid()}", Path(corpus) if corpus else None
        )
        self._build = None
        if self._target.build is not None:
            self._build = _builder(self._target.build())
        (self._root / "outside").mkdir(parents=True, exist_ok=True)
        harness.plant_canaries(self._root / "outside")
        self._state: dict[str, Any] = {
            "executions": 0, "read": 0, "refused": 0, "findings": {}, "slowest": 0.0,
            "slowest_input": "", "peak": 0, "features": 0,
        }  # fmt: skip
        self._saved = 0.0
        self._log = (folder / "fatal.log").open("a")
        harness.watch_files()
        # Seeds first: they import, compile and fill caches, which is no part of an input's memory.
        for tree in self._trees:
            self.one(tree, limit=600)
        self._limit_memory()

    def _limit_memory(self) -> None:
        base = _status("VmSize")
        limit = base + self._target.memory
        resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
        self._base = _status("VmRSS")

    def one(self, tree: dict[str, bytes], limit: float | None = None) -> None:
        """Run one input, and keep what it has done."""
        seconds = self._harness.SECONDS if limit is None else limit
        packed = self._harness.pack(tree)
        (self._folder / "current.bin").write_bytes(packed)
        _reset_peak()
        # In C code, too: a thread of its own ends the process, with a traceback in the log. Not at
        # once: what only took long is run a second time.
        faulthandler.dump_traceback_later(2.5 * seconds, exit=True, file=self._log)
        outcome = self._harness.run_one(self._target, tree, self._root)
        faulthandler.cancel_dump_traceback_later()
        if outcome is None:
            return
        state = self._state
        state["executions"] += 1
        if outcome.kind in {"read", "refused"}:
            state[outcome.kind] += 1
        if limit is None:
            if outcome.seconds > state["slowest"]:
                state["slowest"], state["slowest_input"] = outcome.seconds, self._keep(tree, "slow")
            state["peak"] = max(state["peak"], _status("VmHWM") - self._base)
        if outcome.is_finding and outcome.key not in state["findings"]:
            path = self._keep(tree, "failing")
            state["findings"][outcome.key] = {"kind": outcome.kind, "input": path}
            (self._folder / f"{Path(path).name}.txt").write_text(outcome.detail, errors="replace")
            self._save()
        if time.monotonic() > self._saved + 0.5:
            self._save()

    def _keep(self, tree: dict[str, bytes], kind: str) -> str:
        name = f"{kind}-{self._harness.digest(tree)}"
        if kind == "slow":
            for old in self._folder.glob("slow-*"):
                old.unlink()
        (self._folder / name).write_bytes(self._harness.pack(tree))
        return name

    def _save(self) -> None:
        temporary = self._folder / "state.tmp"
        temporary.write_text(json.dumps(self._state))
        temporary.rename(self._folder / "state.json")
        self._saved = time.monotonic()

    # --- without coverage ---

    def run_random(self) -> None:
        while time.monotonic() < self._end:
            if self._build is not None and self._rng.random() < 0.4:
                tree = self._build(self._rng.randbytes(self._rng.choice((64, 512, 4096))))
            else:
                tree = self._mutators.mutate_tree(
                    self._rng.choice(self._trees), self._target, self._rng
                )
            if tree:
                self.one(tree)
        self._save()

    # --- with coverage ---

    def run_atheris(self) -> None:
        import atheris

        corpus = self._folder / "corpus"
        corpus.mkdir(exist_ok=True)
        for tree in self._trees:
            packed = self._harness.pack(tree)
            (corpus / self._harness.digest(tree)).write_bytes(_TREE + packed)
        if self._build is not None:
            for size in (64, 512, 4096):
                made = _HYPOTHESIS + self._rng.randbytes(size)
                (corpus / f"built-{size}-{self._rng.random()}").write_bytes(made)
        arguments = [
            "fuzz", f"-max_total_time={max(1, int(self._end - time.monotonic()))}",
            f"-seed={self._seed + 1}", "-max_len=1048576", "-timeout=100000", "-rss_limit_mb=0",
            "-malloc_limit_mb=0", "-handle_segv=0", "-handle_abrt=0", "-print_final_stats=1",
            "-report_slow_units=100000", f"-artifact_prefix={self._folder}/", str(corpus),
        ]  # fmt: skip
        atheris.Setup(arguments, self._from_bytes, custom_mutator=self._mutate)
        atheris.Fuzz()

    def _from_bytes(self, data: bytes) -> None:
        if time.monotonic() > self._end:
            self._save()
            os._exit(0)
        tree: dict[str, bytes] | None
        if data[:1] == _HYPOTHESIS and self._build is not None:
            tree = self._build(data[1:])
        else:
            try:
                tree = self._harness.unpack(data[1:])
            except ValueError:
                return
        if tree:
            self.one(tree)

    def _mutate(self, data: bytes, max_size: int, seed: int) -> bytes:
        import atheris

        rng = random.Random(seed)
        if data[:1] == _HYPOTHESIS:
            return _HYPOTHESIS + atheris.Mutate(data[1:], max(1, max_size - 1))
        try:
            tree = self._harness.unpack(data[1:])
        except ValueError:
            tree = {}
        if not tree:
            tree = rng.choice(self._trees)
        elif len(tree) == 1 and rng.random() < 0.2:
            name, content = next(iter(tree.items()))
            return _TREE + self._harness.pack({name: atheris.Mutate(content, 1 << 19)})
        mutated = _TREE + self._harness.pack(self._mutators.mutate_tree(tree, self._target, rng))
        return mutated if len(mutated) <= max_size else data


def _builder(strategy: Any) -> Any:
    """Return a function that makes a tree of bytes by a hypothesis strategy; or it returns None."""
    from hypothesis import HealthCheck, given, settings

    made: list[dict[str, bytes]] = []

    @settings(database=None, deadline=None, suppress_health_check=list(HealthCheck))
    @given(strategy)
    def take(tree: dict[str, bytes]) -> None:
        made.append(tree)

    def build(data: bytes) -> dict[str, bytes] | None:
        made.clear()
        take.hypothesis.fuzz_one_input(data)
        return made[-1] if made else None

    return build


def _status(field: str) -> int:
    """Return a field of /proc/self/status in bytes."""
    with open("/proc/self/status") as file:
        for line in file:
            if line.startswith(field + ":"):
                return int(line.split()[1]) * 1024
    return 0


def _reset_peak() -> None:
    """Let VmHWM begin anew at what is resident now."""
    with open("/proc/self/clear_refs", "w") as file:
        file.write("5")


if __name__ == "__main__":
    main(sys.argv[1:])
