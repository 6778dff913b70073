"""Tracks requests and delivers their results: completions when they end, new tokens while they stream."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from inference.adapters import AdapterBank, AdapterVersion
from inference.engine.drafts import Drafts
from inference.engine.model_runner import ModelRunner
from inference.engine.rows import Finished, Row
from inference.types import Completion, Delta, Request


@dataclass(slots=True)
class Ticket:
    """A request that waits or runs, and the adapter version it runs under."""

    request: Request
    adapter: AdapterVersion
    prompt_tokens: int


class Delivery:
    """Requests from their submission to their completion.

    Args:
        bank: releases an adapter version when a request under it ends.
        runner: parks the rows whose requests ask for it.
    """

    def __init__(self, bank: AdapterBank, runner: ModelRunner) -> None:
        self._bank, self._runner = bank, runner
        self.drafts = Drafts()
        self.speculating = 0
        """Number of waiting or running requests with `speculate`."""
        self.tickets: dict[int, Ticket] = {}
        self._streams: dict[int, int] = {}  # how many tokens of a request have been reported
        self._deltas: list[Delta] = []

    def enter(self, request_id: int, request: Request, adapter: AdapterVersion, prompt_tokens: int) -> None:
        """Records a request that was queued under an adapter version."""
        self.tickets[request_id] = Ticket(request, adapter, prompt_tokens)
        adapter.running += 1
        self.speculating += request.sampling.speculate > 0
        if request.stream:
            self._streams[request_id] = 0

    def under(self, adapter: AdapterVersion) -> list[int]:
        """Ids of the requests under an adapter version."""
        return [request_id for request_id, ticket in self.tickets.items() if ticket.adapter is adapter]

    def hand_over(self, ids: Iterable[int], new: AdapterVersion) -> None:
        """Continues requests under another adapter version."""
        for request_id in ids:
            ticket = self.tickets[request_id]
            old, ticket.adapter = ticket.adapter, new
            new.running += 1
            self._bank.release(old)

    def deltas(self) -> list[Delta]:
        """New tokens of streaming requests since the last call, including those of a request's last step."""
        deltas, self._deltas = self._deltas, []
        return deltas

    def leaving(self, finished: Iterable[Finished]) -> set[int]:
        """The slots that `deliver` will park from after these requests end."""
        return {row.home for ids, row, _, _ in finished if any(self.tickets[i].request.park for i in ids.tolist())}

    def deliver(self, finished: Iterable[Finished], kv: Any, error: str | None = None) -> list[Completion]:
        """The completions of requests that have just ended; rows to be parked are still in the KV cache."""
        completions = []
        for ids, row, sampled_logprobs, reason in finished:
            versions = _versions(row) if row.switches else None
            tokens, logprobs, sampled = row.tokens.copy(), row.logprobs.copy(), sampled_logprobs.copy()
            parked = learnt = False
            for request_id in ids.tolist():
                ticket = self.tickets.pop(request_id)
                request, adapter = ticket.request, ticket.adapter
                count = request.sampling.top_logprobs
                if request.park and not parked and reason in ("stop", "length") and not row.switches:
                    self._runner.park(kv, row, (*row.prompt, *row.tokens)[: row.pos])
                    parked = True
                if request.sampling.speculate:
                    self.speculating -= 1
                    if not learnt and reason in ("stop", "length"):
                        self.drafts.learn(row.prompt, row.tokens)
                        learnt = True
                if request_id in self._streams:
                    self._stream(request_id, row, count)
                    del self._streams[request_id]
                self._bank.release(adapter)
                completions.append(
                    Completion(
                        request_id,
                        tokens,
                        logprobs,
                        sampled,
                        reason,
                        adapter.name,
                        adapter.version,
                        ticket.prompt_tokens,
                        row.cached if request_id == row.leader else ticket.prompt_tokens,
                        error,
                        [top[:count] for top in row.tops] if count else None,
                        versions,
                        None if adapter.name is None else adapter.digest,
                    )
                )
        return completions

    def report(self, hosts: Iterable[Row]) -> None:
        """Collects the new tokens of unfinished streaming requests."""
        if not self._streams:
            return
        for host in hosts:
            for row in (*host.branches, host):
                for request_id in row.request_ids():
                    if request_id in self._streams:
                        self._stream(request_id, row, self.tickets[request_id].request.sampling.top_logprobs)

    def _stream(self, request_id: int, row: Row, count: int) -> None:
        reported = self._streams[request_id]
        if len(row.tokens) > reported:
            tops = [top[:count] for top in row.tops[reported:]] if count else None
            tokens, logprobs = row.tokens[reported:], row.logprobs[reported:]
            self._deltas.append(Delta(request_id, tokens, logprobs, tops, row.adapter.version))
            self._streams[request_id] = len(row.tokens)


def _versions(row: Row) -> list[int]:
    """The policy version that sampled each token."""
    versions: list[int] = []
    for index, before in row.switches:
        versions += [before] * (index - len(versions))
    return versions + [row.adapter.version] * (len(row.tokens) - len(versions))
