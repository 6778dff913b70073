"""Loss and gradient of a batch, part by part."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import mlx.core as mx
import numpy as np
from numpy.typing import NDArray

from legos_train.loss import LossSettings, SiteStates, metrics, objective
from legos_train.loss.batch import Batch
from legos_train.model.lora import Weights, grad_norm
from legos_train.model.policy import LoRAPolicy
from legos_train.model.ranks import World
from legos_train.model.recompute import Outcome


def prepare(
    policy: LoRAPolicy,
    batch: Batch,
    settings: LossSettings,
    *,
    max_tokens: int | None = None,
    world: World | None = None,
) -> Batch:
    """The batch as the first of several updates needs it: with the log-probabilities of the current policy if the
    settings compare them with the sampler's; else the batch itself.

    A single update does not need it: `loss_and_grad` treats a batch without them as the start. With a `world`
    every rank computes its share.
    """
    if not settings.needs_start or batch.start_logprobs is not None or not len(batch):
        return batch
    if world is None:
        return batch.with_start(policy.logprobs(batch, max_tokens=max_tokens))
    mine, own = world.part(batch)
    start = np.zeros(len(batch), dtype=np.float32)
    if len(mine):
        start[own] = policy.logprobs(mine, max_tokens=max_tokens)
    return batch.with_start(np.array(world.total({"start": mx.array(start)})["start"]))


def loss_and_grad(
    policy: LoRAPolicy,
    batch: Batch,
    settings: LossSettings,
    *,
    max_tokens: int | None = None,
    policy_version: int | None = None,
    world: World | None = None,
) -> tuple[float, Weights, dict[str, Any]]:
    """Loss of the batch, its gradient by weight name, and numbers to log.

    `max_tokens` bounds the tokens computed at once, see `Batch.parts`; it affects the result only through rounding.
    `numbers["finite"]` is 1.0, or 0.0 if the loss or the gradient is not finite: the caller decides what to do then.
    The other numbers are those of `loss.metrics` plus loss, grad_norm, entropy, kl (if there is a reference) and
    entropy_bonus (if there is a bonus).
    With a `world` every rank computes its share, and all return the result for the whole batch.
    Raises ValueError for a batch without sampled tokens.
    """
    if not len(batch):
        c = batch.counters
        raise ValueError(
            f"the batch has no sampled tokens to train on; dropped turns: {c.dropped}, forced tokens: {c.forced_tokens}"
        )

    total = 0.0
    grads: Weights = {}
    sums: dict[str, float] = {}
    new: list[NDArray[np.float32]] = []
    order: list[NDArray[np.int64]] = []
    mine, own = (batch, np.arange(len(batch))) if world is None else world.part(batch)
    for one, places in mine.parts(max_tokens) if len(mine) else ():
        # The objective would otherwise evaluate its own graph, which then keeps all logits.
        early = settings.needs_start and one.start_logprobs is None and not policy.fits(one)
        part = one.with_start(policy.logprobs(one)) if early else one
        full = settings.kl_estimator == "exact"
        reference = policy.reference(part, full=full, base=settings.magnet_base) if settings.kl else None

        def compute(states: SiteStates, part: Batch = part, reference: mx.array | None = reference) -> Outcome:
            return objective(states, part, settings, reference)

        (loss, seen), flat = policy.value_and_grad(part, compute)
        grads = {name: grads[name] + value for name, value in flat.items()} if grads else flat
        mx.eval(loss, seen, grads)
        total += float(np.asarray(loss))
        new.append(np.array(seen.pop("new")))
        order.append(own[places])
        for name, value in seen.items():
            sums[name] = sums.get(name, 0.0) + float(np.asarray(value))
    logprobs = np.zeros(len(batch), dtype=np.float32)
    if order:
        logprobs[np.concatenate(order)] = np.concatenate(new)
    if world is not None:
        grads = grads or {name: mx.zeros_like(weight) for name, weight in policy.trainable().items()}
        summed = world.total(grads | {"": mx.array(logprobs)})  # the other ranks have zeros here
        logprobs = np.array(summed.pop(""))
        grads, sums = summed, world.total_numbers({"loss": total, **sums})
        total = sums.pop("loss")
    norm = grad_norm(grads)
    numbers = {"loss": total, "grad_norm": norm, **sums, **metrics(logprobs, batch, settings, policy_version)}
    numbers["finite"] = float(np.isfinite(total) and np.isfinite(norm))
    return total, grads, numbers


def clip_grads(grads: Mapping[str, mx.array], max_norm: float) -> tuple[Weights, float]:
    """Gradients scaled down to `max_norm` if they are longer, and their norm before. Unchanged if not finite."""
    if not max_norm > 0:
        raise ValueError(f"max_norm must be positive, got {max_norm}")
    norm = grad_norm(grads)
    if not np.isfinite(norm) or norm <= max_norm:
        return dict(grads), norm
    return {name: grad * (max_norm / norm) for name, grad in grads.items()}, norm
