r"""Grade-school word problems in the style of GSM8K: a few sentences, a few steps, a whole number as the answer. By
default they are generated, so nothing is downloaded; `source="hf"` loads the real GSM8K from Hugging Face, and a path
loads a local copy.

| | |
|---|---|
| seats | `solver_0` |
| horizon | 1 turn (2 with a second try after saying nothing) |
| sum of rewards | 0 to 1.1 with the default weights |
| sample action | `"#### 18"` |

## What each seat is told

The question, and how to end the reply. Never the true answer or its derivation.

## Actions

Any text. The answer is read from the last `\boxed{...}`, else after the last `####`, else after the last `Answer:`,
else it is the last number. An action with no text outside thoughts is invalid.

## Rewards

As in `Dataset-v0`: 1 for the right number, 0.1 for marking the answer, from 0 to 1.1. Numbers are compared exactly:
`$1,234.00` and `1234 dollars` are 1234, `1200 + 34` is not.

## End

After the answer. Then `info` has `correct`, `answer`, `truth`, `scores` and `outcome` (`"correct"` or `"wrong"`).

## Scripted players

The players of `Dataset-v0`, which know the generated problems.

| players | expected return | arguments | floor |
|---|---|---|---|
| `*=scripted:oracle` | `solver_0 1.1` | `level=2` | `solver_0 +0.15` |
| `*=scripted:wrong` | `solver_0 0.1` | `level=0` |

## Source

Cobbe et al. 2021, "Training Verifiers to Solve Math Word Problems", arXiv 2110.14168 (GSM8K, MIT licence). The
generated problems are our own and not part of GSM8K: results on them are not GSM8K scores.
"""

from __future__ import annotations

from typing import Any

from legos_envs import arguments
from legos_envs.tasks.problems import sources
from legos_envs.tasks.problems.dataset import Dataset

HUB_NAME = "hf:openai/gsm8k"


class GSM8K(Dataset):
    """Grade-school word problems: generated, or the real GSM8K.

    Args:
        source: `"words"` (generated problems), `"hf"` (Hugging Face's `openai/gsm8k`, which needs `pip install
            "legos-selfplay[datasets]"` and, once, the network) or the path of a file with GSM8K's fields: `question`,
            and `answer` with the result after `####`.
        split: `"train"` (the default) or `"test"`, for `"hf"`. For generated problems and files as for `Dataset`.
        **kwargs: `fields` and `bad_rows` (of files), `level` and `size` (of the generated problems), `order`, `prompt`,
            `weights`, `rubric` and `max_chars` as for `Dataset`.
    """

    name = "GSM8K-v0"

    def __init__(self, source: Any = sources.WORDS, *, split: str | None = None, **kwargs: Any):
        if isinstance(source, str) and source == "hf":
            source = HUB_NAME
            kwargs.setdefault("config", "main")
            arguments.one_of("split", split or "train", ("train", "test"))
        super().__init__(source, split=split, **{"answer_pattern": "####", **kwargs})
