"""Checks before the first step: settings that conflict or have no effect, and what a run will cost."""
