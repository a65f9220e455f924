"""The confounder-biased probe sweep: schedules, slides, cuts, fits and reductions."""
