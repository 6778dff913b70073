"""Games in numbers, for PPO and DQN: `Numeric`."""

from legos_envs.wrappers.numeric.numeric_env import Numeric

__all__ = ["Numeric"]
