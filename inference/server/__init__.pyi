from .app import create_app as create_app
from .running import make_server as make_server
from .running import serve as serve
from .settings import Settings as Settings
