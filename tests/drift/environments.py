"""Environments in which the numbers have to be the same, and what makes each.

Several settings share an environment, since each costs a minute of compilation; where one drifts,
`python -m tests.drift matrix --set NAME=VALUE` tells which setting it is.
"""

from __future__ import annotations

import re
import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any


@dataclass(frozen=True)
class Environment:
    """One child process.

    Attributes
    ----------
    name
        What the printed table calls it.
    variables
        Set for the child.
    core
        OpenBLAS kernel that the child has to report; empty leaves it to the processor.
    needs
        Flags that the processor has to have.
    locale
        Locale that the child has to be in.
    numpy
        Minor release that the child has to report, laid over that of this environment.
    newest
        Run by the newest Python.
    """

    name: str
    variables: dict[str, str] = field(default_factory=dict)
    core: str = ""
    needs: tuple[str, ...] = ()
    locale: str = ""
    numpy: str = ""
    newest: bool = False


_NO_AVX = {
    # What numpy 2.4 calls these, and what older ones do; a name that is not known is passed over.
    "NPY_DISABLE_CPU_FEATURES": "X86_V3 X86_V4 AVX512_ICL AVX512_SPR AVX F16C FMA3 AVX2 AVX512F "
    "AVX512CD AVX512_SKX AVX512_CLX AVX512_CNL",
    "NUMBA_CPU_NAME": "generic",
    "NUMBA_CPU_FEATURES": "",
    # Which exp and pow the C library takes.
    "GLIBC_TUNABLES": "glibc.cpu.hwcaps=-AVX512F,-AVX2,-FMA,-FMA4,-AVX",
}


def _threads(number: int) -> dict[str, str]:
    return dict.fromkeys(
        ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "NUMBA_NUM_THREADS"), str(number)
    )


BLAS = (
    Environment("as it comes, hashes at random", {"PYTHONHASHSEED": "random", **_threads(2)}),
    Environment(
        "Prescott, no AVX, generic numba, German",
        {"PYTHONHASHSEED": "0", "TZ": "Asia/Tokyo", **_NO_AVX, **_threads(1)},
        core="Prescott", locale="de_DE.UTF-8",
    ),
    Environment(
        "Nehalem, locale C without UTF-8",
        {"PYTHONHASHSEED": "1", "PYTHONCOERCECLOCALE": "0", "PYTHONUTF8": "0", **_threads(2)},
        core="Nehalem", needs=("sse4_2",), locale="C",
    ),
    Environment(
        "Sandybridge, Turkish",
        {"PYTHONHASHSEED": "2", "TZ": "America/St_Johns", **_threads(2)},
        core="Sandybridge", needs=("avx",), locale="tr_TR.UTF-8",
    ),
    Environment("Haswell", _threads(2), core="Haswell", needs=("avx2", "fma")),
    Environment("Zen", {"PYTHONHASHSEED": "0", **_threads(1)}, core="Zen", needs=("avx2", "fma")),
    Environment(
        "SkylakeX", {"PYTHONHASHSEED": "0", **_threads(1)},
        core="SkylakeX", needs=("avx512f", "avx512vl", "avx512bw", "avx512dq"),
    ),
)  # fmt: skip

# Minor releases of numpy, and the Python up to which they have wheels.
_NUMPY = {"2.0": (3, 12), "2.1": (3, 13), "2.2": (3, 13), "2.3": (3, 14), "2.4": (3, 14)}


def all_environments() -> list[Environment]:
    """All that there are for this Python."""
    minors = [minor for minor, last in _NUMPY.items() if sys.version_info[:2] <= last]
    return [
        *BLAS,
        *(Environment(f"numpy {minor}", numpy=minor) for minor in minors),
        Environment("the newest Python", newest=True),
    ]


def processor() -> set[str]:
    """Flags of this processor; empty where the system does not tell."""
    try:
        text = Path("/proc/cpuinfo").read_text()
    except OSError:
        return set()
    found = re.search(r"^flags\s*:(.*)$", text, re.MULTILINE)
    return set(found.group(1).split()) if found else set()


# OpenBLAS calls what it runs by the names of the kernels, some of which several processors share.
_REPORTED = {"Prescott": {"Prescott", "Katmai"}, "Zen": {"Zen", "Haswell"}}


def contradictions(environment: Environment, seen: dict[str, Any], version: str) -> list[str]:
    """Say where a child was not in the environment that it was to be in."""
    wrong = []
    cores = _REPORTED.get(environment.core, {environment.core})
    if environment.core and not seen["blas"]:
        wrong.append("no OpenBLAS was loaded")
    if environment.core and not set(seen["blas"]) <= cores:
        wrong.append(f"OpenBLAS runs as {seen['blas']}")
    if environment.locale and seen["locale"] != environment.locale:
        wrong.append(f"the locale is {seen['locale']}")
    if environment.locale == "C" and "utf" in seen["encoding"].lower():
        wrong.append(f"the encoding is {seen['encoding']}")
    if environment.numpy and not seen["numpy"].startswith(environment.numpy + "."):
        wrong.append(f"numpy is {seen['numpy']}")
    if environment.newest and not seen["python"].startswith(version + "."):
        wrong.append(f"Python is {seen['python']}")
    if "NUMBA_CPU_NAME" in environment.variables and seen["numba_cpu"] != "generic":
        wrong.append(f"numba compiles for {seen['numba_cpu']}")
    if "NPY_DISABLE_CPU_FEATURES" in environment.variables and seen["avx2"]:
        wrong.append("numpy uses AVX2")
    return wrong
