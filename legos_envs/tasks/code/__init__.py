"""Tasks about programs: writing, patching and attacking them."""
