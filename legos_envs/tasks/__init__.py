"""Tasks: debate, proposer and solvers, tournaments, data sets. An environment's module docstring is its page."""
