"""Tasks: debate, proposer and solvers, tournaments, data sets. Each module docstring is the page of its environment."""
