from . import filters as filters
from . import serving_jobs as serving_jobs
from .generator import Generator as Generator
from .generator import LocalGenerator as LocalGenerator
from .generator import WeightReceiver as WeightReceiver
from .generator import env_maker as env_maker
from .jobs import Job as Job
from .rollouts import Rollouts as Rollouts
