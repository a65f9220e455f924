"""Numba and numpy functions on plain arrays: no dask, no xarray, no files."""
