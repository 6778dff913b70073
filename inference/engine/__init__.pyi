from .engine import Engine as Engine
from .worker import AsyncEngine as AsyncEngine
