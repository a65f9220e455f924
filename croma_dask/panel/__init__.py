"""Panels: results of several models on the same rows, side by side along `model`."""

from __future__ import annotations
