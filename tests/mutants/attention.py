"""Mistakes in attention on a CPU and in the rows of pretraining."""

from __future__ import annotations

from tests.mutants.mutant import mutants

ATTENTION = "tests/inference/test_attention.py"
PACKED = "tests/train/test_packed_rows.py"

MUTANTS = [
    *mutants(
        "inference/forward/attention.py",
        ATTENTION,
        (
            "a-query-does-not-see-itself",
            "return np.arange(keys - queries + 1, keys + 1)[None]",
            "return np.maximum(np.arange(keys - queries, keys), 1)[None]",
            "the mask ends one key early",
        ),
        (
            "block-sees-what-its-first-query-sees",
            "    span = int(counts.max())",
            "    span = int(counts[0, 0])",
            "keys that only later queries of a block see are left out",
        ),
        (
            "keys-in-half-precision",
            "keys, values = keys.astype(queries.dtype), values.astype(queries.dtype)",
            "keys, values = keys, values",
            "Phi in bfloat16 cannot be trained on long rows",
        ),
        (
            "every-mask-is-causal",
            "if np.array_equal(seen, causal(seen.shape[1], span)):",
            "if len(seen) == 1 or seen.shape[1] > 1:",
            "on a GPU the queries of sites see what they should not",
        ),
    ),
    *mutants(
        "inference/forward/flash_attention.py",
        ATTENTION,
        (
            "hidden-keys-are-seen",
            "queries.dtype.type(-np.inf), where=beyond)",
            "queries.dtype.type(-np.inf), where=False)",
            "queries of a block see each other",
        ),
        (
            "slope-of-the-softmax-is-not-centred",
            "d_scores -= own_products[:, at].reshape(-1, 1)",
            "d_scores -= 0.0",
            "the gradient of queries and keys is wrong",
        ),
        (
            "last-block-of-keys-wins",
            "d_keys[:span] += d_scores.T @ rows",
            "d_keys[:span] = d_scores.T @ rows",
            "a key gets the gradient of the last block only",
        ),
        (
            "heads-are-written-to-the-first-group",
            "_Piece((row, slice(group * heads, (group + 1) * heads)), [(row, group)]",
            "_Piece((row, slice(0, heads)), [(row, group)]",
            "other groups of heads are zero",
        ),
    ),
    *mutants(
        "inference/forward/flash_attention.py",
        PACKED,
        (
            "prefix-gets-no-gradient",
            "whole[part] += own[begin : begin + size]",
            "whole[part] = own[begin : begin + size]",
            "what rows share learns from the last of them only",
        ),
    ),
    *mutants(
        "inference/recurrence/install.py",
        ATTENTION,
        (
            "sinks-are-dropped",
            "and all(value is None for value in more.values())",
            "",
            "gpt-oss trains without its sinks",
        ),
        (
            "queries-before-the-first-key",
            "usual = 0 < q.shape[2] <= k.shape[2]",
            "usual = True",
            "fewer keys than queries are cut from the wrong end",
        ),
    ),
    *mutants(
        "legos_train/bootstrap/packed_rows.py",
        PACKED,
        (
            "rows-start-at-zero-after-a-prefix",
            "np.arange(begin, common, dtype=np.int32)",
            "np.arange(common - begin, dtype=np.int32)",
            "what follows a shared prefix has the positions of the beginning",
        ),
        (
            "sites-in-order-of-rows",
            "mx.array(rows.site)",
            "mx.array(np.sort(rows.site))",
            "a site gets the hidden state of another",
        ),
        (
            "a-piece-forgets-what-comes-before",
            "before = (*before, own)",
            "before = (own,)",
            "the second beginning that rows share does not see the first",
        ),
        (
            "nothing-is-shared",
            "if common - begin >= SHORTEST or end == first + 1:",
            "if end == first + 1:",
            "what rows share is computed again",
        ),
    ),
    *mutants(
        "legos_train/bootstrap/pretrain.py",
        "tests/train/test_shared_gradients.py",
        (
            "a-batch-is-skipped",
            "                if self.step + 1 < until:",
            "                next(rows)\n                if self.step + 1 < until:",
            "rows are drawn that nobody learns from",
        ),
    ),
]
