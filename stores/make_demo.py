"""Build the two demo stores from scikit-learn's handwritten digits.

    python stores/make_demo.py [FOLDER]        # default: the folder of this file

The images are real: 1,797 handwritten digits of 8 x 8 pixels. The scanner is simulated: half of
the images go through a second scanner, which is a little softer, flatter and brighter than the
first. How often a digit went through it depends on the digit (from 20 % to 80 %), as tumour types
collect at different hospitals. The images were taken one after the other from one writer after the
other, so runs of nine consecutive images stand for slides.

One cohort, two embeddings of it:

digits_raw.zarr
    the pixels as they come from the scanners;
digits_normalised.zarr
    each image blurred slightly (so that both scanners are about equally sharp), then every pixel
    replaced by its rank within its image (so that contrast, gamma and brightness are gone).
"""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from sklearn.datasets import load_digits

import croma_dask as cd

FloatArray = NDArray[np.float64]

SEED = 0
RUN_LENGTH = 9

# Share of each digit's images that the second scanner took: 20 % to 80 %, in no order.
RATES = np.linspace(0.2, 0.8, 10)[[3, 7, 0, 9, 5, 1, 8, 2, 6, 4]]

# The second scanner: sharpness, gamma, gain, offset. Chosen so that its images still look alike
# to a person, and the raw pixels are told apart by scanner before they are by digit.
BLUR, GAMMA, GAIN, OFFSET = 0.12, 0.7, 0.75, 0.15
NORMALISING_BLUR = 0.2

# Three chunks: the demo reads its stores as a large one is read.
CHUNK_ROWS = 600


def blur(images: FloatArray, weight: float) -> FloatArray:
    """Mix every pixel with its neighbours in both directions; the border repeats itself."""
    for axis in (1, 2):
        size = images.shape[axis]
        padded = np.pad(images, [(0, 0) if a != axis else (1, 1) for a in range(3)], mode="edge")
        before = padded.take(range(size), axis=axis)
        after = padded.take(range(2, size + 2), axis=axis)
        images = (1 - 2 * weight) * images + weight * (before + after)
    return images


def second_scanner(images: FloatArray) -> FloatArray:
    """Take the images once more, with the other machine."""
    return OFFSET + GAIN * blur(images, BLUR) ** GAMMA


def choose_scanner(digits: NDArray[np.int64]) -> NDArray[np.bool_]:
    """Say which images the second scanner took: an exact share of each digit, drawn by chance."""
    rng = np.random.default_rng(SEED)
    chosen = np.zeros(len(digits), dtype=bool)
    for digit, rate in enumerate(RATES):
        rows = np.flatnonzero(digits == digit)
        chosen[rng.permutation(rows)[: round(rate * len(rows))]] = True
    return chosen


def normalise(images: FloatArray) -> FloatArray:
    """Undo most of the scanner, image by image, without knowing which scanner it was."""
    pixels = blur(images, NORMALISING_BLUR).reshape(len(images), -1)
    # Equal pixels share a rank; rounding keeps them equal whatever the order of the sums above.
    ranks = pd.DataFrame(pixels.round(6)).rank(axis=1, method="average").to_numpy()
    return ranks - ranks.mean(axis=1, keepdims=True)


def build() -> tuple[dict[str, NDArray[np.float16]], pd.DataFrame]:
    """Make both embeddings and the manifest that they share."""
    images, digits = load_digits(return_X_y=True)
    images = images.reshape(-1, 8, 8) / 16.0
    second = choose_scanner(digits)
    scanned = np.where(second[:, None, None], second_scanner(images), images)
    rows = range(len(digits))
    manifest = pd.DataFrame(
        {
            "sample_id": [f"digit-{row:04d}" for row in rows],
            "label": [str(digit) for digit in digits],
            "group_id": [f"run-{row // RUN_LENGTH:03d}" for row in rows],
            "scanner": np.where(second, "B", "A"),
        }
    )
    # Half precision holds both (grey values to 0.0005, ranks exactly) and keeps the stores small.
    embeddings = {
        "digits_raw": scanned.reshape(len(digits), -1).astype(np.float16),
        "digits_normalised": normalise(scanned).astype(np.float16),
    }
    return embeddings, manifest


def main(folder: Path) -> None:
    """Write both stores into ``folder``, replacing what is there."""
    embeddings, manifest = build()
    for name, embedding in embeddings.items():
        path = folder / f"{name}.zarr"
        cd.write_cohort(str(path), embedding, manifest, chunk_rows=CHUNK_ROWS, overwrite=True)
        size = sum(file.stat().st_size for file in path.rglob("*") if file.is_file())
        print(f"{path}: {embedding.shape[0]} x {embedding.shape[1]}, {size / 1024:.0f} KiB")


if __name__ == "__main__":
    main(Path(sys.argv[1]) if len(sys.argv) > 1 else Path(__file__).parent)
