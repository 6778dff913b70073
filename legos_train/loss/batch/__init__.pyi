from .arrays import Batch as Batch
from .by_learner import BatchByLearner as BatchByLearner
from .by_learner import seats_of as seats_of
from .legal import Encode as Encode
from .packing import pack as pack
