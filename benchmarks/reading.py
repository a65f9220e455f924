"""Chunks of a store, read from the page cache with and without checksums, by one or two threads."""

from __future__ import annotations

import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from statistics import median

import numpy as np
import zarr

from croma_dask.cohort.checksums import codecs
from croma_dask.cohort.chunks import ChunkReader
from croma_dask.cohort.location import Location


def rate(reader: ChunkReader, n_threads: int) -> float:
    """GB/s of all chunks, each read whole once."""
    starts = range(0, reader.shape[0], reader.chunk_rows)
    started = time.perf_counter()
    with ThreadPoolExecutor(n_threads) as pool:
        size = sum(pool.map(lambda lo: reader.read(lo, lo + reader.chunk_rows).nbytes, starts))
    return size / (time.perf_counter() - started) / 1e9


def main(n: int = 131_072, d: int = 1024, runs: int = 7) -> None:
    """Measure."""
    block = np.random.default_rng(0).standard_normal((4096, d), dtype=np.float32)
    found: dict[tuple[str, int], list[float]] = {}
    with tempfile.TemporaryDirectory() as folder:
        place = str(Path(folder) / "store.zarr")
        root = zarr.open_group(place, mode="w", zarr_format=3)
        readers = {}
        for name, compressors in (("none", None), ("crc32c", codecs(compress=False))):
            array = root.create_array(
                name, shape=(n, d), chunks=(4096, d), dtype="f4", compressors=compressors
            )
            for lo in range(0, n, 4096):
                array[lo : lo + 4096] = block
            readers[name] = ChunkReader(array, Location.of(place), name)
        for _ in range(runs):
            for name, reader in readers.items():
                for n_threads in (1, 2):
                    found.setdefault((name, n_threads), []).append(rate(reader, n_threads))
    print(f"| {n:,} x {d:,} float32, chunks of 4,096 rows | 1 thread, GB/s | 2 threads, GB/s |")
    print("|---|---|---|")
    for name in readers:
        one, two = (median(found[name, n_threads]) for n_threads in (1, 2))
        print(f"| checksum: {name} | {one:.2f} | {two:.2f} |")
