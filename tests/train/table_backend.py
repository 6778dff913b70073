"""A backend without MLX: Kuhn poker's policy as a table of logits in numpy, by the prompt's checksum.

It plays, too: the engine answers with one of the four words in brackets, and never writes anything else.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, NoReturn
from zlib import crc32

import numpy as np
from numpy.typing import NDArray

from inference import Completion, Request, UnknownAdapter, load_tokenizer
from inference.files import tensors
from legos_train import ConfigError
from legos_train.disk import save_adapter
from legos_train.loss import LossSettings, metrics
from legos_train.loss.batch import Batch
from legos_train.model import Capabilities, Snapshot
from legos_train.model.backend import BackendState, Footprint, GroupBytes
from legos_train.model.backends import Place

ROWS, NEVER = 1 << 10, -30.0
Table = NDArray[np.float32]


class Words:
    """Which tokens may follow a context: after the opening bracket one of four words, everywhere else a single one."""

    def __init__(self, tokenizer: Any):
        spelled = [[int(t) for t in tokenizer.encode(f"[{word}]")] for word in ("check", "bet", "call", "fold")]
        self.open, self.close, self.end = spelled[0][0], spelled[0][2], int(tokenizer.eos_token_id)
        self.words = [word for _, word, _ in spelled]

    def logprobs(self, table: Table, context: Sequence[int]) -> tuple[list[int], NDArray[np.float64]]:
        """The tokens that may follow, and their log-probabilities."""
        if context[-1] != self.open:
            follows = {**dict.fromkeys(self.words, self.close), self.close: self.end}
            return [follows.get(context[-1], self.open)], np.zeros(1)
        logits = table[row_of(context)].astype(np.float64)
        return self.words, logits - np.log(np.exp(logits).sum())


def row_of(context: Sequence[int]) -> int:
    return crc32(np.array(context, dtype=np.int32).tobytes()) % ROWS


class TableEngine:
    """Answers from published tables, all at once; see `Place`."""

    def __init__(self, words: Words):
        self.words = words
        self.served: dict[str | None, tuple[Table, int]] = {None: (np.zeros((ROWS, 4), np.float32), 0)}
        self.waiting: dict[int, Request] = {}
        self.count = 0

    def submit(self, request: Request) -> int:
        if request.adapter not in self.served:
            raise UnknownAdapter(f"no {request.adapter!r} here")
        self.count += 1
        self.waiting[self.count] = request
        return self.count

    def step(self) -> list[Completion]:
        waiting, self.waiting = self.waiting, {}
        return [self._answer(number, request) for number, request in waiting.items()]

    def _answer(self, number: int, request: Request) -> Completion:
        table, version = self.served[request.adapter]
        rng, tokens, logprobs = np.random.default_rng(request.sampling.seed), list[int](), list[float]()
        while not tokens or tokens[-1] != self.words.end:
            ids, found = self.words.logprobs(table, [*request.prompt, *tokens])
            drawn = 0 if len(ids) == 1 else int(rng.choice(len(ids), p=np.exp(found)))
            tokens.append(ids[drawn])
            logprobs.append(float(found[drawn]))
        size = len(request.prompt)
        return Completion(number, tokens, logprobs, logprobs, "stop", request.adapter, version, size, 0)

    def abort(self, request_id: int) -> None:
        self.waiting.pop(request_id, None)

    def settle(self) -> list[Completion]:
        return []

    def publish(self, name: str, weights: Table, *, scale: float, version: int = 0, mode: str = "pin") -> None:
        self.served[name] = (weights, version)

    def unpublish(self, name: str) -> None:
        del self.served[name]

    def adapters(self) -> list[str]:
        return [name for name in self.served if name is not None]

    def score(
        self, prompts: Sequence[Sequence[int]], replies: Sequence[Sequence[int]], *, adapter: str | None = None
    ) -> list[NDArray[np.float64]]:
        table = self.served[adapter][0]
        return [
            np.array([self._at(table, [*prompt, *reply[:i]], reply[i]) for i in range(len(reply))])
            for prompt, reply in zip(prompts, replies, strict=True)
        ]

    def _at(self, table: Table, context: Sequence[int], token: int) -> float:
        ids, found = self.words.logprobs(table, context)
        return float(found[ids.index(token)]) if token in ids else NEVER

    def next_logits(self, prompts: Sequence[Sequence[int]], adapter: str | None = None) -> Table:
        """See `Place`: a prompt's own row may well stay, so the checksum of the whole table stands beside it."""
        table = self.served[adapter][0]
        return np.append(table[[row_of(prompt) for prompt in prompts]], np.float32(crc32(table.tobytes())))

    def drop_caches(self) -> None: ...

    def close(self) -> None: ...


class TableBackend:
    """See `TrainerBackend`: gradient descent on the table, whose KL is to the uniform policy."""

    capabilities = Capabilities(
        exact_kl=False, entropy=False, weight_average=False, own_weights=False, rounding=1e-5
    )  # fmt: skip

    def __init__(self, words: Words, vocabulary: int):
        self.words, self.vocabulary, self.notes = words, vocabulary, ["a table, not a model"]
        self.table: Table = np.zeros((ROWS, 4), np.float32)  # replaced, never written to
        self.grad: NDArray[np.float64] | None = None

    def _seen(self, batch: Batch) -> list[tuple[int, int, NDArray[np.float64]]]:
        """Of each token its row, its place among the words (-1: no choice), and the words' log-probabilities."""
        contexts = [batch.context(site) for site in range(len(batch.rows))]
        sites = [(row_of(context), *self.words.logprobs(self.table, context)) for context in contexts]
        of_tokens = [(*sites[site], token) for site, token in zip(batch.position, batch.target, strict=True)]
        return [(row, ids.index(token) if len(ids) > 1 else -1, found) for row, ids, found, token in of_tokens]

    def prepare(self, batch: Batch, settings: LossSettings) -> Batch:
        return batch.with_start(np.array([found[word] for _, word, found in self._seen(batch)]))

    def forward_backward(self, batch: Batch, settings: LossSettings, version: int) -> dict[str, Any]:
        seen = self._seen(batch)
        new = np.array([found[word] for _, word, found in seen])
        ratio, gap = np.exp(new - batch.old_logprobs), np.log(1 / 4) - new
        weights = batch.token_weights(settings.aggregation, settings.constant)
        pull = weights * (batch.advantages * ratio + settings.kl * np.expm1(gap))
        self.grad = np.zeros((ROWS, 4))
        for (row, word, found), size in zip(seen, pull, strict=True):
            if word >= 0:
                self.grad[row] += size * (np.exp(found) - np.eye(4)[word])
        return {
            "loss": float(-(weights * ratio * batch.advantages).sum()),
            "grad_norm": float(np.linalg.norm(self.grad)),
            "finite": 1.0,
            "entropy": float(-new.mean()),
            **metrics(new, batch, settings, version),
        }

    def optim_step(self, lr: float) -> None:
        assert self.grad is not None
        self.table, self.grad = (self.table - lr * self.grad).astype(np.float32), None

    def anchor(self, reference: Snapshot | None) -> None: ...

    def fold_average(self, step: int) -> None: ...

    def snapshot(self, version: int) -> Snapshot:
        return Snapshot(version, self.table)

    average = snapshot

    def distance(self, before: Snapshot) -> float:
        return float(np.abs(self.table - before.content).max())

    def load(self, snapshot: Snapshot) -> None:
        self.table = snapshot.content

    def publish(self, target: Any, name: str, snapshot: Snapshot) -> None:
        target.publish(name, snapshot.content, snapshot.version)

    def drop_caches(self) -> None: ...

    def fingerprint(self) -> bytes:
        return self.table.tobytes()

    def read(self, path: Path) -> NoReturn:
        raise ConfigError("a table is not read from adapters")

    def read_run(self, path: Path, most: int, learner: str | None = None) -> NoReturn:
        raise ConfigError("a table is not read from runs")

    def write(self, snapshot: Snapshot, folder: Path, facts: Mapping[str, Any]) -> None:
        save_adapter(folder, {"table": snapshot.content}, {"legos": dict(facts)})

    def save_state(self) -> BackendState:
        return BackendState({"adapter": self.pack(self.snapshot(0))}, {})

    def load_state(self, groups: Mapping[str, bytes], numbers: Mapping[str, Any]) -> None:
        self.load(self.unpack(groups["adapter"], 0))

    def pack(self, snapshot: Snapshot) -> GroupBytes:
        return partial(tensors.to_bytes, {"table": snapshot.content})

    def unpack(self, data: bytes, version: int) -> Snapshot:
        return Snapshot(version, tensors.parse(data).tensors["table"].values)

    def footprint(self) -> Footprint:
        return Footprint(0, self.table.nbytes, self.table.size)


def table_place() -> Place:
    """A table that nothing has trained yet, and its engines."""
    tokenizer = load_tokenizer("tiny")
    words = Words(tokenizer)
    backend = TableBackend(words, len(tokenizer))
    return Place(None, tokenizer, TableEngine(words), backend, second=lambda: TableEngine(words))
