"""``python -m croma_dask`` is the command ``croma-dask``."""

from croma_dask.cli import main

if __name__ == "__main__":
    main(prog_name="croma-dask")
