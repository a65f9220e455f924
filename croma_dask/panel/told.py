"""Warnings of several models: each is given once, with the models that it is of."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence

from croma_dask.errors import (
    CromaDaskError,
    InputWarning,
    RecallWarning,
    SupportWarning,
    collecting,
    name_items,
    warn,
)

__all__ = ["Told"]

_CATEGORIES: dict[str, type[Warning]] = {
    category.__name__: category for category in (InputWarning, RecallWarning, SupportWarning)
}


class Told:
    """Warnings so far, by what they say.

    Most depend on the rows alone, and would be given for every model.
    """

    def __init__(self) -> None:
        self._models: dict[tuple[str, type[Warning]], list[str]] = {}

    @contextlib.contextmanager
    def of(self, model: str, *, alone: bool = False) -> Iterator[None]:
        """Collect the library's own warnings within a block, and name the model in its errors.

        Parameters
        ----------
        model
            What the block is about.
        alone
            It is the only model: errors need not name it.
        """
        with collecting() as said:
            try:
                yield
            except CromaDaskError as err:
                if alone:
                    raise
                raise type(err)(f"model {model!r}: {err}") from err
            finally:
                for message, category in said:
                    self._add(model, message, category)

    def add(self, model: str, said: Sequence[Sequence[str]]) -> None:
        """Take over what an earlier run was told: messages and names of their categories."""
        for message, category in said:
            self._add(model, message, _CATEGORIES.get(category, UserWarning))

    def said_of(self, model: str) -> list[tuple[str, str]]:
        """Messages of a model, and names of their categories."""
        return [
            (message, category.__name__)
            for (message, category), models in self._models.items()
            if model in models
        ]

    def tell(self, n_models: int) -> None:
        """Give all warnings.

        Parameters
        ----------
        n_models
            Models of the panel: what is said of all of them names none.
        """
        for (message, category), models in self._models.items():
            whose = "" if len(models) == n_models else f"{name_items(models)}: "
            warn(whose + message, category)

    def tell_failed(self, n_models: int) -> None:
        """Give all warnings so far beside an error, which whoever gets it has to know them for.

        Parameters
        ----------
        n_models
            As of :meth:`tell`.
        """
        # Where warnings are errors, the first of them must not take the place of this one.
        with contextlib.suppress(Warning):
            self.tell(n_models)

    def _add(self, model: str, message: str, category: type[Warning]) -> None:
        models = self._models.setdefault((message, category), [])
        if model not in models:
            models.append(model)
