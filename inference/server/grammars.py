"""Grammars that constrain a completion: JSON schemas, compiled by llguidance to masks over the vocabulary.

llguidance (https://github.com/guidance-ai/llguidance) lets other threads run while it compiles or computes a mask, and
both have a fixed fuel budget. A schema that exceeds it at compile time is refused; one that exceeds it later ends the
completion, and `Grammar.fault` says why.
"""

from __future__ import annotations

import json
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from inference.bounded_cache import BoundedCache

MOST_GRAMMARS, MOST_SCHEMA_BYTES = 64, 64 << 10
_MOST_STATES, _MOST_FAULTS = 256, 64
_LIMITS: dict[str, Any] = {
    "initial_lexer_fuel": 500_000,
    "step_lexer_fuel": 50_000,
    "step_max_items": 20_000,
    "max_items_in_row": 2_000,
    "max_grammar_size": 200_000,
    "max_lexer_states": 50_000,
    "verbose_errors": False,
}
"""llguidance's units; its own defaults are two to five times as high."""
_JSON: Any = {"whitespace_pattern": r"\n?[ \t]{0,24}", "coerce_one_of": True}
"""White space is limited to one line end and its indentation; otherwise a model may write nothing else. `oneOf` is
read as `anyOf`."""

State = tuple[Any, npt.NDArray[np.int64]]


class GrammarError(ValueError):
    """A grammar that cannot be compiled within the limits."""


class Grammars:
    """The grammars of one vocabulary: the last 64, compiled, and the matchers of running completions.

    Args:
        tokenizer: mlx-lm's wrapper or transformers' tokenizer, with a `tokenizers` backend.
        vocab: the width of the model's logits.
        end_id: the token that ends a completion, allowed where the grammar may end.

    Raises:
        ModuleNotFoundError: llguidance is not installed.
    """

    def __init__(self, tokenizer: Any, vocab: int, end_id: int) -> None:
        import llguidance

        self.vocab, self.end_id = vocab, end_id
        self._tokens = llguidance.LLTokenizer(tokenizer.backend_tokenizer.to_str(), n_vocab=vocab, eos_token=end_id)
        self._limits = llguidance.LLParserLimits(**_LIMITS)
        self._matcher = llguidance.LLMatcher
        self._compiled: BoundedCache[Grammar] = BoundedCache(MOST_GRAMMARS, MOST_GRAMMARS * MOST_SCHEMA_BYTES)
        self.states: OrderedDict[tuple[Grammar, tuple[int, ...]], State] = OrderedDict()

    def schema(self, schema: Mapping[str, Any], after: int | None = None) -> Grammar:
        """The grammar of all JSON texts that match a schema.

        Args:
            schema: a JSON schema; `{"type": "object"}` is any object.
            after: a token after which it begins, such as `</think>`; until then everything but the end token is
                allowed.

        Raises:
            GrammarError: it is too large, or not one that llguidance can follow.
        """
        return self._grammar(schema_text(schema), after, lark=False)

    def lark(self, source: str, after: int | None = None) -> Grammar:
        """The grammar of a source text in llguidance's dialect of Lark, which may embed JSON schemas."""
        return self._grammar(source, after, lark=True)

    def _grammar(self, source: str, after: int | None, lark: bool) -> Grammar:
        key = (source, after, lark)
        found = self._compiled.get(key)
        return self._compiled.put(key, self._compile(source, after, lark)) if found is None else found

    def _compile(self, source: str, after: int | None, lark: bool) -> Grammar:
        matchers = self._matcher
        try:
            grammar = (
                matchers.grammar_from_lark(source)
                if lark
                else matchers.grammar_from_json_schema(source, overrides=_JSON)
            )
        except ValueError as error:  # it cannot even be read
            raise GrammarError(_first_line(str(error))) from error
        matcher = matchers(self._tokens, grammar, log_level=0, limits=self._limits)
        trial = matcher if matcher.is_error() else matcher.deep_copy()
        if not trial.is_error():
            trial.compute_bitmask()  # shows now whether the first token already takes too much
        if trial.is_error():
            raise GrammarError(_first_line(trial.get_error()))
        return Grammar(self, matcher, after)


class Grammar:
    """A compiled grammar, as the engine's sampler takes it. Compared by identity: equal schemas share one object.

    Its completions share the matchers of `Grammars`, which only the engine's thread uses; a dropped matcher is rebuilt
    from its tokens.
    """

    def __init__(self, owner: Grammars, matcher: Any, after: int | None) -> None:
        self._owner, self._matcher, self._after = owner, matcher, after
        self._faults: OrderedDict[tuple[int, ...], str] = OrderedDict()
        free = np.arange(owner.vocab)
        self._free = free[free != owner.end_id] if after is not None else free[:0]

    def ids_after(self, tokens: Sequence[int]) -> npt.NDArray[np.int64]:
        """The tokens (K,) that may follow, sorted; the end token alone where nothing else may."""
        said = self._said(tokens)
        if said is None:
            return self._free
        states, key = self._owner.states, (self, said)
        state = states.get(key)
        if state is None:
            before = states.pop((self, said[:-1]), None) if said else None
            state = states[key] = self._advance(before, said)
            while len(states) > _MOST_STATES:
                states.popitem(last=False)
        states.move_to_end(key)
        return state[1]

    def fault(self, tokens: Sequence[int]) -> str:
        """Why a completion had to end early; "" if it did not."""
        return self._faults.get(self._said(tokens) or (), "")

    def _said(self, tokens: Sequence[int]) -> tuple[int, ...] | None:
        """The tokens that the grammar covers; None before it begins."""
        said = tuple(tokens)
        if self._after is None:
            return said
        return said[said.index(self._after) + 1 :] if self._after in said else None

    def _advance(self, before: State | None, said: tuple[int, ...]) -> State:
        end = np.array([self._owner.end_id])
        if before is not None:
            matcher = before[0]
            matcher.consume_token(said[-1])
        else:
            matcher = self._matcher.deep_copy()
            matcher.consume_tokens(list(said))
        if not matcher.is_error():
            if matcher.is_stopped():
                return matcher, end
            bits = np.unpackbits(np.frombuffer(matcher.compute_bitmask(), np.uint8), bitorder="little")
            ids = np.flatnonzero(bits[: self._owner.vocab])
            if not matcher.is_error() and len(ids):
                return matcher, ids
        self._faults[said] = _first_line(matcher.get_error()) or "no token can follow"
        if len(self._faults) > _MOST_FAULTS:
            self._faults.popitem(last=False)
        return matcher, end


def schema_text(schema: Mapping[str, Any]) -> str:
    """A schema as JSON. GrammarError if it is longer than 64 KiB or nested too deeply."""
    try:
        text = json.dumps(schema, ensure_ascii=False, separators=(",", ":"))
    except RecursionError:
        raise GrammarError("it is nested too deep") from None
    if len(text.encode()) > MOST_SCHEMA_BYTES:
        raise GrammarError(f"it has {len(text.encode())} bytes; at most {MOST_SCHEMA_BYTES} are compiled")
    return text


def _first_line(error: str) -> str:
    return next((line.strip() for line in error.splitlines() if line.strip()), "")[:200]
