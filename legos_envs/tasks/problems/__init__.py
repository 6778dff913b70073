"""Problems whose answers are checked."""

from legos_envs.tasks.problems.dataset import Dataset
from legos_envs.tasks.problems.proposed_problems import problem_key
from legos_envs.tasks.problems.proposer_solver import ProposerSolver
from legos_envs.tasks.problems.spice import SPICE
from legos_envs.tasks.raw_rows import DataSetUnavailable

__all__ = ["SPICE", "DataSetUnavailable", "Dataset", "ProposerSolver", "problem_key"]
