"""Metrics of one embedding: thirteen of them in four families, their ranks and statistics."""
