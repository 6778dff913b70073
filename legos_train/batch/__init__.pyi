from .arrays import Batch as Batch
from .arrays import Counters as Counters
from .packing import pack as pack
