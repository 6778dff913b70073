from .arena import Arena as Arena
from .artifact_store import ArtifactStore as ArtifactStore
from .curriculum import SAMPLERS as SAMPLERS
from .curriculum import make_sampler as make_sampler
from .request import EnvSlot as EnvSlot
from .request import EpisodeRequest as EpisodeRequest
from .request import TaskSampler as TaskSampler
from .request import actor_of as actor_of
