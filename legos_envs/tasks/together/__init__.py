"""Agents that work on one task together."""
