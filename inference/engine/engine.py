"""The engine: submit requests, step, collect completions. Synchronous, one thread owns it.

Requests join and leave between steps. See `stepper` for what a step does, `scheduler` for how requests with the same
prompt share rows, `adapters` for versions, `sampling` for why a request's tokens do not depend on the rest of the
batch.

Not supported: penalties.
"""

from __future__ import annotations

import secrets
import threading
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, get_args

import mlx.core as mx
from mlx import nn

from inference import loading
from inference.adapters import AdapterBank, PreparedAdapter
from inference.engine.checks import Checks
from inference.engine.delivery import Delivery
from inference.engine.drafts import Drafts
from inference.engine.exact import ExactEvaluation
from inference.engine.flight import looks_ahead
from inference.engine.model_runner import ModelRunner
from inference.engine.probe import Probe
from inference.engine.publisher import Publisher
from inference.engine.stepper import Stepper
from inference.files import adapter_files
from inference.forward.threads import use_threads
from inference.thoughts import markers_of
from inference.types import (
    MAX_KV_BYTES,
    MAX_LORA_RANK,
    MAX_ROWS,
    PREFIX_CACHE_BYTES,
    AdapterInfo,
    Completion,
    Delta,
    Dequantize,
    InferenceError,
    Lookahead,
    PublishMode,
    Request,
    Threads,
    UnknownRequest,
)

SIDE_BY_SIDE = 4
"""Number of requests without `max_tokens` that should fit into memory together."""


class Engine(ExactEvaluation):
    """Continuous batching over one base model and many adapter versions.

    The engine builds its own module tree over the model's arrays (`loading.clone_structure`): the given model is not
    changed, and its LoRA layers are ignored; publish adapters instead.

    Args:
        model: the base model.
        tokenizer: mlx-lm's wrapper, or None for an engine that handles no text.
        max_rows: most distinct sequences decoded at once; requests with the same history count as one.
        prefill_tokens: most prompt tokens in one forward pass, padding included.
        admit_tokens: most prompt tokens admitted in one step; fewer keep running requests responsive.
        max_kv_bytes: approximate memory limit for keys, values and states of running rows.
        prefix_cache_bytes: memory limit for those of cached prompt prefixes; 0 computes every prompt in full.
        adapter_slots: initial number of adapter slots; more are added when all are in use.
        max_lora_rank: highest rank accepted.
        share_rows: whether requests with the same history share a row; the results are the same.
        context: most tokens of prompt and completion; None takes it from the model's arguments.
        lookahead: whether to submit the next step before the host has read this one's tokens; "auto": on a GPU. The
            results are the same, and "on" does nothing on paths that compute synchronously.

    Raises:
        UnsupportedModel: the architecture cannot be run token by token.
    """

    def __init__(
        self,
        model: nn.Module,
        tokenizer: Any,
        *,
        max_rows: int = MAX_ROWS,
        adapter_slots: int = 4,
        max_lora_rank: int = MAX_LORA_RANK,
        prefill_tokens: int = 2048,
        admit_tokens: int = 8192,
        max_kv_bytes: int = MAX_KV_BYTES,
        prefix_cache_bytes: int = PREFIX_CACHE_BYTES,
        share_rows: bool = True,
        context: int | None = None,
        lookahead: Lookahead = "auto",
    ) -> None:
        for name, value in (
            ("max_rows", max_rows),
            ("prefill_tokens", prefill_tokens),
            ("max_lora_rank", max_lora_rank),
        ):
            if value < 1:
                raise ValueError(f"{name} must be at least 1, got {value}")
        loading.prepare_mlx()
        self.tokenizer = tokenizer
        self.eos_ids = frozenset(getattr(tokenizer, "eos_token_ids", None) or ())
        self.model = copy = loading.clone_structure(model)
        self._bank = AdapterBank(copy, slots=adapter_slots, max_rank=max_lora_rank)
        self._runner = ModelRunner(
            copy, self._bank, prefill_tokens=prefill_tokens, prefix_cache_bytes=prefix_cache_bytes
        )
        self.vocab_size = self._runner.vocab
        self.context = context or loading.context_length(model)
        thoughts = markers_of(tokenizer)
        self._checks = Checks(self.vocab_size, self.context, self.eos_ids, tokenizer is not None, thoughts)
        self._publisher = Publisher(self._bank, Probe(model), self.vocab_size)
        self._delivery = Delivery(self._bank, self._runner)
        self._tickets = self._delivery.tickets
        self._stepper = Stepper(
            self._runner,
            self._delivery,
            tokenizer,
            max_rows=max_rows,
            max_kv_bytes=max_kv_bytes,
            admit_tokens=admit_tokens,
            share_rows=share_rows,
            lookahead=looks_ahead(lookahead, self._runner.forward),
        )
        self._scheduler = self._stepper.scheduler
        self._longest = self._stepper.longest(1, self.context)
        self._next_id = 0
        self._closed = False

    @classmethod
    def load(
        cls,
        name_or_path: str | Path,
        adapter_path: str | Path | None = None,
        *,
        dequantize: Dequantize = "auto",
        threads: Threads | None = "auto",
        **options: Any,
    ) -> Engine:
        """Loads a model by name ("tiny"), directory or hub name; an adapter is published as "default", version 0.

        `dequantize` as for `inference.load`; the options are the constructor's. `threads` are those of every BLAS in
        this process, numpy's own included, as for `inference.forward.threads.use_threads`; None leaves them alone.
        By default a small model takes one: with one for each core it is several times slower on a busy machine.
        """
        model, tokenizer, info = loading.load(name_or_path, dequantize=dequantize)
        if threads is not None:
            use_threads(threads, model)
        engine = cls(model, tokenizer, **{"context": loading.context_length(model, info.config), **options})
        if adapter_path is not None:
            adapter = adapter_files.read_adapter(adapter_path, model)
            engine.publish("default", adapter.weights, scale=adapter.scale, version=0)
        return engine

    # Requests

    def submit(self, request: Request) -> int:
        """Queues a request and returns its id. It runs under the adapter version current at this time.

        Raises:
            ValueError: an empty prompt, ids or parameters out of range, an adapter that is not published.
            ContextOverflow: the prompt leaves no room in the context.
        """
        self._check_open()
        adapter = self._bank.find(request.adapter)
        prompt = self._prompt(request.prompt, adapter)
        sampling = request.sampling
        if getattr(sampling, "max_tokens", 0) is None:
            sampling = replace(sampling, max_tokens=self._room(len(prompt)))
        params = self._checks.sampling(sampling, len(prompt), prompt)
        self._check_room(params.max_tokens, len(prompt))
        seed = secrets.randbits(63) if request.sampling.seed is None else int(request.sampling.seed)
        request_id, self._next_id = self._next_id, self._next_id + 1
        self._scheduler.add(request_id, adapter, prompt, params, seed, request.sampling.top_logprobs)
        self._delivery.enter(request_id, request, adapter, len(prompt))
        return request_id

    def step(self) -> list[Completion]:
        """Advances every running request by one token; returns the completions that ended, by id."""
        self._check_open()
        return self._stepper.step()

    def settle(self) -> list[Completion]:
        """Ends aborted requests, without a step for the others."""
        return self._stepper.settle()

    def deltas(self) -> list[Delta]:
        """New tokens of streaming requests since the last call, including those of a request's last step."""
        return self._delivery.deltas()

    def generate(self, requests: Sequence[Request]) -> list[Completion]:
        """Runs requests to completion; returns completions in the order given. Needs an engine without other requests.

        If one is refused, a ValueError says which, and none runs.
        """
        if self.busy:
            raise InferenceError("generate needs an idle engine; collect running requests with step() first")
        ids: list[int] = []
        try:
            for request in requests:
                ids.append(self.submit(request))
        except ValueError as error:
            for request_id in ids:
                self.abort(request_id)
            self.step()
            error.add_note(f"request {len(ids)} of {len(requests)} was refused")
            raise
        completions: dict[int, Completion] = {}
        while self.busy:
            completions.update((completion.request_id, completion) for completion in self.step())
        return [completions[i] for i in ids]

    def abort(self, request_id: int) -> None:
        """Ends a request at the next step, with its tokens so far. UnknownRequest if there is no such request."""
        if request_id not in self._tickets:
            raise UnknownRequest(f"request {request_id} is neither waiting nor running")
        self._stepper.aborts.add(request_id)

    def abort_all(self) -> None:
        """Ends every request, at the next step."""
        self._stepper.aborts.update(self._tickets)

    def abandon(self, error: str) -> list[Completion]:
        """Ends every request with an error and forgets all keys and values, after an unforeseen fault."""
        return self._stepper.abandon(error)

    @property
    def path(self) -> str:
        """How the model runs: "numpy", "mlx" or, one row at a time, "row by row"."""
        return self._runner.forward.name

    @property
    def lookahead(self) -> bool:
        """Whether the engine submits the next step before this one's tokens are known."""
        return self._stepper.lookahead

    @property
    def drafts(self) -> Drafts:
        """Draft tokens for requests with `speculate`, and how many of them were accepted."""
        return self._delivery.drafts

    @property
    def busy(self) -> bool:
        """Whether any request is waiting or running."""
        return self._scheduler.busy

    # Adapters

    def prepare(self, weights: Mapping[str, mx.array], *, scale: float) -> PreparedAdapter:
        """Checks and tries out LoRA weights ahead of `publish`, which then blocks the engine only briefly.

        Any thread may call it while the engine runs. Raises AdapterError as `publish` does.
        """
        return self._publisher.prepare(weights, scale)

    def publish(
        self,
        name: str,
        weights: Mapping[str, mx.array] | PreparedAdapter,
        *,
        scale: float | None = None,
        version: int | None,
        mode: PublishMode = "pin",
        monotone: bool = False,
    ) -> str:
        """Makes LoRA weights the current version of a name, for requests submitted from now on; returns their digest.

        Args:
            name: what requests call the adapter.
            weights: mlx-lm names, `<layer>.lora_a` (in, rank) and `<layer>.lora_b` (rank, out), evaluated here; or the
                result of `prepare`, which includes the scale.
            scale: factor on the product of A and B.
            version: reported as `policy_version` by completions under these weights; None: one more than the last.
            mode: what happens to the name's unfinished requests, under whichever version. `pin`: they finish under the
                version they began with. `keep`: they continue under the new one, with their existing keys and values;
                `token_versions` has the version of each token. `wait`: like pin, and new requests wait until they are
                done. `abort`: they end now.
            monotone: for publishers that may repeat a call: publishing the current version again changes nothing, and a
                version that is older than the last, or was published with other weights, is refused.

        Raises:
            AdapterError: the weights do not fit, are not finite or make the model's logits non-finite; the previous
                version stays current.
            VersionConflict: see `monotone`; the previous version stays current.
        """
        self._check_open()
        if mode not in get_args(PublishMode):
            raise ValueError(f"mode must be one of {', '.join(get_args(PublishMode))}; got {mode!r}")
        new, old = self._publisher.publish(name, weights, scale, version, monotone=monotone)
        if old is None:
            return new.digest
        earlier = self._bank.earlier(new)
        if mode == "wait":
            new.after = tuple(earlier)
        for old in earlier:
            affected = self._delivery.under(old)
            if mode == "abort":
                self._stepper.aborts.update(affected)
            elif mode == "keep":
                self._scheduler.transfer(old, new, old.version)
                self._delivery.hand_over(affected, new)
        return new.digest

    def unpublish(self, name: str, *, for_good: bool = True) -> None:
        """Removes an adapter; requests running under it finish. ValueError if there is no such name.

        for_good: if False, a `monotone` publication may bring the same version back.
        """
        self._publisher.unpublish(name, for_good=for_good)

    def check_version(self, name: str, version: int, digest: str) -> None:
        """VersionConflict if a `monotone` publication of this version and digest would be refused."""
        self._publisher.ledger.check(name, version, digest)

    def adapters(self) -> dict[str, AdapterInfo]:
        """The current version of each published name."""
        return self._bank.published()

    # Housekeeping

    def drop_caches(self) -> None:
        """Returns to the state of a new engine (no cached prefixes, no KV cache allocated), except for published
        adapters.

        Later results are then independent of earlier requests, bit for bit. InferenceError while requests are pending.
        """
        if self.busy:
            raise InferenceError("drop_caches needs an idle engine: run step() until busy is False, or abort first")
        self._runner.drop_caches()
        self._bank.drop_caches()
        self._delivery.drafts.clear()
        self._stepper.kv.reset()

    def close(self) -> None:
        """Releases the model and, off the main thread, this thread's MLX streams until `load` is called in it again.

        A worker thread must call it before it ends.
        """
        if self._closed:
            return
        self._closed = True
        self._stepper.kv.reset()
        self._runner.drop_caches()
        del self._runner, self._bank, self._stepper, self._scheduler, self._publisher, self._delivery, self.model
        mx.synchronize()
        if threading.current_thread() is not threading.main_thread():
            loading.release_streams()

    def __enter__(self) -> Engine:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    # Checks

    def _room(self, prompt_tokens: int) -> int:
        """Most new tokens of a request without a limit: as many as the context has room for, but with keys and values
        in at most a quarter of the memory, so that others can run beside it; in all of it if the prompt alone takes
        more.
        """
        room = self.context - prompt_tokens
        for rows in (SIDE_BY_SIDE, 1):
            if (most := self._stepper.longest(rows, self.context) - prompt_tokens) > 0:
                return min(room, most)
        return room

    def _check_room(self, new_tokens: int, prompt_tokens: int) -> None:
        if prompt_tokens + new_tokens > self._longest:
            raise ValueError(
                f"{prompt_tokens} prompt and {new_tokens} new tokens need more keys and values than "
                f"max_kv_bytes={self._stepper.max_kv_bytes} holds; lower max_tokens or raise max_kv_bytes"
            )
