"""Debates, refinement and proofs: texts that are judged."""
