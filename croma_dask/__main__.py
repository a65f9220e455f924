"""``python -m croma_dask`` is the command ``croma-dask``."""

from croma_dask.cli import main

main(prog_name="croma-dask")
