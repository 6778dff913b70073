from .engine import Engine as Engine
from .prompt_reading import PromptPart as PromptPart
from .worker import AsyncEngine as AsyncEngine
