"""Run benchmarks and print their tables: python -m benchmarks [NAME [ARGUMENT=VALUE ...] ...].

Without a name all are run. Arguments of a benchmark are those of its `main`, in Python's notation:
python -m benchmarks approximate sizes=8_000,16_000 d=64
"""

from __future__ import annotations

import argparse
import ast
import importlib
import platform
from pathlib import Path
from typing import Any

NAMES = {
    "exact": "one score of 20,000 x 1,024 against croma, faiss and the matrix product",
    "streamed": "the streamed pass over 40,000 x 1,024 against the matrix product",
    "memory": "200,000 x 1,024 within 512 MB: measured peak against the plan",
    "large": "the plan and the graph of 10,000,000 x 1,024",
    "small": "the demo from the shell, importing, 5,000 small subsets",
    "approximate": "the index from 125,000 to 1,000,000 x 512 against the exact engine",
    "peers": "all neighbours of 200,000 x 512: faiss, usearch, pynndescent and ours",
    "coverage": "how often the intervals of approximate values hold the exact ones",
    "bootstrap": "2,000 draws of 10,000 groups of 1,000,000 rows, and putting rows together",
    "bootstrap_coverage": "how often the intervals of the bootstrap hold the truth",
    "embedding": "thirteen metrics of 200,000 x 50, and beside scib-metrics and scfoundry",
    "load": "50,000 labels, 100,000 groups, 1,000 scores in a process: works or is refused",
    "reading": "chunks of a store with and without checksums",
    "probe": "the probe sweep of 20,400 x 1,024 against croma, and its memory against the plan",
}


def machine() -> str:
    """Processor, cores, and the versions that matter."""
    import numba
    import numpy
    from threadpoolctl import threadpool_info

    name = next(
        (
            line.split(":", 1)[1].strip()
            for line in Path("/proc/cpuinfo").read_text().splitlines()
            if line.startswith("model name")
        ),
        platform.processor(),
    )
    import os

    blas = {f"{i['internal_api']} {i['version']}" for i in threadpool_info()}
    return (
        f"{name}, {len(os.sched_getaffinity(0))} cores; Python {platform.python_version()}, "
        f"numpy {numpy.__version__} ({', '.join(sorted(blas))}), numba {numba.__version__}"
    )


def wanted(words: list[str]) -> list[tuple[str, dict[str, Any]]]:
    """Names with the arguments that follow them; all of them where there are none."""
    found: list[tuple[str, dict[str, Any]]] = []
    for word in words:
        name, is_argument, text = word.partition("=")
        if not is_argument:
            found.append((name, {}))
            continue
        try:
            value = ast.literal_eval(text)
        except (SyntaxError, ValueError):
            value = text
        found[-1][1][name] = value
    return found or [(name, {}) for name in NAMES]


def main() -> None:
    """Run what was asked for."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("words", nargs="*", metavar="NAME", help=", ".join(NAMES))
    words = parser.parse_args().words
    unknown = [word for word in words if word not in NAMES and "=" not in word]
    if unknown or (words and "=" in words[0]):
        parser.error(f"no benchmark is called {[*unknown, *words][0]!r}; there are "
                     f"{', '.join(NAMES)}")  # fmt: skip
    print(machine())
    for name, arguments in wanted(words):
        print(f"\n## {name}: {NAMES[name]}\n", flush=True)
        importlib.import_module(f"benchmarks.{name}").main(**arguments)


if __name__ == "__main__":
    main()
