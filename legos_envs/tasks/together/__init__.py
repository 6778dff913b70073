"""Agents who work on one thing together."""
