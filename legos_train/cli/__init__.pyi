from .main import launch as launch
