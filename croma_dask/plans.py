"""What a run will cost, as numbers and as tables for people: of one model, and of several."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from croma_dask import markup
from croma_dask.cost import Choice
from croma_dask.memory import format_bytes
from croma_dask.robustness.preflight import Unscoreable

__all__ = ["PanelPlan", "Plan"]


@dataclass(frozen=True, repr=False)
class Plan:
    """What a run will cost.

    Attributes
    ----------
    engine
        ``small``, ``direct`` or ``streamed``, or ``ivf`` for an approximate search.
    n_samples, n_tiles, n_features, n_scopes
        Manifest rows, stored rows, length of a row, scopes searched each by itself.
    n_ranges, n_tasks
        Ranges of rows of the largest scope, and pair tasks over all scopes.
    range_rows
        Rows of the longest range.
    bytes_read
        Bytes of embedding read over the whole run.
    peak_memory
        Bytes that a process takes above the bare one at the worst moment.
    allowed_memory
        Bytes it may take.
    scratch_bytes
        Bytes that the lists of a streamed run take in its scratch folder.
    memory_terms
        What the peak consists of.
    n_workers, tasks_at_once
        Processes, and tasks side by side in each.
    seconds
        Estimate, from the rates below.
    product_rate, read_rate
        Multiply-adds a second of this machine's float32 matrix product, with as many threads as the
        run uses; bytes a second read from the embedding. Measured just now.
    index
        Kind of the index that would be used.
    choice
        What ``index="auto"`` takes, with the seconds of each kind and the reason.
    unscoreable
        Which units CRoMa cannot score, for each m.
    """

    engine: str
    n_samples: int
    n_tiles: int
    n_features: int
    n_scopes: int
    n_ranges: int
    n_tasks: int
    range_rows: int
    bytes_read: int
    peak_memory: int
    allowed_memory: int
    scratch_bytes: int
    memory_terms: dict[str, int]
    n_workers: int
    tasks_at_once: int
    seconds: float
    product_rate: float
    read_rate: float
    index: str
    choice: Choice
    unscoreable: tuple[Unscoreable, ...]

    def _rows(self) -> list[tuple[str, str]]:
        terms = ", ".join(f"{k} {format_bytes(v)}" for k, v in self.memory_terms.items())
        how = {
            "small": "in memory, numpy (too small for anything else to be faster)",
            "direct": "in memory, compiled kernels",
            "streamed": "streamed in ranges of rows",
        }.get(self.engine, "through an index, in ranges of clusters")
        exactness = "exact" if self.index == "exact" else f"approximate ({self.index})"
        lines = [
            ("samples", f"{self.n_samples:,} x {self.n_features:,} ({self.n_tiles:,} stored rows)"),
            ("search", f"{exactness}, {how}; {self.n_scopes:,} scope{'s' * (self.n_scopes != 1)}"),
            ("tasks", f"{self.n_tasks:,} on {self.n_workers} process"
                      f"{'es' * (self.n_workers != 1)} x {self.tasks_at_once} at once; "
                      f"{self.n_ranges:,} ranges of {self.range_rows:,} rows"),
            ("disk", f"reads {format_bytes(self.bytes_read)}"
                     + (f", keeps {format_bytes(self.scratch_bytes)} in scratch"
                        if self.scratch_bytes else "")),
            ("memory", f"{format_bytes(self.peak_memory)} of "
                       f"{format_bytes(self.allowed_memory)} allowed ({terms})"),
            ("time", f"about {_duration(self.seconds)} (products {self.product_rate / 1e9:.0f} G "
                     f"multiply-adds/s, reads {format_bytes(self.read_rate)}/s)"),
            ("index", f"exact {_duration(self.choice.seconds['exact'])}, ivf about "
                      f"{_duration(self.choice.seconds['ivf'])}; auto takes {self.choice.kind}: "
                      f"{self.choice.why}"),
        ]  # fmt: skip
        return lines + [("support", str(found)) for found in self.unscoreable]

    def __repr__(self) -> str:
        # What an interactive prompt shows: the table, not eight hundred characters of fields.
        return str(self)

    def __str__(self) -> str:
        """Lay the plan out as a table for people."""
        return "\n".join(f"{name:<9}{text}" for name, text in self._rows())

    def _repr_html_(self) -> str:
        """Lay the plan out for a notebook."""
        sentence = (
            f"About {_duration(self.seconds)} and {format_bytes(self.peak_memory)} of memory; "
            "nothing has been run."
        )
        return markup.facts(self._rows(), title="Plan of a run", sentence=sentence)


@dataclass(frozen=True, repr=False)
class PanelPlan:
    """What scoring several models of the same rows will cost, one after the other.

    Attributes
    ----------
    plans
        Model name to the plan of scoring it alone.
    results_bytes
        Bytes of the per-sample values of all models but one: the others wait in memory.
    """

    plans: Mapping[str, Plan]
    results_bytes: int

    @property
    def peak_memory(self) -> int:
        """Bytes at the worst moment, of the model that takes most and the results of the others."""
        return max(one.peak_memory for one in self.plans.values()) + self.results_bytes

    @property
    def seconds(self) -> float:
        """Seconds of all models together."""
        return sum(one.seconds for one in self.plans.values())

    @property
    def bytes_read(self) -> int:
        """Bytes of embedding read for all models together."""
        return sum(one.bytes_read for one in self.plans.values())

    @property
    def scratch_bytes(self) -> int:
        """Bytes of lists in scratch at the worst moment, those of one model at a time."""
        return max(one.scratch_bytes for one in self.plans.values())

    def __repr__(self) -> str:
        # What an interactive prompt shows: the table, not eight hundred characters of fields.
        return str(self)

    def __str__(self) -> str:
        """Lay the plan out: a line a model, then what they take together."""
        first = next(iter(self.plans.values()))
        width = max(len("model"), *(len(name) for name in self.plans)) + 2
        lines = [
            f"{len(self.plans)} model{'s' * (len(self.plans) != 1)} of {first.n_samples:,} "
            "samples, one after the other",
            f"  {'model':<{width}}{'features':>9}{'engine':>13}{'reads':>12}{'memory':>12}"
            f"{'time':>10}",
        ]
        for name, one in self.plans.items():
            lines.append(
                f"  {name:<{width}}{one.n_features:>9,}{one.engine:>13}"
                f"{format_bytes(one.bytes_read):>12}{format_bytes(one.peak_memory):>12}"
                f"{_duration(one.seconds):>10}"
            )
        kept = self.results_bytes
        memory = (
            f"{format_bytes(self.peak_memory)} (the largest"
            + (f", and {format_bytes(kept)} of results of the others" if kept else "")
            + f"); {format_bytes(first.allowed_memory)} allowed for one"
        )
        lines += [
            f"{name:<9}{text}"
            for name, text in [
                ("disk", f"reads {format_bytes(self.bytes_read)}"
                         + (f", keeps {format_bytes(self.scratch_bytes)} in scratch"
                            if self.scratch_bytes else "")),
                ("memory", memory),
                ("time", f"about {_duration(self.seconds)}"),
                *(("support", str(found)) for found in first.unscoreable),
            ]
        ]  # fmt: skip
        return "\n".join(lines)

    def _repr_html_(self) -> str:
        """Lay the plan out for a notebook."""
        table = markup.table(
            ["model", "features", "engine", "reads", "memory", "time"],
            [
                [name, f"{one.n_features:,}", one.engine, format_bytes(one.bytes_read),
                 format_bytes(one.peak_memory), _duration(one.seconds)]
                for name, one in self.plans.items()
            ],
        )  # fmt: skip
        first = next(iter(self.plans.values()))
        sentence = (
            f"{first.n_samples:,} samples, one model after the other: about "
            f"{_duration(self.seconds)}, {format_bytes(self.peak_memory)} of memory at the "
            f"worst moment, {format_bytes(self.bytes_read)} read; nothing has been run."
        )
        notes = [str(found) for found in first.unscoreable]
        return markup.block("Plan of a panel", sentence, table, notes)


def _duration(seconds: float) -> str:
    """Write a time for people."""
    if seconds < 90:
        return f"{seconds:.1f} s"
    if seconds < 5400:
        return f"{seconds / 60:.0f} min"
    return f"{seconds / 3600:.1f} h"
