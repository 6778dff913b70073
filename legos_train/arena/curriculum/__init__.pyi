from .samplers import SAMPLERS as SAMPLERS
from .samplers import make_sampler as make_sampler
