"""Which pairs of ranges meet when: a round-robin tournament, each range once a round."""

from __future__ import annotations

__all__ = ["rounds"]


def rounds(n: int) -> list[list[tuple[int, int]]]:
    """Pairs (i, j), i <= j, of n players in rounds in which everybody plays at most once.

    The first round is everybody against themselves. Every pair occurs exactly once.

    Examples
    --------
    >>> rounds(3)
    [[(0, 0), (1, 1), (2, 2)], [(1, 2)], [(0, 2)], [(0, 1)]]
    """
    schedule = [[(i, i) for i in range(n)]]
    even = n + n % 2
    for turn in range(even - 1):
        # The circle method: one player stays, the others move on by one each round.
        pairs = [(even - 1, turn)]
        pairs += [((turn + s) % (even - 1), (turn - s) % (even - 1)) for s in range(1, even // 2)]
        met = sorted((min(p), max(p)) for p in pairs)
        schedule.append([(i, j) for i, j in met if j < n])
    return [r for r in schedule if r]
