"""Settings for whole tasks, one TOML file each; `legos_train/config/preset_files.py` reads them."""
