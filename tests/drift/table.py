"""The captured table: what is kept of each array, and how a computed one is compared with it.

Exact results are kept as digests of their bytes, and have to be the same bytes everywhere. What
other libraries take part in (BLAS in k-means, scikit-learn's optimiser, the C library's exp) is
kept as numbers, and has to be the same to the digits that :data:`WITHIN` states. Long arrays are
thinned.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from tests.drift.values import Values, digest

TABLE = Path(__file__).with_name("table.json")

# By part: absolute difference that is allowed; parts that are not named have to be the same bits.
WITHIN = {"approximate": 1e-2, "probes": 1e-2, "benchmarks": 1e-9}
# Of an approximate search: what it may find differently, and its values do not show.
APPROXIMATE = (
    "value",
    "std",
    "ltm_alpha",
    "q_alpha",
    "f0",
    "curve",
    "k",
    "recall_global",
    "recall",
)

_LONG = 100


def is_exact(name: str) -> bool:
    """Whether an array has to be the same bits everywhere."""
    return name.split("/")[0] not in WITHIN


def is_kept(name: str) -> bool:
    """Whether an array is part of the table."""
    return not name.startswith("approximate/") or name.split("/")[-1] in APPROXIMATE


def entry(name: str, value: Any) -> Any:
    """Return what the table keeps of a value, as JSON has it."""
    if is_exact(name):
        return digest(value)
    if isinstance(value, str):
        return value
    array = np.asarray(value)
    flat = thinned(array)
    if array.dtype.kind == "f":
        return [None if np.isnan(v) else float(v) for v in flat]
    return [v.item() if array.dtype.kind in "iub" else str(v) for v in flat]


def thinned(array: Any) -> Any:
    """Every so many entries of a long array."""
    return np.ravel(array)[:: -(-np.size(array) // _LONG) or 1]


def write(values: Values) -> None:
    """Write the table."""
    kept = {name: entry(name, value) for name, value in sorted(values.items()) if is_kept(name)}
    lines = (f" {json.dumps(k)}: {json.dumps(v, ensure_ascii=False)}" for k, v in kept.items())
    TABLE.write_text("{\n" + ",\n".join(lines) + "\n}\n", encoding="utf-8")


def read() -> dict[str, Any]:
    """Read the table."""
    return dict(json.loads(TABLE.read_text(encoding="utf-8")))


def differences(values: Values, table: Mapping[str, Any]) -> list[str]:
    """Say what is not as the table has it; a part that was not computed counts as missing."""
    found = [f"{name}: not computed" for name in table if name not in values]
    for name, value in values.items():
        if not is_kept(name):
            continue
        if name not in table:
            found.append(f"{name}: not in the table")
            continue
        mine, theirs = entry(name, value), table[name]
        if mine == theirs:
            continue
        if is_exact(name):
            found.append(f"{name}: other bits, {_shown(value)}")
        elif not _close(mine, theirs, WITHIN[name.split("/")[0]]):
            found.append(f"{name}: {_shown(mine)}, in the table {_shown(theirs)}")
    return found


def _close(mine: Any, theirs: Any, within: float) -> bool:
    if not isinstance(mine, list) or not isinstance(theirs, list) or len(mine) != len(theirs):
        return False
    return all(
        a == b
        or (
            isinstance(a, float | int)
            and isinstance(b, float | int)
            and abs(a - b) <= within * max(1.0, abs(b))
        )
        for a, b in zip(mine, theirs, strict=True)
    )


def _shown(value: Any) -> str:
    text = " ".join(str(value).split())
    return text if len(text) <= 100 else text[:97] + "..."
