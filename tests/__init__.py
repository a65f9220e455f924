"""Tests; a package, since some distributions install a package of this name (plottable does)."""
