"""Where a result is strong and where it fails: by label, confounder, subset, group and sample."""

from croma_dask.breakdown.one_sample import explain
from croma_dask.breakdown.table import breakdown
from croma_dask.breakdown.worst import worst_groups

__all__ = ["breakdown", "explain", "worst_groups"]
