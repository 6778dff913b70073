"""Scoring given tokens: the part of the engine that samples nothing."""

from __future__ import annotations

from collections.abc import Generator, Sequence

import numpy as np
import numpy.typing as npt

from inference.adapters import AdapterBank, AdapterVersion
from inference.engine import scoring
from inference.engine.checks import Checks
from inference.engine.model_runner import ModelRunner
from inference.engine.prompt_reading import PromptPart, read_prompt
from inference.engine.sampling import Floats
from inference.engine.scheduler import Scheduler
from inference.types import ContextOverflow, InferenceError


class ExactEvaluation:
    """Teacher-forced log-probabilities and logits. Running requests are not disturbed."""

    _bank: AdapterBank
    _runner: ModelRunner
    _checks: Checks
    _scheduler: Scheduler
    _closed: bool

    def score(
        self,
        prompts: Sequence[Sequence[int]],
        continuations: Sequence[Sequence[int]],
        adapter: str | None = None,
    ) -> list[npt.NDArray[np.float64]]:
        """Raw log-probability of every continuation token after its prompt: arrays (L_i,). Nothing is sampled.

        Equal prompts are computed once. Running requests are not disturbed.
        Raises ValueError as `submit` does, and FloatingPointError when the model's logits are not finite.
        """
        self._check_open()
        if len(prompts) != len(continuations):
            raise ValueError(f"{len(prompts)} prompts but {len(continuations)} continuations; one for each is needed")
        version = self._bank.find(adapter)
        pairs = []
        for prompt, continuation in zip(prompts, continuations):
            ids = self._prompt(prompt, version)
            answer = self._checks.prompt(continuation, "continuation") if len(continuation) else ()
            if len(ids) + len(answer) > self._checks.context:
                raise ContextOverflow(
                    f"{len(ids)} prompt and {len(answer)} continuation tokens exceed the context of "
                    f"{self._checks.context}"
                )
            pairs.append((ids, answer))
        return scoring.score(self._runner, pairs, version, self._scheduler.max_rows)

    def prompt_logprobs(
        self, prompt: Sequence[int], adapter: str | None = None, *, top: int = 0
    ) -> Generator[PromptPart, None, None]:
        """Raw log-probabilities of a prompt's tokens from the second on, in parts; iterate in the engine's thread.

        It stays with the adapter version current at the call. Raises ValueError as `submit` does.
        """
        self._check_open()
        version, bank = self._bank.find(adapter), self._bank
        ids = self._prompt(prompt, version)

        def parts() -> Generator[PromptPart, None, None]:
            version.running += 1  # from the first part on: a reading that never starts holds nothing
            try:
                yield from read_prompt(self._runner, ids, version, top)
            finally:
                bank.release(version)

        return parts()

    def next_logits(self, prompts: Sequence[Sequence[int]], adapter: str | None = None) -> Floats:
        """Raw float32 logits (n, V) of the token after each prompt. May hold NaN: a canary for a new adapter."""
        self._check_open()
        version = self._bank.find(adapter)
        checked = [self._prompt(prompt, version) for prompt in prompts]
        return scoring.next_logits(self._runner, checked, version, self._scheduler.max_rows)

    def _check_open(self) -> None:
        if self._closed:
            raise InferenceError("this engine is closed")

    def _prompt(self, prompt: Sequence[int], adapter: AdapterVersion) -> tuple[int, ...]:
        if isinstance(prompt, tuple):
            try:
                if self._scheduler.waits_for(adapter, prompt):
                    return prompt  # checked when the request that it will share a row with was submitted
            except TypeError:
                pass  # the check below explains the error
        return self._checks.prompt(prompt)
