"""Sentences about numbers, for readers who do not know the metrics."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

__all__ = ["Words", "listed", "percent", "signed"]


@dataclass(frozen=True)
class Words:
    """How a cohort calls its columns.

    Attributes
    ----------
    label, confounder, group
        Names of the columns.
    paired
        Whether what is scored is an occurrence, or else a sample.
    """

    label: str
    confounder: str
    group: str
    paired: bool

    @property
    def units(self) -> str:
        """What is scored, in the plural."""
        return "occurrences" if self.paired else "samples"

    @property
    def unit(self) -> str:
        """What is scored."""
        return self.units.removesuffix("s")

    def margin(self, value: Sequence[float], m: int) -> str:
        """Read a median margin with its interval."""
        median, low, high = value
        if math.isnan(median):
            return f"No {self.unit} has a margin, so CRoMa has no value."
        near, far = (
            f"{self.units} of the same {self.label} from another {self.confounder}",
            f"{self.units} of another {self.label} from the same {self.confounder}",
        )
        if median <= 0:
            near, far = far, near
        wins = f"the {self.label if median > 0 else self.confounder}"
        text = (
            f"CRoMa is {signed(median)}: a typical {self.unit} lies nearer to {near} than to {far} "
            f"(the {m} nearest of each are looked at), so that {wins} prevails."
            if median != 0
            else f"CRoMa is 0: for a typical {self.unit}, {near} are as near as {far}."
        )
        if low == low:
            text += f" The 95 % interval is {signed(low)} to {signed(high)}"
            text += (
                ", which includes 0: this cohort does not tell which of the two prevails."
                if low <= 0 <= high
                else "."
            )
        return text

    def tail(self, value: Sequence[float], alpha: float) -> str:
        """Read a lower-tail mean with its interval."""
        mean, low, high = value
        if math.isnan(mean):
            return ""
        text = f"Over the worst {100 * alpha:g} % of the {self.units} the margin is {signed(mean)}"
        text += f" ({signed(low)} to {signed(high)}) on average" if low == low else " on average"
        return text + (
            f": there the {self.confounder} prevails."
            if mean < 0
            else f": even there the {self.label} prevails."
            if mean > 0
            else "."
        )

    def wins(self, value: Sequence[float]) -> str:
        """Read F(0) with its interval."""
        share, low, high = value
        if math.isnan(share):
            return ""
        between = f" ({percent(low)} to {percent(high)})" if low == low else ""
        said = f"At {percent(share)}{between} of the {self.units}"
        if share == 0:
            said = f"At none of the {self.units}" + (between if high > 0 else "")
        return (
            f"{said} the {self.confounder} wins over the {self.label}: {self.units} that share "
            f"only the {self.confounder} are at least as near as those that share only the "
            f"{self.label}."
        )

    def share(self, metric: str, value: Sequence[float], k: int, support: float) -> str:
        """Read RI or MaRI with its interval."""
        share, low, high = value
        if math.isnan(share):
            return ""
        if support == 0:
            return (
                f"{metric} says nothing here: no {self.unit} has a neighbour that shares only the "
                f"{self.label} or only the {self.confounder} among its {k} nearest."
            )
        between = f" ({percent(low)} to {percent(high)})" if low == low else ""
        weighted = " when near ones count more" if metric == "MaRI" else ""
        text = (
            f"{metric} is {share:.3f}: among the {k} nearest neighbours, of those that share "
            f"either the {self.label} or the {self.confounder} but not both, "
            f"{percent(share)}{between} share the {self.label}{weighted}."
        )
        if support < 1:
            text += (
                f" It rests on {percent(support)} of the {self.units}; the others have no such "
                "neighbour."
            )
        return text


def signed(value: float) -> str:
    """Write a margin: three decimals, a true minus sign."""
    if not math.isfinite(value):
        return "unknown"
    text = f"{value:.3f}"
    if float(text) == 0 and value != 0:
        text = "less than 0.001" if value > 0 else "-0.000"
    return text.replace("-", "\N{MINUS SIGN}")


def percent(share: float) -> str:
    """Write a share in percent, without claiming 0 or 100 % of what is neither."""
    if not math.isfinite(share):
        return "an unknown share"
    if 0 < share < 0.0005:
        return "less than 0.1 %"
    if 0.9995 < share < 1:
        return "more than 99.9 %"
    return f"{100 * share:.1f} %"


def listed(items: Sequence[Any], limit: int = 6) -> str:
    """List names for people; of many the first, and how many more there are."""
    shown = [str(item) for item in items[:limit]]
    if len(items) > limit:
        return ", ".join(shown) + f" and {len(items) - limit} more"
    return " and ".join([", ".join(shown[:-1]), shown[-1]] if len(shown) > 1 else shown)
