"""Requests waiting for a row; those with the same prompt and adapter wait as one."""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass, field

import numpy as np

from inference.engine.rows import Cohort, Row
from inference.engine.sampling import CheckedParams


@dataclass(slots=True)
class Waiting:
    """Requests with the same prompt and adapter, by their parameters: (request id, seed) each."""

    adapter: Hashable
    prompt: tuple[int, ...]
    members: dict[CheckedParams, list[tuple[int, int]]] = field(default_factory=dict)
    top_logprobs: int = 0
    _last: tuple[CheckedParams | None, list[tuple[int, int]]] = field(default_factory=lambda: (None, []))
    """The parameters of the last request, and their members."""

    def add(self, request_id: int, params: CheckedParams, seed: int) -> None:
        """Takes in a request."""
        last, members = self._last
        if params is not last:  # comparing them, or hashing them, takes longer than the rest
            members = self.members.setdefault(params, [])
            self._last = params, members
        members.append((request_id, seed))

    def join(self, other: Waiting) -> None:
        """Takes in all requests of another with the same prompt and adapter."""
        for params, members in other.members.items():
            self.members.setdefault(params, []).extend(members)
        self.top_logprobs = max(self.top_logprobs, other.top_logprobs)

    def cohorts(self) -> list[Cohort]:
        """The requests, one cohort per set of parameters."""
        return [
            Cohort(
                params,
                np.array([request_id for request_id, _ in members], dtype=np.int64),
                np.array([seed & 0xFFFFFFFFFFFFFFFF for _, seed in members], dtype=np.uint64),
            )
            for params, members in self.members.items()
            if members
        ]

    def row(self) -> Row:
        """Their initial row; it has no slot yet."""
        reach = len(self.prompt) + max(params.max_tokens for params in self.members)
        leader = min(request_id for members in self.members.values() for request_id, _ in members)
        return Row(self.prompt, self.adapter, self.cohorts(), reach, leader, self.top_logprobs, pending=self.prompt)
