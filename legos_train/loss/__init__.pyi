from . import batch_loss as batch_loss
from . import penalties as penalties
from . import tokens as tokens
from .batch_loss import objective as objective
from .loss_metrics import metrics as metrics
from .loss_settings import LossSettings as LossSettings
from .penalties import distribution as distribution
from .tokens import LOSSES as LOSSES
