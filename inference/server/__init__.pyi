from .app import create_app as create_app
from .running import serve as serve
from .server import Settings as Settings
