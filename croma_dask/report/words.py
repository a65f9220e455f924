"""Sentences about numbers, for readers who do not know the metrics."""

from __future__ import annotations

import math
import unicodedata
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

__all__ = ["Words", "counted", "isolated", "listed", "percent", "signed"]

_TURNING = frozenset("R AL AN LRE RLE LRO RLO PDF LRI RLI FSI PDI".split())
"""Classes of signs that change the direction of what stands beside them."""


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

    @property
    def value_title(self) -> str:
        """What the value of CRoMa is, for the head of a column."""
        return f"CRoMa value ({'median of subset medians' if self.paired else 'median margin'})"

    @property
    def typical(self) -> str:
        """What the value of CRoMa speaks of."""
        return f"a typical {self.unit}" + (" of a typical subset" if self.paired else "")

    def those(self, support: float) -> str:
        """Units that CRoMa speaks of: all, or those that have a margin."""
        return self.units if support >= 1 else f"{self.units} that have a margin"

    def worst(self, alpha: float) -> str:
        """Units in the lower tail."""
        if alpha <= 0:
            return f"the worst of the {self.units}"
        return (
            f"all {self.units}"
            if alpha >= 1
            else f"the worst {100 * alpha:g} % of the {self.units}"
        )

    def margin(self, value: Sequence[float], m: int, support: float = 1.0) -> str:
        """Read the value of CRoMa with its interval.

        Parameters
        ----------
        value
            Value, and the ends of its interval, NaN where there is none.
        m
            Of the value.
        support
            Share of the units that have a margin.
        """
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
        typical = f"a typical {self.unit}" + ("" if support >= 1 else " that has a margin")
        # Subsets weigh the same, however large: the typical of all may lie on the other side of 0.
        start = f"CRoMa is {signed(median) if median else 0}" + (
            ", the median of the subsets' medians: in a typical subset, " if self.paired else ": "
        )
        looked = f"the {m} nearest of each are" if m > 1 else "the nearest of each is"
        text = (
            f"{start}{typical} lies nearer to {near} than to {far} "
            f"({looked} looked at), so that {wins} prevails there."
            if median
            else f"{start}for {typical}, {near} are as near as {far}."
        )
        if low == low:
            text += f" The 95 % interval is {signed(low)} to {signed(high)}"
            text += (
                ", which includes 0: this cohort does not tell which of the two prevails."
                if low <= 0 <= high
                else "."
            )
        return text + self._rests(support, "margin")

    def tail(self, value: Sequence[float], alpha: float, support: float = 1.0) -> str:
        """Read a lower-tail mean with its interval; `support` as in :meth:`margin`."""
        mean, low, high = value
        if math.isnan(mean):
            return ""
        those = self.worst(alpha) + ("" if support >= 1 else " that have a margin")
        text = f"{'Over' if alpha > 0 else 'At'} {those} the margin is {signed(mean)}"
        text += f" ({signed(low)} to {signed(high)})" if low == low else ""
        text += " on average" if alpha > 0 else ""
        if low <= 0 <= high:
            return text + ": which of the two prevails there, this cohort does not tell."
        if mean == 0:
            return text + "."
        wins = self.confounder if mean < 0 else self.label
        return text + f": {'even ' if mean > 0 and alpha < 1 else ''}there the {wins} prevails."

    def wins(self, value: Sequence[float], support: float = 1.0) -> str:
        """Read F(0) with its interval; `support` as in :meth:`margin`."""
        share, low, high = value
        if math.isnan(share):
            return ""
        those = self.those(support)
        between = f" ({percent(low)} to {percent(high)})" if low == low else ""
        only = f"{self.units} that share only the {self.confounder}"
        if share == 0:
            between = between if high > 0 else ""
            return (
                f"At none of the {those}{between} the {self.confounder} wins over the "
                f"{self.label}: everywhere those that share only the {self.label} are nearer than "
                f"{only}."
            )
        return (
            f"At {percent(share)}{between} of the {those} the {self.confounder} wins over the "
            f"{self.label}: {only} are at least as near as those that share only the {self.label}."
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
        return text + self._rests(support, "such neighbour")

    def _rests(self, support: float, what: str) -> str:
        if support >= 1:
            return ""
        return f" It rests on {percent(support)} of the {self.units}; the others have no {what}."


def signed(value: float) -> str:
    """Write a margin: three decimals, a true minus sign; what is not 0 never looks like it."""
    if not math.isfinite(value):
        return "unknown"
    text = f"{value:.3f}"
    if float(text) == 0 and value != 0:
        return "just above 0" if value > 0 else "just below 0"
    return text.replace("-", "\N{MINUS SIGN}")


def percent(share: float) -> str:
    """Write a share in percent, without claiming 0 or 100 % of what is neither."""
    if not math.isfinite(share):
        return "an unknown share"
    text = f"{100 * share:.1f} %"
    if text == "0.0 %" and share > 0:
        return "less than 0.1 %"
    if text == "100.0 %" and share < 1:
        return "more than 99.9 %"
    return text


def counted(n: int, one: str, many: str = "") -> str:
    """Write how many there are, and of what."""
    return f"{n:,} {one if n == 1 else many or one + 's'}"


def isolated(name: str) -> str:
    """Keep the direction of a name to itself, in a sentence that goes from left to right.

    A name in Hebrew or Arabic, or with signs that turn the direction, is put between Unicode's
    signs of isolation; any other is left as it is.
    """
    if any(unicodedata.bidirectional(sign) in _TURNING for sign in name):
        return f"\N{FIRST STRONG ISOLATE}{name}\N{POP DIRECTIONAL ISOLATE}"
    return name


def listed(items: Sequence[Any], limit: int = 6) -> str:
    """List names for people; of many the first, and how many more there are."""
    shown = [isolated(str(item)) for item in items[:limit]]
    if len(items) > limit:
        return ", ".join(shown) + f" and {len(items) - limit} more"
    return " and ".join([", ".join(shown[:-1]), shown[-1]] if len(shown) > 1 else shown)
