"""Ranges of rows in blocks: a streamed run pairs up blocks, one pair a task."""

from __future__ import annotations

__all__ = ["RangeBlocks"]


class RangeBlocks:
    """What every streamed job says of its ranges.

    Attributes
    ----------
    edges
        (n_ranges + 1,) first row of each range, and the number of rows.
    per_block
        Ranges of a block.
    """

    edges: tuple[int, ...]
    per_block: int

    @property
    def n_ranges(self) -> int:
        """Number of ranges."""
        return len(self.edges) - 1

    @property
    def n_blocks(self) -> int:
        """Number of blocks of ranges that tasks pair up."""
        return -(-self.n_ranges // self.per_block)

    def members(self, block: int) -> range:
        """Ranges of a block."""
        return range(block * self.per_block, min(self.n_ranges, (block + 1) * self.per_block))
