"""Libraries that come with an extra: imported where they are needed, or asked for by name."""

from __future__ import annotations

import importlib
from types import ModuleType

from croma_dask.errors import CromaDaskError

__all__ = ["MissingLibraryError", "require"]


class MissingLibraryError(CromaDaskError, ImportError):
    """A library that an extra of this package brings is not installed."""


def require(module: str, extra: str, why: str) -> ModuleType:
    """Import a library of an extra.

    Parameters
    ----------
    module
        Its name.
    extra
        The extra that it comes with.
    why
        What needs it: the message begins with it.

    Raises
    ------
    MissingLibraryError
        It is not installed. One that is, but cannot be loaded, raises its own error.

    Examples
    --------
    >>> require("math", "embedding", "counting").pi > 3
    True
    """
    try:
        return importlib.import_module(module)
    except ModuleNotFoundError as err:
        if err.name is None or err.name.split(".")[0] != module.split(".")[0]:
            raise
        raise MissingLibraryError(
            f"{why} needs {module!r}, which is not installed: pip install 'croma-dask[{extra}]'",
            name=module,
        ) from err
