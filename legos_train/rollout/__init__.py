"""Episodes played side by side, with the tokens they were sampled as."""
