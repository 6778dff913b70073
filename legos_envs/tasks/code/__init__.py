"""Programs: written, patched, attacked."""
