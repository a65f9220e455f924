"""What metrics need of the neighbour lists of a group of rows."""

from __future__ import annotations

from dataclasses import dataclass

from croma_dask.embedding.connectivity import GC_NEIGHBORS
from croma_dask.embedding.kbet import K_GRAPH
from croma_dask.embedding.lisi import N_NEIGHBORS
from croma_dask.embedding.request import Request
from croma_dask.index.spec import ListSpec

__all__ = ["Needs"]


@dataclass(frozen=True)
class Needs:
    """Which metrics read the lists of a group.

    Attributes
    ----------
    clisi, votes, gc, leiden
        Metrics of labels: cLISI, Acc@kNN, GC, and those of Leiden's clusters.
    ilisi, cilisi, kbet
        Metrics of batches.
    """

    clisi: bool
    votes: bool
    gc: bool
    leiden: bool
    ilisi: bool
    cilisi: bool
    kbet: bool

    @classmethod
    def of(cls, request: Request, *, bio: bool, mixing: bool) -> Needs:
        """Say what a request needs of a group that stands for labels, batches, or both."""
        return cls(
            clisi=bio and request.wants("cLISI"),
            votes=bio and request.wants("Acc@kNN"),
            gc=bio and request.wants("GC"),
            leiden=bio and request.clustered and request.how.clustering == "leiden",
            ilisi=mixing and request.wants("iLISI"),
            cilisi=mixing and request.wants("CiLISI"),
            kbet=mixing and request.wants("kBET"),
        )

    @property
    def any(self) -> bool:
        """Whether anything is needed."""
        return any(vars(self).values())

    @property
    def edges(self) -> int:
        """Nearest rows of each row that graphs are made of."""
        return GC_NEIGHBORS - 1 if self.gc or self.leiden else 0

    @property
    def spec(self) -> ListSpec:
        """Lists to search for: of any label, and of the same one."""
        length = self.edges
        if self.kbet:
            length = K_GRAPH - 1
        if self.clisi or self.votes or self.ilisi:
            length = N_NEIGHBORS - 1
        return ListSpec(length, N_NEIGHBORS - 1 if self.cilisi else 0, same_label=True)
