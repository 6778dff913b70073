"""A Tinker API in this process, over MLX: what the SDK's module offers, with a server behind it that can be told apart.

It computes real gradients, so that runs learn. How it reduces losses, whether it clips, and whether what it saves stays
as it was are arguments, since servers differ in these.
"""

from __future__ import annotations

import io
import itertools
import json
import tarfile
import threading
from concurrent.futures import Future
from types import SimpleNamespace
from typing import Any

import mlx.core as mx
import numpy as np
import pytest
from mlx import nn
from mlx import optimizers as optim

from inference import Engine, Request, SamplingParams, load
from inference.files import tensors
from legos_train.config.sections import LoRASettings
from legos_train.model import tinker
from legos_train.model.policy import LoRAPolicy

BASE, KEY, URL = "stub/tiny", "tml-stub", "http://stub:1"
ALPHA = 32.0


class Server:
    """Weights and what was saved of them; it outlives its clients."""

    def __init__(
        self, reduction: str = "sum", *, clips: bool = True, frozen: bool = True, losses: tuple[str, ...] = ()
    ):
        self.reduction, self.clips, self.frozen, self.losses = reduction, clips, frozen, losses
        self.model, self.tokenizer, _ = load("tiny")
        self.engine = Engine(self.model, self.tokenizer)
        self.count, self.lock = itertools.count(), threading.RLock()
        self.trainers: dict[str, Trainer] = {}
        self.saved: dict[str, dict[str, Any]] = {}
        self.states: dict[str, Any] = {}
        self.deleted: list[str] = []
        self.sampled_after_deletion: list[str] = []
        self.calls: list[int] = []
        self.failing: Exception | None = None

    def fetch(self, url: str, key: str | None, seconds: float) -> bytes:
        """In place of HTTP."""
        assert key == KEY
        if url.endswith("/get_server_capabilities"):
            return json.dumps({"supported_models": [{"model_name": BASE}]}).encode()
        model, rest = url.partition("/training_runs/")[2].split("/checkpoints/")
        path = f"tinker://{model}/{rest.removesuffix('/archive')}"
        matrices = {
            f"base_model.model.{name.rpartition('.')[0]}.lora_{name[-1].upper()}.weight": a.T
            for name, a in self.saved[path].items()
        }
        rank = next(iter(self.saved[path].values())).shape
        out = io.BytesIO()
        with tarfile.open(fileobj=out, mode="w") as tar:
            files = {
                "adapter_config.json": json.dumps({"r": min(rank), "lora_alpha": ALPHA, "peft_type": "LORA"}).encode(),
                "adapter_model.safetensors": tensors.to_bytes({n: mx.contiguous(a) for n, a in matrices.items()}),
            }
            for name, data in files.items():
                info = tarfile.TarInfo(f"./{name}")
                info.size = len(data)
                tar.addfile(info, io.BytesIO(data))
        return out.getvalue()

    def sdk(self) -> Any:
        """What `import tinker` gives."""
        types = SimpleNamespace(
            Datum=lambda **given: SimpleNamespace(**given),
            ModelInput=SimpleNamespace(from_ints=list),
            TensorData=SimpleNamespace(from_numpy=lambda a: SimpleNamespace(data=np.array(a))),
            SamplingParams=lambda **given: SimpleNamespace(**given),
            AdamParams=lambda **given: SimpleNamespace(**given),
        )
        return SimpleNamespace(__version__="0.25.0", types=types, ServiceClient=lambda **_: Client(self))


def install(patch: pytest.MonkeyPatch, server: Server) -> Server:
    """Makes the server what `--backend tinker` meets."""
    patch.setenv("TINKER_API_KEY", KEY)
    patch.setattr("legos_train.model.tinker.service.find_sdk", server.sdk)
    patch.setattr("legos_train.model.tinker.service._fetch", server.fetch)
    assert tinker.Service
    return server


def done(value: Any) -> Future[Any]:
    future: Future[Any] = Future()
    if isinstance(value, Exception):
        future.set_exception(value)
    else:
        future.set_result(value)
    return future


class Client:
    def __init__(self, server: Server):
        self.server = server

    def create_lora_training_client(self, base_model: str, rank: int, seed: int, train_unembed: bool) -> Trainer:
        assert base_model == BASE and not train_unembed
        return Trainer(self.server, rank, seed)

    def create_training_client_from_state_with_optimizer(self, path: str) -> Trainer:
        rank, weights, moments = self.server.states[path]
        trainer = Trainer(self.server, rank, 0)
        trainer.policy.load(weights)
        trainer.optimizer.state = moments
        return trainer

    def create_sampling_client(self, model_path: str | None = None, base_model: str | None = None) -> Sampler:
        assert base_model in (None, BASE) and (model_path is None or model_path in self.server.saved)
        return Sampler(self.server, model_path)

    def create_rest_client(self) -> Any:
        return SimpleNamespace(delete_checkpoint_from_tinker_path=lambda path: done(self.server.deleted.append(path)))


class Sampler:
    def __init__(self, server: Server, path: str | None):
        self.server, self.path = server, path

    def _adapter(self) -> str | None:
        if self.path is None:
            return None
        trainer = self.server.trainers[self.path.split("/")[2]]
        weights = self.server.saved[self.path] if self.server.frozen else trainer.policy.trainable()
        self.server.engine.publish("now", weights, scale=trainer.policy.lora.scale, version=next(self.server.count))
        return "now"

    def sample(self, prompt: list[int], num_samples: int, sampling_params: Any) -> Future[Any]:
        with self.server.lock:
            return done(self.server.failing or self._sample(prompt, num_samples, sampling_params))

    def _sample(self, prompt: list[int], num_samples: int, sampling_params: Any) -> Any:
        self.server.calls.append(num_samples)
        if self.path in self.server.deleted:
            self.server.sampled_after_deletion.append(self.path)
        q, engine = sampling_params, self.server.engine
        adapter = self._adapter()
        numbers = [
            engine.submit(
                Request(
                    prompt,
                    SamplingParams(
                        max_tokens=q.max_tokens, temperature=q.temperature, seed=q.seed + i, stop_ids=frozenset(q.stop)
                    ),
                    adapter,
                )
            )
            for i in range(num_samples)
        ]
        found: dict[int, Any] = {}
        while len(found) < len(numbers):
            found |= {c.request_id: c for c in engine.step()}
        said = [found[number] for number in numbers]
        sequences = [SimpleNamespace(tokens=c.tokens, logprobs=c.logprobs, stop_reason=c.finish_reason) for c in said]
        return SimpleNamespace(sequences=sequences)

    def compute_logprobs(self, prompt: list[int]) -> Future[Any]:
        with self.server.lock:
            values = self.server.engine.score([prompt[:1]], [prompt[1:]], adapter=self._adapter())[0]
        return done([None, *map(float, values)])


class Trainer:
    def __init__(self, server: Server, rank: int, seed: int):
        self.server, self.rank = server, rank
        self.model_id = f"model_{next(server.count)}"
        server.trainers[self.model_id] = self
        self.policy = LoRAPolicy(server.model, LoRASettings(rank=rank, scale=ALPHA / rank), seed=seed)
        self.optimizer = optim.AdamW(learning_rate=0.0, bias_correction=True)
        self.optimizer.init(self.policy.trainable())
        self.grads: Any = None

    def forward(self, data: list[Any], loss: str) -> Future[Any]:
        return self._pass(data, loss, {}, backward=False)

    def forward_backward(self, data: list[Any], loss: str, loss_fn_config: Any) -> Future[Any]:
        if self.server.losses and loss not in self.server.losses:
            return done(ValueError(f"unknown loss {loss}"))
        return self._pass(data, loss, loss_fn_config or {}, backward=True)

    def _pass(self, data: list[Any], loss: str, limits: dict[str, float], *, backward: bool) -> Future[Any]:
        with self.server.lock:
            return done(self._computed(data, loss, limits, backward))

    def _computed(self, data: list[Any], loss: str, limits: dict[str, float], backward: bool) -> Any:
        lengths = [len(d.model_input) for d in data]
        width = max(lengths)

        def column(name: str) -> mx.array:
            rows = [np.pad(d.loss_fn_inputs[name].data, (0, width - n)) for d, n in zip(data, lengths)]
            return mx.array(np.stack(rows))

        tokens = mx.array(np.stack([np.pad(d.model_input, (0, width - n)) for d, n in zip(data, lengths)]))
        target, old, advantages = column("target_tokens"), column("logprobs"), column("advantages")
        divisor = {
            "sum": np.ones(len(data)),
            "mean over sequences of the mean": np.array(lengths) * len(data),
            "mean over tokens": np.full(len(data), sum(lengths)),
            "mean over sequences of the sum": np.full(len(data), len(data)),
        }[self.server.reduction]
        low, high = limits.get("clip_low_threshold", 0.8), limits.get("clip_high_threshold", 1.2)
        seen: dict[str, mx.array] = {}

        def total(model: nn.Module) -> mx.array:
            logits = model(tokens).astype(mx.float32)
            logprobs = logits - mx.logsumexp(logits, axis=-1, keepdims=True)
            new = mx.take_along_axis(logprobs, target[..., None], axis=-1)[..., 0]
            seen["new"] = new
            ratio = mx.exp(mx.where(advantages == 0, 0, new - old))
            clipped = mx.clip(ratio, low, high)
            own = {
                "importance_sampling": ratio * advantages,
                "ppo": mx.minimum(ratio * advantages, clipped * advantages),
                "cispo": mx.stop_gradient(clipped) * advantages * new,
            }[loss]
            return -mx.sum(own.sum(axis=1) / mx.array(divisor.astype(np.float32)))

        if backward:
            _, grads = nn.value_and_grad(self.policy.model, total)(self.policy.model)
            flat = dict(nn.utils.tree_flatten(grads))
            self.grads = flat if self.grads is None else {name: self.grads[name] + g for name, g in flat.items()}
        else:
            total(self.policy.model)
        new = np.array(seen["new"])
        outputs = [{"logprobs": SimpleNamespace(data=row[:n].tolist())} for row, n in zip(new, lengths)]
        return SimpleNamespace(loss_fn_outputs=outputs)

    def optim_step(self, p: Any) -> Future[Any]:
        with self.server.lock:
            return done(SimpleNamespace(metrics={"grad_norm": self._step(p)}))

    def _step(self, p: Any) -> float:
        norm = float(np.sqrt(sum(float(mx.sum(g * g).item()) for g in self.grads.values())))
        if self.server.clips and p.grad_clip_norm and norm > p.grad_clip_norm:
            self.grads = {name: g * (p.grad_clip_norm / norm) for name, g in self.grads.items()}
        o = self.optimizer
        o.learning_rate, o.betas, o.eps, o.weight_decay = p.learning_rate, [p.beta1, p.beta2], p.eps, p.weight_decay
        self.policy.load(o.apply_gradients(self.grads, self.policy.trainable()))
        self.grads = None
        return norm

    def save_weights_for_sampler(self, name: str) -> Future[Any]:
        path = f"tinker://{self.model_id}/sampler_weights/{name}"
        self.server.saved[path] = self.policy.trainable()
        return done(SimpleNamespace(path=path))

    def save_state(self, name: str) -> Future[Any]:
        path = f"tinker://{self.model_id}/weights/{name}"
        moments = {k: dict(v) if isinstance(v, dict) else mx.array(v) for k, v in self.optimizer.state.items()}
        self.server.states[path] = (self.rank, self.policy.trainable(), moments)
        return done(SimpleNamespace(path=path))
