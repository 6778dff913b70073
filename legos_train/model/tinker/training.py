"""One training client: gradients, steps, states. It converts tokens and numbers to the SDK's types and back."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from legos_train.config import TrainConfig
from legos_train.model.tinker.data import SampledSequence
from legos_train.model.tinker.service import Service

ServiceCall = Callable[[str, Any], Any]


class Training:
    """Weights at a service.

    Args:
        service: where they are.
        config: rank, seed and loss.
        state: path from `save_state`; None: new weights.
        ask: `Service.begin` before the first step, `Service.wait` later.
    """

    def __init__(self, service: Service, config: TrainConfig, state: str | None = None, ask: ServiceCall | None = None):
        self.service, self.config = service, config
        self.ask = ask or service.begin
        if state is None:
            self.client = self.ask(
                f"make a LoRA of rank {config.lora.rank} on {service.base!r}",
                lambda: service.client.create_lora_training_client(
                    base_model=service.base, rank=config.lora.rank, seed=config.seed, train_unembed=False
                ),
            )
        else:
            self.client = self.ask(
                f"come back to {state}",
                lambda: service.client.create_training_client_from_state_with_optimizer(state),
            )

    def gradient(
        self, parts: Sequence[SampledSequence], old: Sequence[NDArray], scale: NDArray | None = None
    ) -> list[NDArray[np.float32]]:
        """Accumulates the gradient of some sequences for the next step.

        Args:
            parts: the sequences.
            old: (k,) of each, denominators of the ratios.
            scale: (B,) factors of the advantages.

        Returns:
            The log-probabilities (k,) of the sampled tokens of each.
        """
        scale = np.ones(len(parts)) if scale is None else scale
        data = [self._datum(part, o, part.advantages * s) for part, o, s in zip(parts, old, scale, strict=True)]
        loss = self.config.loss
        limits = {"clip_low_threshold": 1 - loss.clip_low, "clip_high_threshold": 1 + loss.clip_high}
        clip = None if loss.token_loss.holds == "nothing" else limits
        said = self.ask(
            f"compute the gradient of the loss {loss.name!r}",
            lambda: self.client.forward_backward(data, loss.name, loss_fn_config=clip).result(),
        )
        return _chosen(said, parts)

    def logprobs(self, parts: Sequence[SampledSequence]) -> list[NDArray[np.float32]]:
        """The log-probabilities (k,) of the sampled tokens of each sequence."""
        data = [self._datum(part, part.old, part.advantages) for part in parts]
        said = self.ask("compute log-probabilities", lambda: self.client.forward(data, "importance_sampling").result())
        return _chosen(said, parts)

    def step(self, learning_rate: float, **adam: float) -> dict[str, float]:
        """A step of AdamW; returns the server's metrics."""
        parameters = self.service.sdk.types.AdamParams(learning_rate=learning_rate, **adam)
        said = self.ask("take an optimiser step", lambda: self.client.optim_step(parameters).result())
        return dict(getattr(said, "metrics", None) or {})

    def save_for_sampling(self, name: str) -> str:
        """Saves the current weights; returns their path."""
        path = self.ask("save weights", lambda: self.client.save_weights_for_sampler(name).result()).path
        model, _, last = path.removeprefix("tinker://").partition("/")
        return path if "/" in last else f"tinker://{model}/sampler_weights/{last}"  # SkyRL 0.4 leaves the kind out

    def save_state(self, name: str) -> str:
        """Saves weights and optimiser; returns their path."""
        path: str = self.ask("save its state", lambda: self.client.save_state(name).result()).path
        return path

    def sampler(self, path: str) -> Any:
        """A sampling client of saved weights."""
        return self.ask("sample", lambda: self.service.client.create_sampling_client(model_path=path))

    def close(self) -> None:
        """Releases its slot at the service."""
        self.service.unload(self.client)

    def _datum(self, part: SampledSequence, old: NDArray, advantages: NDArray) -> Any:
        types = self.service.sdk.types

        def column(values: NDArray) -> Any:
            whole = np.zeros(len(part), dtype=np.float32)
            whole[part.cols] = values
            return types.TensorData.from_numpy(whole)

        return types.Datum(
            model_input=types.ModelInput.from_ints(part.tokens.tolist()),
            loss_fn_inputs={
                "target_tokens": types.TensorData.from_numpy(part.targets),
                "logprobs": column(old),
                "advantages": column(advantages),
            },
        )


def _chosen(said: Any, parts: Sequence[SampledSequence]) -> list[NDArray[np.float32]]:
    values = [np.asarray(output["logprobs"].data, dtype=np.float32) for output in said.loss_fn_outputs]
    return [value[part.cols] for value, part in zip(values, parts, strict=True)]
