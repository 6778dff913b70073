"""Matches between copies of other environments: arenas and tournaments."""
