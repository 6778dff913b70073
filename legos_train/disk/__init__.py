"""What is written to disk, and survives a crash there."""
