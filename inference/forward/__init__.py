"""Forward passes over a KV cache: MLX, row by row, and numpy on a CPU."""
