from .assigner import Advantages as Advantages
from .assigner import CreditAssigner as CreditAssigner
from .credit_settings import CreditSettings as CreditSettings
from .methods import METHODS as METHODS
from .methods import make_credit as make_credit
from .per_env import PerEnv as PerEnv
from .per_learner import PerLearner as PerLearner
from .per_role import PerRole as PerRole
