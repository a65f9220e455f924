"""Where this user's temporary files go when nobody has named another place."""

from __future__ import annotations

import os
import stat
import tempfile
from pathlib import Path

from croma_dask.errors import StoreError

__all__ = ["own_place", "private_root"]


def private_root() -> str:
    """Folder of this user for scratch under the temporary folder, closed to others.

    Raises
    ------
    StoreError
        Somebody else has put something there.
    """
    return str(own_place(Path(tempfile.gettempdir()) / f"croma-dask-{os.getuid()}"))


def own_place(root: Path) -> Path:
    """Make a folder of this user, closed to others, or close it.

    Raises
    ------
    StoreError
        Somebody else has put something there.
    """
    try:
        root.mkdir(mode=0o700, parents=True)
    except FileExistsError:
        about = root.lstat()
        if not stat.S_ISDIR(about.st_mode) or about.st_uid != os.getuid():
            raise StoreError(
                f"{root} is no folder of this user: remove it, or set TMPDIR to another folder"
            ) from None
        if about.st_mode & 0o077:
            root.chmod(0o700)
    return root
