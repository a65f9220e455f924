"""Run benchmarks and print their tables: python -m benchmarks [NAME ...]."""

from __future__ import annotations

import argparse
import importlib
import platform
from pathlib import Path

NAMES = {
    "exact": "one score of 20,000 x 1,024 against croma, faiss and the matrix product",
    "streamed": "the streamed pass over 40,000 x 1,024 against the matrix product",
    "memory": "200,000 x 1,024 within 512 MB: measured peak against the plan",
    "large": "the plan and the graph of 10,000,000 x 1,024",
    "small": "the demo from the shell, importing, 5,000 small subsets",
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


def main() -> None:
    """Run what was asked for."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*", metavar="NAME", help=", ".join(NAMES))
    arguments = parser.parse_args()
    unknown = sorted(set(arguments.names) - set(NAMES))
    if unknown:
        parser.error(f"no benchmark is called {unknown[0]!r}; there are {', '.join(NAMES)}")
    print(machine())
    for name in arguments.names or NAMES:
        print(f"\n## {name}: {NAMES[name]}\n")
        importlib.import_module(f"benchmarks.{name}").main()


if __name__ == "__main__":
    main()
