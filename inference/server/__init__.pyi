from .app import Settings as Settings
from .app import create_app as create_app
from .running import serve as serve
