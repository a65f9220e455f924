"""Walk through HDF5 files in a process of its own, which a damaged one may bring down.

Not imported: `hdf5_vetting` runs this file, with the processor time that a file may take, in
seconds, as argument and the paths on standard input, one a line, as JSON. It answers a line for
each. It imports nothing of this library, so that it starts fast.

The HDF5 library is C: on a damaged or hostile file it may loop for ever or crash, and take the
process with it. So everything a reader looks at before it reads numbers is looked at here first. A
loop is ended by a limit of processor time; waiting for a slow disk does not count.
"""

import contextlib
import json
import math
import resource
import signal
import sys
from typing import Any

AN_OBJECT = 0.01
"""Seconds that an object may take on average, beyond those that are given for all."""

MOST_CHUNKS = 1_000_000
"""Of datasets with more chunks the index is not gone through."""

MOST_TEXTS = 100_000
"""Of longer vectors of text only the first is read."""

MEMORY = 8 << 30
"""Address space: of what a file claims nothing may be larger."""


def main() -> None:
    """Answer until standard input ends."""
    import h5py

    # crashes are expected, and of no interest
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    _, hard = resource.getrlimit(resource.RLIMIT_AS)
    if hard == resource.RLIM_INFINITY:
        resource.setrlimit(resource.RLIMIT_AS, (MEMORY, hard))
    for line in sys.stdin:
        begin()
        # what the library itself refuses the reader will report, in its own words
        with contextlib.suppress(Exception), h5py.File(json.loads(line), "r") as file:
            walk(file)
        print("walked", flush=True)


def begin() -> None:
    """Count processor time anew: at its end the process is ended."""
    signal.setitimer(signal.ITIMER_PROF, float(sys.argv[1]))


def put_off() -> None:
    """Allow what one more object may take, so that no number of slow ones adds up."""
    left, _ = signal.getitimer(signal.ITIMER_PROF)
    signal.setitimer(signal.ITIMER_PROF, min(left + AN_OBJECT, float(sys.argv[1])))


def n_chunks(dataset: Any) -> int:
    """Return how many chunks the shape of a dataset has."""
    return math.prod(-(-a // b) for a, b in zip(dataset.shape, dataset.chunks, strict=True))


def walk(file: Any) -> None:
    """Look at every object of a file, its attributes, and how its numbers are laid out."""
    import h5py

    def look(name: str, item: Any) -> None:
        put_off()
        for attribute in item.attrs:
            with contextlib.suppress(Exception):
                item.attrs[attribute]
        if not isinstance(item, h5py.Dataset) or not item.size:
            return
        if item.external or item.is_virtual:
            return
        with contextlib.suppress(Exception):
            # all of them, which the reader counts, too; of more it believes their number
            if item.chunks and n_chunks(item) <= MOST_CHUNKS:
                item.id.get_num_chunks()
            # one number: the way to the first chunk
            item[(0,) * item.ndim]
            # text lies in a heap; ids and columns are read as a whole
            if item.ndim == 1 and item.dtype.kind == "O" and item.size <= MOST_TEXTS:
                item[...]

    look("/", file)
    file.visititems(look)


if __name__ == "__main__":
    main()
