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
| `gigpo` | `GiGPOCredit` | the advantage of `grpo` plus the same over equal observations in the group |
| `maxrl` | `MaxRLCredit` | return over the mean of its role in the group, minus 1 |
| `reinforce` | `ReinforceCredit` | the return |
| `constant` | `ConstantCredit` | one number |

`PerEnv` and `PerRole` give individual environments or roles of a run their own method.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
