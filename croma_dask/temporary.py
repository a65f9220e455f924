"""Where this user's temporary files go when nobody has named another place."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

__all__ = ["private_root"]


def private_root() -> str:
    """Folder of this user for scratch under the temporary folder, closed to others."""
    root = Path(tempfile.gettempdir()) / f"croma-dask-{os.getuid()}"
    root.mkdir(mode=0o700, exist_ok=True)
    if root.is_symlink() or root.stat().st_uid != os.getuid() or root.stat().st_mode & 0o077:
        return tempfile.mkdtemp(prefix="croma-dask-")
    return str(root)
