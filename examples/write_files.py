"""Write the files that docs/getting-started.md begins with: two embeddings and a manifest.

They are the demo's (see stores/make_demo.py): 1,797 handwritten digits taken with two scanners, as
raw pixels and as pixels that were normalised image by image.

    python examples/write_files.py [FOLDER]     # default: here
"""

from __future__ import annotations

import runpy
import sys
from pathlib import Path

import numpy as np

DEMO = Path(__file__).resolve().parents[1] / "stores" / "make_demo.py"


def main(folder: Path) -> None:
    """Write raw.npy, normalised.npy and manifest.csv into ``folder``."""
    embeddings, manifest = runpy.run_path(str(DEMO))["build"]()
    folder.mkdir(parents=True, exist_ok=True)
    for name, embedding in embeddings.items():
        path = folder / f"{name.removeprefix('digits_')}.npy"
        np.save(path, embedding)
        print(f"{path}: {embedding.shape[0]} rows of {embedding.shape[1]} values")
    path = folder / "manifest.csv"
    manifest.to_csv(path, index=False)
    print(f"{path}: {len(manifest)} rows with the columns {', '.join(manifest.columns)}")


if __name__ == "__main__":
    main(Path(sys.argv[1]) if len(sys.argv) > 1 else Path())
