"""What runs in an environment: compute, compare, and tell what the environment was."""

from __future__ import annotations

import json
import locale
import platform
import sys
from typing import Any

from tests.drift import table
from tests.drift.values import capture


def capture_table() -> int:
    """Write the table from what this process computes."""
    table.write(capture())
    print(f"written: {table.TABLE}")
    return 0


def check_here(*, as_json: bool) -> int:
    """Compare what this process computes with the table; 1 where anything differs."""
    # As a program in this locale would: by default Python takes its characters only.
    locale.setlocale(locale.LC_ALL, "")
    values = capture()
    kept = table.read()
    found = table.differences(values, kept)
    exact = sum(map(table.is_exact, kept))
    if as_json:
        print(json.dumps({"off": found, "exact": exact, "others": len(kept) - exact, **seen()}))
    else:
        print(
            "\n".join(found) or f"{exact} arrays the same bits, {len(kept) - exact} within digits"
        )
    return 1 if found else 0


def seen() -> dict[str, Any]:
    """Tell what this process runs on."""
    import numpy as np
    import threadpoolctl
    from numba.core import config
    from numpy._core._multiarray_umath import __cpu_dispatch__, __cpu_features__

    blas = [lib for lib in threadpoolctl.threadpool_info() if lib["user_api"] == "blas"]
    dispatched = {name for name in __cpu_dispatch__ if __cpu_features__.get(name)}
    return {
        "python": platform.python_version(),
        "libc": " ".join(platform.libc_ver()),
        "numpy": np.__version__,
        "blas": sorted({str(lib.get("architecture")) for lib in blas}),
        "blas_threads": sorted({int(lib["num_threads"]) for lib in blas}),
        "avx2": bool(dispatched & {"AVX2", "X86_V3"}),
        "numba_cpu": config.CPU_NAME or "host",
        "locale": locale.setlocale(locale.LC_ALL),
        "encoding": locale.getencoding(),
        "hashes": hash("drift"),
        "flags": sys.flags.utf8_mode,
    }
