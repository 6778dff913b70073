"""Mutants: one-line mistakes that some test must notice.

`python -m tests.mutants` puts each of them into a copy of the tree and runs the tests named beside it. A list of
mistakes is a list of things that the tests promise to see; `tests/test_mutants.py` keeps it up to date with the code.
"""
