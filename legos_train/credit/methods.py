"""Credit: from finished episodes to one advantage per turn. One method per file, chosen by name.

| name | class | advantage of a turn |
|---|---|---|
| `rae` | `RAECredit` | return minus a moving baseline of its (env, role) |
| `grpo` | `GRPOCredit` | return minus the mean of its role in the group |
| `hierarchical_grpo` | `HierarchicalGRPOCredit` | return minus the mean of its siblings in the tree of agents |
| `rloo` | `RLOOCredit` | return minus the mean of its role in the other episodes of the group |
| `same_prompt` | `SamePromptCredit` | return minus the mean of the same prompt in other episodes |
| `per_role_norm` | `PerRoleNormCredit` | return, normalised over its role in the batch |
| `turn_level` | `TurnLevelCredit` | return-to-go, normalised over the turns of its role in the batch |
| `agent_turn` | `AgentTurnCredit` | return-to-go minus the mean of its role and turn number in the group |
| `gigpo` | `GiGPOCredit` | that of `grpo` plus the same over equal observations in the group |
| `maxrl` | `MaxRLCredit` | return over the mean of its role in the group, minus 1 |
| `reinforce` | `ReinforceCredit` | the return |
| `constant` | `ConstantCredit` | one number |

`PerEnv` and `PerRole` give some environments or roles of a run a method of their own.
"""

from __future__ import annotations

import difflib
import inspect
from typing import TYPE_CHECKING, Any

from legos_train.credit.agent_turn import AgentTurnCredit
from legos_train.credit.assigner import Advantages, CreditAssigner
from legos_train.credit.constant import ConstantCredit
from legos_train.credit.gigpo import GiGPOCredit
from legos_train.credit.group import GRPOCredit, HierarchicalGRPOCredit
from legos_train.credit.maxrl import MaxRLCredit
from legos_train.credit.per_env import PerEnv
from legos_train.credit.per_role import PerRole
from legos_train.credit.rae import Baselines, RAECredit
from legos_train.credit.reinforce import ReinforceCredit
from legos_train.credit.rloo import RLOOCredit
from legos_train.credit.role_norm import PerRoleNormCredit, TurnLevelCredit
from legos_train.credit.same_prompt import SamePromptCredit

if TYPE_CHECKING:
    from legos_train.config import sections

METHODS: dict[str, type[Any]] = {
    kind.name: kind
    for kind in (
        RAECredit,
        GRPOCredit,
        HierarchicalGRPOCredit,
        RLOOCredit,
        SamePromptCredit,
        PerRoleNormCredit,
        TurnLevelCredit,
        AgentTurnCredit,
        GiGPOCredit,
        MaxRLCredit,
        ReinforceCredit,
        ConstantCredit,
    )
}
SETTINGS = {"k": "pseudo_count"}
"""Options whose setting has another name; the others are called the same in `settings.Credit`."""

__all__ = [
    "METHODS",
    "Advantages",
    "AgentTurnCredit",
    "Baselines",
    "ConstantCredit",
    "CreditAssigner",
    "GRPOCredit",
    "GiGPOCredit",
    "HierarchicalGRPOCredit",
    "MaxRLCredit",
    "PerEnv",
    "PerRole",
    "PerRoleNormCredit",
    "RAECredit",
    "RLOOCredit",
    "ReinforceCredit",
    "SamePromptCredit",
    "TurnLevelCredit",
    "credit_options",
    "from_settings",
    "make_credit",
]


def make_credit(name: str, **options: Any) -> CreditAssigner:
    """The credit method called `name` (a key of `METHODS`) with its options.

    Raises ValueError for an unknown name or a value out of range, TypeError for an option the method does not have.
    """
    accepted = _accepted(name)
    for option in options:
        if option not in accepted:
            known = f"it takes {', '.join(accepted)}" if accepted else "it takes none"
            raise TypeError(f"credit {name!r} has no option {option!r}{_nearest(option, accepted)}; {known}")
    method: CreditAssigner = METHODS[name](**options)
    return method


def credit_options(settings: sections.Credit, name: str | None = None) -> dict[str, Any]:
    """The settings that the method `name` (by default `settings.name`) takes, as options of `make_credit`.

    Raises ValueError for an unknown name.
    """
    fields = {option: SETTINGS.get(option, option) for option in _accepted(name or settings.name)}
    return {option: getattr(settings, field) for option, field in fields.items() if hasattr(settings, field)}


def from_settings(settings: sections.Credit, name: str | None = None) -> CreditAssigner:
    """A new assigner as the settings say; `name`, an env's own credit method, takes the place of `settings.name`.

    Raises ValueError for an unknown name or a value out of range.
    """
    return make_credit(name or settings.name, **credit_options(settings, name))


def _accepted(name: str) -> dict[str, inspect.Parameter]:
    if name not in METHODS:
        raise ValueError(f"unknown credit method {name!r}{_nearest(name, METHODS)}; known: {', '.join(METHODS)}")
    kind = METHODS[name]
    # Without an __init__ of its own a class shows object's, which seems to take anything.
    return {} if kind.__init__ is object.__init__ else dict(inspect.signature(kind).parameters)


def _nearest(word: str, known: Any) -> str:
    close = difflib.get_close_matches(word, list(known), n=1, cutoff=0.5)
    return f" (did you mean {close[0]!r}?)" if close else ""
