"""Conversations become tokens, and tokens text."""
