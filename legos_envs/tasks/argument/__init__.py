"""Debates, refinement and proofs: texts that get judged."""
