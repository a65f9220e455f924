"""What `.croma` has for which object, and how it says that something else does not apply."""

from __future__ import annotations

from typing import Any

from croma_dask.kinds import KINDS, Kind, kind_of

__all__ = ["APPLIES_TO", "Accessor"]

_COHORT: tuple[Kind, ...] = ("cohort",)
_RESULT: tuple[Kind, ...] = ("result",)
_DRAWN: tuple[Kind, ...] = ("result", "sweep", "benchmark", "bootstrap", "ranks")
_TOLD: tuple[Kind, ...] = (*_DRAWN, "breakdown", "explanation")

APPLIES_TO: dict[str, tuple[Kind, ...]] = {
    "score": _COHORT,
    "plan": _COHORT,
    "probe_sweep": _COHORT,
    "plan_probe_sweep": _COHORT,
    "embedding_benchmark": _COHORT,
    "plan_embedding_benchmark": _COHORT,
    "explain": _COHORT,
    "summary": _TOLD,
    "to_frame": _TOLD,
    "save": _TOLD,
    "plot": _DRAWN,
    "bootstrap": _RESULT,
    "breakdown": _RESULT,
    "worst_groups": _RESULT,
    "report": ("result", "sweep", "benchmark"),
}
"""Method -> kinds of object that it is for, as :func:`croma_dask.kinds.kind_of` tells them."""


class Accessor:
    """What every accessor has: its object, and what applies to it."""

    def __init__(self, data: Any) -> None:
        self._data = data

    def _of(self, name: str) -> Any:
        """Return the object, if `name` is for such as it is."""
        from croma_dask.errors import SchemaError

        kind = kind_of(self._data)
        # What is not known is left to the function, which says what it misses.
        if kind == "unknown" or kind in APPLIES_TO[name]:
            return self._data
        meant = " or ".join(KINDS[other] for other in APPLIES_TO[name])
        here = ", ".join(other for other in dir(self) if other in APPLIES_TO)
        raise SchemaError(
            f"this is {KINDS[kind]}; .croma.{name} is for {meant}. What it has here: {here}"
        )

    def __dir__(self) -> list[str]:
        """Name what there is for such an object, and nothing else of this class."""
        kind = kind_of(self._data)
        return [
            name
            for name in super().__dir__()
            if name not in APPLIES_TO or kind == "unknown" or kind in APPLIES_TO[name]
        ]

    def __repr__(self) -> str:
        """Show the object at a glance: a table of a result, shape and counts of a cohort."""
        from croma_dask.notebook import describe_text

        return describe_text(self._data)

    def _repr_html_(self) -> str:
        """Show the same in a notebook."""
        from croma_dask.notebook import describe_html

        return describe_html(self._data)
