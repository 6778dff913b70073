"""Scoring of episodes: answers, rubrics, judges, ratings, sandboxes."""

from legos_envs.scoring import answers, judging, sandbox
from legos_envs.scoring.ratings import Elo, Skill, bradley_terry, openskill_ratings
from legos_envs.scoring.rubric import RewardFunction, Rubric, Scores

__all__ = [
    "Elo",
    "RewardFunction",
    "Rubric",
    "Scores",
    "Skill",
    "answers",
    "bradley_terry",
    "judging",
    "openskill_ratings",
    "sandbox",
]
