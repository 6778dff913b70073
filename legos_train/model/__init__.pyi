from .backend import MLXBackend as MLXBackend
from .backend import TrainerBackend as TrainerBackend
from .decoder import causal as causal
from .decoder import site_hidden as site_hidden
from .learner import Learner as Learner
from .ranks import World as World
from .ranks import joined as joined
