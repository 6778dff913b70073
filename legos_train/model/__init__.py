"""The policy being trained, and how it learns."""
