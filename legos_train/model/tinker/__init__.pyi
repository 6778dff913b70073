from .mirrored_engine import MirroredEngine as MirroredEngine
from .mirrored_engine import check_base as check_base
from .sampler import TinkerEngine as TinkerEngine
from .service import Service as Service
from .tinker_backend import TinkerBackend as TinkerBackend
