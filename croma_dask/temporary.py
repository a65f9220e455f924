"""Where this user's temporary files go when nobody has named another place."""

from __future__ import annotations

import os
import stat
import tempfile
from pathlib import Path

from croma_dask.errors import StoreError

__all__ = ["private_root"]


def private_root() -> str:
    """Folder of this user for scratch under the temporary folder, closed to others.

    Raises
    ------
    StoreError
        Somebody else has put something there.
    """
    root = Path(tempfile.gettempdir()) / f"croma-dask-{os.getuid()}"
    try:
        root.mkdir(mode=0o700)
    except FileExistsError:
        about = root.lstat()
        if not stat.S_ISDIR(about.st_mode) or about.st_uid != os.getuid():
            raise StoreError(
                f"{root} is no folder of this user: remove it, or set TMPDIR to another folder"
            ) from None
        if about.st_mode & 0o077:
            root.chmod(0o700)
    return str(root)
