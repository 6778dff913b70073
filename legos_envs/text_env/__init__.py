"""The lifecycle of environments, written once: `TextEnv` turns rules into a PettingZoo AEC environment."""

from legos_envs.text_env.aec import TextEnv
from legos_envs.text_env.conversations import write_prompt

__all__ = ["TextEnv", "write_prompt"]
