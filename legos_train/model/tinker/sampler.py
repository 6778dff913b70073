"""The service's sampling clients with the interface of an engine: many requests in flight, equal ones as one."""

from __future__ import annotations

import queue
from collections import deque
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple
from zlib import crc32

import numpy as np
from numpy.typing import NDArray

from inference import Completion, DrawParams, Request, UnknownAdapter
from inference.thoughts import NO_LIMIT
from legos_train.errors import ConfigError
from legos_train.model.tinker.service import Service
from legos_train.model.tinker.weights import RemoteWeights
from legos_train.rollout.players import Background, actors

SERVICE_DRAWS = ("temperature", "top_p")
"""The numbers of `inference.DrawParams` that the sampling of the API has."""
WAIT = 0.05  # seconds that a step waits for the first answer
SEEDS = 1 << 31


class ServedWeights(NamedTuple):
    """A name that can be sampled from. held: the weights, which the service may delete once nothing here has them."""

    sampler: Any
    version: int
    path: str
    held: RemoteWeights


class Call(NamedTuple):
    """Equal requests: their numbers, the request, the sampler, its version, and its weights (None: the base)."""

    numbers: list[int]
    request: Request
    sampler: Any
    version: int
    held: RemoteWeights | None


class TinkerEngine:
    """Samples at a service; see `players.Engines`. A name refers to the sampling client of saved weights.

    Requests of one step with the same prompt, weights and sampling become one call with `num_samples`, so the draw of a
    request depends on the others in it.

    Args:
        service: where the weights are.
        in_flight: maximum number of concurrent samples; the rest wait here.

    Attributes:
        frozen: whether saved weights stay fixed while training continues.
    """

    def __init__(self, service: Service, in_flight: int):
        self.service, self.in_flight = service, in_flight
        self.frozen = True
        self._base: Any = None
        self._served: dict[str, ServedWeights] = {}
        self._new: list[tuple[int, Request]] = []
        self._waiting: deque[Call] = deque()
        self._flying = self._count = 0
        self._wanted: set[int] = set()  # requests that are neither answered nor aborted
        self._answers: queue.SimpleQueue[tuple[Call, Any]] = queue.SimpleQueue()

    # --- requests ----------------------------------------------------------------------------------------------------

    def submit(self, request: Request) -> int:
        """Queues a request; `step` returns its completion under the returned number.

        Raises:
            UnknownAdapter: the request names an adapter that is not published here.
            ConfigError: a seat is to be sampled as the service cannot.
        """
        self._sampler(request.adapter)
        unknown = [name for name in DrawParams.of(request.sampling).unusual if name not in SERVICE_DRAWS]
        if request.sampling.thinking_token_budget != NO_LIMIT:
            unknown.append("thinking_tokens")
        if unknown:
            raise ConfigError(
                f"an actor has {' and '.join(unknown)}, which the Tinker API lacks; it has {', '.join(SERVICE_DRAWS)}"
            )
        self._count += 1
        self._new.append((self._count, request))
        self._wanted.add(self._count)
        return self._count

    def step(self) -> list[Completion]:
        """Sends new requests and returns completions that have arrived; waits a moment for the first.

        Raises:
            TrainingError: the service refused a request, or no longer answers.
        """
        self._group()
        while self._waiting and (not self._flying or self._flying + len(self._waiting[0].numbers) <= self.in_flight):
            call = self._waiting.popleft()
            call.numbers[:] = [number for number in call.numbers if number in self._wanted]
            if call.numbers:
                self._send(call)
        out: list[Completion] = []
        for answer in Background.drained(self._answers, WAIT if self._flying else 0.0):
            out += self._completions(*answer)
        return out

    def _group(self) -> None:
        """Groups new requests into calls."""
        calls: dict[Any, Call] = {}
        for number, request in self._new:
            q = request.sampling
            key = (tuple(request.prompt), request.adapter, q.max_tokens, DrawParams.of(q), q.stop_ids)
            version = 0 if request.adapter is None else self._served[request.adapter].version
            held = None if request.adapter is None else self._served[request.adapter].held
            new = Call([], request, self._sampler(request.adapter), version, held)
            call = calls.setdefault(key, new)
            if len(call.numbers) == self.in_flight:
                self._waiting.append(calls.pop(key))
                call = calls[key] = new
            call.numbers.append(number)
        self._new = []
        self._waiting.extend(calls.values())

    def _send(self, call: Call) -> None:
        types, q = self.service.sdk.types, call.request.sampling
        parameters = types.SamplingParams(
            max_tokens=q.max_tokens,
            temperature=q.temperature,
            top_p=q.top_p,
            seed=None if q.seed is None else q.seed % SEEDS,
            stop=sorted(q.stop_ids or ()),
        )
        future = call.sampler.sample(
            prompt=types.ModelInput.from_ints(list(call.request.prompt)),
            num_samples=len(call.numbers),
            sampling_params=parameters,
        )
        self._flying += len(call.numbers)
        future.add_done_callback(lambda done: self._answers.put((call, done)))

    def _completions(self, call: Call, done: Any) -> list[Completion]:
        self._flying -= len(call.numbers)
        alive = [number for number in call.numbers if number in self._wanted]
        self._wanted.difference_update(alive)
        if not alive:
            return []
        sequences = self.service.wait("sample", done).sequences
        request, out = call.request, []
        for number, sequence in zip(alive, sequences[: len(alive)], strict=True):
            logprobs = [float(value) for value in sequence.logprobs or ()]
            tokens = [int(token) for token in sequence.tokens]
            reason: Any = "stop" if sequence.stop_reason == "stop" else "length"
            out.append(
                Completion(
                    number, tokens, logprobs, logprobs, reason, request.adapter, call.version, len(request.prompt), 0
                )
            )
        return out

    def abort(self, request_id: int) -> None:
        """Drops a request; work already at the service still runs to its end."""
        self._wanted.discard(request_id)

    def settle(self) -> list[Completion]:
        """Nothing to do: aborted requests return nothing."""
        return []

    # --- weights -----------------------------------------------------------------------------------------------------

    def publish(
        self, name: str, weights: Mapping[str, Any], *, scale: float, version: int = 0, mode: str = "pin"
    ) -> str:
        """Makes requests of this name sample from saved weights; returns their path."""
        assert isinstance(weights, RemoteWeights)
        path = weights.playable(live=name == actors.POLICY)
        sampler = self.service.wait("sample", lambda: self.service.client.create_sampling_client(model_path=path))
        self._served[name] = ServedWeights(sampler, version, path, weights)
        return path

    def path_of(self, name: str) -> str | None:
        """The path behind a name; None if it is not published."""
        return self._served[name].path if name in self._served else None

    def unpublish(self, name: str) -> None:
        """Forgets a name."""
        self._sampler(name)
        del self._served[name]

    def adapters(self) -> list[str]:
        """The names that can be sampled from."""
        return list(self._served)

    def drop_caches(self) -> None:
        """Does nothing: there are none."""

    def close(self) -> None:
        """Drops all names; the SDK ends its session with the process."""
        self._served.clear()

    def _sampler(self, adapter: str | None) -> Any:
        if adapter is None:
            if self._base is None:
                self._base = self.service.wait(
                    "sample", lambda: self.service.client.create_sampling_client(base_model=self.service.base)
                )
            return self._base
        if adapter not in self._served:
            raise UnknownAdapter(f"no adapter {adapter!r} is published (there are {', '.join(self._served) or 'none'})")
        return self._served[adapter].sampler

    # --- scores ------------------------------------------------------------------------------------------------------

    def sequence_logprobs(
        self, sequences: Sequence[Sequence[int]], adapter: str | None = None
    ) -> list[NDArray[np.float32]]:
        """The log-probability of each token but the first after those before it, (n - 1,) for each sequence."""
        sampler, types = self._sampler(adapter), self.service.sdk.types
        wanted = {tuple(map(int, sequence)): None for sequence in sequences}
        found: dict[tuple[int, ...], NDArray[np.float32]] = {}
        names = list(wanted)
        for start in range(0, len(names), self.in_flight):
            part = names[start : start + self.in_flight]
            futures = [sampler.compute_logprobs(types.ModelInput.from_ints(list(name))) for name in part]
            for name, future in zip(part, futures, strict=True):
                values = self.service.wait("score tokens", future)
                found[name] = np.array(
                    values[len(values) + 1 - len(name) :], dtype=np.float32
                )  # some have a first None
        return [found[tuple(map(int, sequence))] for sequence in sequences]

    def score(
        self, prompts: Sequence[Sequence[int]], replies: Sequence[Sequence[int]], *, adapter: str | None = None
    ) -> list[NDArray[np.float32]]:
        """Log-probabilities of the tokens of replies after their prompts, as `Engine.score`."""
        whole = [[*prompt, *reply] for prompt, reply in zip(prompts, replies, strict=True)]
        scored = self.sequence_logprobs(whole, adapter)
        return [values[len(prompt) - 1 :] for values, prompt in zip(scored, prompts, strict=True)]

    def next_logits(self, prompts: Sequence[Sequence[int]], adapter: str | None = None) -> NDArray[np.float32]:
        """A check that new weights are served: log-probabilities of the prompts' own tokens.

        If saved weights move with the training, the old name gives the new numbers, and only the path is new.
        """
        own = [] if self.frozen or adapter is None else [np.array([crc32(self._served[adapter].path.encode())])]
        return np.concatenate([*self.sequence_logprobs(prompts, adapter), *own])
