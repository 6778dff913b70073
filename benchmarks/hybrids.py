"""Models with recurrent states and with sliding windows: batched engine against its row-by-row path and mlx-lm.

    python -m benchmarks.hybrids [--json out.json] [--cases delta8,delta32] [--rounds 3]

Random models of about 4 million parameters in float32, greedy decoding, prompts of different lengths. Both sides run in
this process with the same weights and the same fast BLAS and take turns; their median CPU seconds count. mlx-lm's
BatchGenerator runs with or without MLX's compiled kernels, whichever suits it best. The engine's caches are dropped
before every run.
"""

from __future__ import annotations

import os
import sys
from functools import cache, partial
from typing import Any

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

import mlx.core as mx
import numpy as np
from mlx.utils import tree_map

from benchmarks.engine import anew, batch_generator, greedy
from benchmarks.measuring import Case, Found, against, options, report
from inference import Engine
from inference.engine import model_runner
from inference.forward.solo_forward import SoloForward

VOCAB, NEW, WINDOW = 2048, 64, 128
_SHAPE = {
    "vocab_size": VOCAB,
    "hidden_size": 256,
    "num_hidden_layers": 4,
    "intermediate_size": 768,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 64,
    "rms_norm_eps": 1e-6,
    "max_position_embeddings": 4096,
    "tie_word_embeddings": True,
}
_DELTA = {
    "linear_num_value_heads": 4,
    "linear_num_key_heads": 2,
    "linear_key_head_dim": 64,
    "linear_value_head_dim": 64,
    "linear_conv_kernel_dim": 4,
    "full_attention_interval": 4,
}
_SLIDING = {"sliding_window": WINDOW, "sliding_window_pattern": 4, "query_pre_attn_scalar": 64.0}


@cache
def model(kind: str) -> Any:
    """A random model in the shape of Qwen 3.5 (`delta`) or Gemma 3 (`window`)."""
    from mlx_lm.models import gemma3_text, qwen3_5

    mx.random.seed(0)
    if kind == "delta":
        made: Any = qwen3_5.Model(qwen3_5.ModelArgs.from_dict({"model_type": "qwen3_5", **_SHAPE, **_DELTA}))
    else:
        made = gemma3_text.Model(gemma3_text.ModelArgs.from_dict({"model_type": "gemma3_text", **_SHAPE, **_SLIDING}))
    made.update(tree_map(lambda w: w * 4 if w.ndim == 2 and w.shape[0] == VOCAB else w, made.parameters()))
    made.eval()
    mx.eval(made.parameters())
    return made


@cache
def engine(kind: str, rows: int, *, alone: bool = False) -> Engine:
    """An engine; `alone` makes it run row by row."""
    if not alone:
        return Engine(model(kind), None, max_rows=rows)
    chosen, model_runner.choose_forward = model_runner.choose_forward, SoloForward  # type: ignore[assignment]
    try:
        return Engine(model(kind), None, max_rows=rows)
    finally:
        model_runner.choose_forward = chosen


def prompts(rows: int, low: int, high: int) -> list[list[int]]:
    rng = np.random.default_rng(rows)
    return [rng.integers(3, VOCAB, n).tolist() for n in rng.integers(low, high, rows)]


def versus_rows(kind: str, rows: int, low: int, high: int, repeats: int) -> Found:
    """Batched against row by row; the answers are the same, token for token."""
    work = greedy(prompts(rows, low, high), [NEW] * rows)
    ours, theirs = (partial(anew, engine(kind, rows, alone=alone), work) for alone in (False, True))
    same = [c.tokens for c in ours()] == [c.tokens for c in theirs()]
    return against(ours, {"row by row": theirs}, NEW * rows, repeats, must={"the same tokens": same})


def versus_mlx_lm(kind: str, rows: int, low: int, high: int, repeats: int) -> Found:
    """Batched against BatchGenerator; how many of its answers are those of single rows is reported."""
    asked = prompts(rows, low, high)
    ours = partial(anew, engine(kind, rows), greedy(asked, [NEW] * rows))
    variants = {
        f"{'compiled' if compiled else 'not compiled'}": partial(
            batch_generator, asked, [NEW] * rows, rows, min(rows, 8), compiled, model(kind)
        )
        for compiled in (True, False)
    }
    said = [c.tokens for c in ours()]
    equal = sum(a == b for a, b in zip(said, variants["not compiled"]()))
    return against(ours, variants, NEW * rows, repeats, unit="tokens per CPU second", equal_answers=f"{equal}/{rows}")


CASES = {
    "delta8": Case("qwen3_5, 8 rows, row by row", 3.0, partial(versus_rows, "delta", 8, 64, 128)),
    "delta32": Case("qwen3_5, 32 rows, row by row", 6.0, partial(versus_rows, "delta", 32, 64, 128)),
    "delta8mlx": Case("qwen3_5, 8 rows, BatchGenerator", 1.0, partial(versus_mlx_lm, "delta", 8, 64, 128)),
    "delta32mlx": Case("qwen3_5, 32 rows, BatchGenerator", 1.0, partial(versus_mlx_lm, "delta", 32, 64, 128)),
    "window8": Case("gemma3, 8 rows, beyond the window, row by row", 3.0, partial(versus_rows, "window", 8, 160, 320)),
    "window8mlx": Case(
        "gemma3, 8 rows, beyond the window, BatchGenerator", 1.0, partial(versus_mlx_lm, "window", 8, 160, 320)
    ),
}

if __name__ == "__main__":
    sys.exit(report(CASES, options(__doc__ or "", CASES)))
