"""Every name that a result carries, declared once: dimensions, meaning, range, neutral value."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    import xarray as xr

__all__ = [
    "ACCURACY",
    "COORDINATES",
    "METRICS",
    "NEIGHBORS",
    "SWEEP",
    "Variable",
    "build_dataset",
    "check_declared",
    "text_array",
    "variables_of",
]


@dataclass(frozen=True)
class Variable:
    """One variable of a result.

    Attributes
    ----------
    dims
        Dimensions it has; `m` is added where several m were asked for.
    kind
        numpy kind of its dtype: f, i, b; O for text.
    long_name, comment
        What it is, in a few words and in full.
    valid_min, valid_max
        Closed range; None where open.
    neutral
        Value of an embedding that favours neither biology nor the confounder.
    flags
        Names of integer codes.
    """

    dims: tuple[str, ...]
    kind: str
    long_name: str
    comment: str = ""
    valid_min: float | None = None
    valid_max: float | None = None
    neutral: float | None = None
    flags: Mapping[int, str] | None = None

    def attrs(self) -> dict[str, Any]:
        """Attributes as they are written, CF names where there are some; text has no unit."""
        found: dict[str, Any] = {"long_name": self.long_name}
        if self.kind != "O":
            found["units"] = "1"
        if self.comment:
            found["comment"] = self.comment
        if self.valid_min is not None:
            found["valid_min"] = self.valid_min
        if self.valid_max is not None:
            found["valid_max"] = self.valid_max
        if self.neutral is not None:
            found["neutral_value"] = self.neutral
        if self.flags is not None:
            found["flag_values"] = [int(v) for v in self.flags]
            found["flag_meanings"] = " ".join(self.flags.values())
        return found


def _fraction(long_name: str, comment: str = "") -> Variable:
    return Variable((), "f", long_name, comment, 0.0, 1.0)


def _common(low: float, high: float, neutral: float, what: str) -> dict[str, Variable]:
    """Variables that every robustness metric has."""

    def ranged(dims: tuple[str, ...], long_name: str, comment: str = "") -> Variable:
        return Variable(dims, "f", long_name, comment, low, high, neutral)

    return {
        "value": ranged((), f"{what}"),
        "std": Variable(
            (), "f", "standard deviation over subsets",
            "Population standard deviation of pair_values; 0 for one subset.", 0.0,
        ),
        "n_pairs": Variable((), "i", "number of subsets", valid_min=1),
        "pair_values": ranged(("subset",), f"{what} of each subset"),
        "sample_values": ranged(
            ("sample",), f"{what} of each sample",
            "Aligned to the manifest; NaN where undefined (see undefined_type).",
        ),
        "defined": Variable(("sample",), "b", "whether the sample value is defined"),
        "undefined_frac": _fraction("fraction of scored units that are undefined"),
        "support": _fraction("fraction of scored units that are defined", "1 - undefined_frac"),
        "median_value": ranged((), "median of the defined sample values"),
        "q_alpha": ranged(
            (), "alpha-quantile of the defined sample values", "Linear interpolation."
        ),
        "ltm_alpha": ranged(
            (), "lower-tail mean", "Mean of the defined sample values at or below q_alpha."
        ),
    }  # fmt: skip


def _index(what: str, weight: str, pooled: str = "") -> dict[str, Variable]:
    """Variables of RI and MaRI; what a neighbour weighs, and on which scale it is pooled."""
    denominators = "Denominator: all scored units."
    return {
        **_common(0.0, 1.0, 0.5, what),
        "undefined_type": Variable(
            ("sample",), "i", "why a sample value is undefined",
            "From the neighbours within the operating k: mostly SS, mostly OO, or as many of both.",
            flags={
                -1: "not_scored", 0: "defined", 1: "ss_dominated", 2: "oo_dominated", 3: "mixed",
            },
        ),
        "ss_dominated_undefined_frac": _fraction(
            "fraction undefined with mostly SS neighbours", denominators
        ),
        "oo_dominated_undefined_frac": _fraction(
            "fraction undefined with mostly OO neighbours", denominators
        ),
        "mixed_undefined_frac": _fraction(
            "fraction undefined with as many SS as OO neighbours, or none", denominators
        ),
        **{
            f"{kind}_evidence": Variable(
                ("sample",), "f", f"weight of the {kind.upper()} neighbours of each sample",
                f"{weight} 0 where undefined. value is the sum of so_evidence over that of both"
                f"{pooled}.",
                0.0,
            )
            for kind in ("so", "os")
        },
        "tau": Variable(
            (), "f", "bandwidth of the distance weights",
            "Cosine distance; NaN for RI, which weighs all neighbours alike.", 0.0,
        ),
        "curve": Variable(
            ("k_candidate",), "f", f"{what} at every candidate k", "", 0.0, 1.0, 0.5
        ),
        "balanced_accuracy": Variable(
            ("k_candidate",), "f", "balanced accuracy of the label by majority vote",
            "What the operating k was chosen by; NaN where k is not below the number of rows.",
            0.0, 1.0,
        ),
    }  # fmt: skip


METRICS: dict[str, dict[str, Variable]] = {
    "RI": _index("robustness index", "Their number within the operating k."),
    "MaRI": {
        **_index(
            "margin-aware robustness index",
            "Sum of exp(-(d - evidence_distance) / tau) within the operating k.",
            ", each times exp(-(evidence_distance - nearest) / tau), nearest being the least "
            "evidence_distance of what is pooled",
        ),
        "evidence_distance": Variable(
            ("sample",), "f", "distance of the nearest typed neighbour of each sample",
            "Cosine distance, within the operating k: what so_evidence and os_evidence are "
            "relative to; NaN where undefined.", 0.0, 2.0,
        ),
    },
    "CRoMa": {
        **_common(-1.0, 1.0, 0.0, "cross-confounder robustness margin"),
        "undefined_type": Variable(
            ("sample",), "i", "why a margin is undefined",
            "From the number of candidates of another group.",
            flags={
                -1: "not_scored", 0: "defined", 1: "fewer_than_m_so", 2: "fewer_than_m_os",
                3: "fewer_than_m_so_and_os", 4: "zero_distance",
            },
        ),
        "no_so_undefined_frac": _fraction("fraction with fewer than m SO candidates"),
        "no_os_undefined_frac": _fraction("fraction with fewer than m OS candidates"),
        "zero_distance_undefined_frac": _fraction("fraction whose nearest SO and OS coincide"),
        "f0": _fraction(
            "F(0): fraction of defined units with margin <= 0",
            "Units that lie no nearer to their own biology than to their own confounder.",
        ),
        "k_start": Variable((), "i", "first radius of the search", valid_min=0),
        "k_final": Variable((), "i", "last radius of the search", valid_min=0),
        "retries": Variable((), "i", "how often the radius was widened", valid_min=0),
    },
}  # fmt: skip
"""Metric name -> variable name -> declaration."""

EVIDENCE: dict[str, tuple[str, ...]] = {
    "RI": ("so_evidence", "os_evidence"),
    "MaRI": ("so_evidence", "os_evidence", "evidence_distance", "tau"),
}
"""Metric name -> variables that pooled values of its samples are made of."""

CALIBRATED: dict[str, tuple[str, ...]] = {
    "RI": ("value",),
    "MaRI": ("value",),
    "CRoMa": ("value", "ltm_alpha", "f0"),
}
"""Metric name -> variables of which an approximate run estimates the error."""


def _calibration(metric: str) -> dict[str, Variable]:
    """Variables that a metric has in addition where its neighbours are approximate."""
    of_sample = "Share of a sample's exact neighbours that were found; NaN where not used."
    found = {
        f"recall_{name}": _fraction(f"recall of the lists of {what}", of_sample)
        for name, what in (
            ("global", "nearest neighbours"), ("so", "nearest SO rows"), ("os", "nearest OS rows"),
        )
    }  # fmt: skip
    found["calibration_rows"] = Variable(
        (), "i", "rows of the sample that was searched exactly as well", valid_min=0
    )
    if metric != "CRoMa":
        found["k_possible"] = Variable(
            ("k_candidate",), "b", "whether the exact search may have chosen this k",
            "Several where the balanced accuracies are nearer than the sample can tell apart.",
        )  # fmt: skip
    for name in CALIBRATED[metric]:
        found |= {
            f"{name}_error": Variable(
                (), "f", f"estimated error of {name}", "Approximate value minus exact value."
            ),
            f"{name}_error_low": Variable(
                (), "f", f"lower end of the 95 % interval of the error of {name}",
                f"The exact {name} is at most {name} minus this.",
            ),
            f"{name}_error_high": Variable(
                (), "f", f"upper end of the 95 % interval of the error of {name}",
                f"The exact {name} is at least {name} minus this.",
            ),
        }  # fmt: skip
    return found


CALIBRATION: dict[str, dict[str, Variable]] = {name: _calibration(name) for name in METRICS}
"""Metric name -> variable name -> declaration; results of an exact search have none of these."""

COORDINATES: dict[str, Variable] = {
    "sample_id": Variable(("sample",), "O", "sample"),
    "sample_subset": Variable(("sample",), "O", "subset of the sample"),
    "label": Variable(("sample",), "O", "biological class"),
    "confounder": Variable(("sample",), "O", "confounder level"),
    "group_id": Variable(
        ("sample",), "O", "independence group", "Rows of one group are never neighbours."
    ),
    "subset": Variable(("subset",), "O", "subset"),
    "k_candidate": Variable(("k_candidate",), "i", "candidate k", valid_min=1),
    "k": Variable((), "i", "operating k", valid_min=1),
    "m": Variable(("m",), "i", "nearest neighbours of each type (SO, OS)", valid_min=1),
}
"""Coordinates of results."""

NEIGHBORS: dict[str, Variable] = {
    "neighbor_index": Variable(
        ("sample", "neighbor"), "i", "nearest rows of another group",
        "Positions within the subset, by (distance, position); -1 behind the last.", -1,
    ),
    "neighbor_distance": Variable(
        ("sample", "neighbor"), "f", "cosine distance of the nearest rows of another group",
        "NaN behind the last.", 0.0, 2.0,
    ),
    "so_distance": Variable(
        ("sample", "nearest"), "f", "cosine distance of the nearest SO rows",
        "Same label, other confounder, other group; NaN behind the last.", 0.0, 2.0,
    ),
    "os_distance": Variable(
        ("sample", "nearest"), "f", "cosine distance of the nearest OS rows",
        "Other label, same confounder, other group; NaN behind the last.", 0.0, 2.0,
    ),
    "manifest_row": Variable(("sample",), "i", "row of the manifest", valid_min=0),
    "first_row": Variable(("subset",), "i", "where a subset begins along sample", valid_min=0),
    "unit_sum": Variable(("feature",), "f", "sum of the unit vectors of the embedding"),
}  # fmt: skip
"""Variables of kept neighbours (``keep_neighbors=``)."""

ACCURACY = Variable(
    ("split", "iteration"), "f", "balanced accuracy of the probe",
    "Mean over the classes of the share of test rows that is predicted right.", 0.0, 1.0,
)  # fmt: skip
"""Variable of each test set of a probe sweep."""

SWEEP: dict[str, Variable] = {
    "split": Variable(
        ("split",), "i", "split of the schedule", "0 is the balanced one.", valid_min=0
    ),
    "iteration": Variable(("iteration",), "i", "replicate", valid_min=0),
    "cramers_v": Variable(
        ("split",), "f", "Cramer's V of label and confounder in the training rows",
        "0: balanced; 1: fully confounded; NaN where a table has one row or column.", 0.0, 1.0,
    ),
    "replicate_seed": Variable(("iteration",), "i", "seed of the replicate", valid_min=0),
    "training_rows": Variable(("split",), "i", "rows that a split trains on", valid_min=1),
    "training_table": Variable(
        ("split", "confounder", "label"), "i", "rows of each cell that a split trains on",
        valid_min=0,
    ),
    "confounder": Variable(("confounder",), "O", "confounder level", "In the schedule's order."),
    "label": Variable(("label",), "O", "biological class", "In the schedule's order."),
    "C": Variable(
        ("split", "iteration"), "f", "inverse regularisation of the probe",
        "The first of 15 values with the highest validation score.", 1e-8, 1e4,
    ),
    "validation_score": Variable(
        ("split", "iteration"), "f", "balanced accuracy on the validation rows", "", 0.0, 1.0
    ),
    "lbfgs_iterations": Variable(
        ("split", "iteration"), "i", "iterations of the fit at this C", valid_min=0
    ),
    "converged": Variable(
        ("split", "iteration"), "b", "whether that fit ended by its tolerance"
    ),
    "fits": Variable(
        ("split", "iteration"), "i", "values of C that were tried",
        "Fewer than 15 where a validation score of 1 was reached: no later C can win.", 1, 15,
    ),
}  # fmt: skip
"""Coordinates of a probe sweep; its variables are its test sets."""

CURVE = Variable((), "f", "pooled value at k", "", 0.0, 1.0, 0.5)


def variables_of(metric: str, *, approximate: bool = False) -> dict[str, Variable]:
    """Return the declared variables of a metric."""
    return METRICS[metric] | (CALIBRATION[metric] if approximate else {})


def text_array(values: Sequence[str]) -> NDArray[np.object_]:
    """(n,) object array of text, of any length."""
    found = np.empty(len(values), dtype=object)
    found[:] = list(values)
    return found


def check_declared(declared: Mapping[str, Variable], given: Iterable[str], what: str = "") -> None:
    """Check that what is to be labelled is what is declared, name by name.

    Raises
    ------
    KeyError
        A declared variable is missing or an undeclared one is given: a defect of the caller.
    """
    if set(given) != set(declared):
        raise KeyError(f"{what}{sorted(set(given) ^ set(declared))} not as declared")


def build_dataset(
    metric: str,
    values: Mapping[str, Any],
    coords: Mapping[str, tuple[tuple[str, ...], Any]],
    attrs: Mapping[str, Any],
) -> xr.Dataset:
    """Label the numbers of a metric.

    Parameters
    ----------
    metric
        Key of :data:`METRICS`.
    values
        One array or number for every declared variable; one dimension more than declared is `m`.
        With any variable of :data:`CALIBRATION` all of them have to be there.
    coords
        Dims and data of each coordinate.
    attrs
        What the result says of itself.

    Raises
    ------
    KeyError
        A declared variable is missing or an undeclared one is given: a defect of the caller.
    """
    import xarray as xr

    approximate = not CALIBRATION[metric].keys().isdisjoint(values)
    declared = variables_of(metric, approximate=approximate)
    check_declared(declared, values, f"{metric}: ")
    data = {}
    for name, variable in declared.items():
        array = np.asarray(values[name])
        dims = variable.dims if array.ndim == len(variable.dims) else ("m", *variable.dims)
        if array.dtype.kind == "i" and array.ndim == 0:
            array = array.astype(np.int64)
        data[name] = xr.Variable(dims, array, variable.attrs())
    named = {}
    for name, (dims, array) in coords.items():
        named[name] = xr.Variable(dims, array, COORDINATES[name].attrs())
    return xr.Dataset(data, named, dict(attrs))
