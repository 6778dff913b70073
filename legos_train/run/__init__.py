"""One training run, from its settings to its report."""
