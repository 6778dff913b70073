"""The settings of a training run: one typed model, presets, assignments."""
