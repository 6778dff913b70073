"""The losses: pure functions of arrays (M,). Importing this file loads no MLX, so that help needs none."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from legos_train.loss.corrections import turn_index
from legos_train.loss.token_loss import LOSSES as LOSSES  # noqa: PLC0414
from legos_train.loss.token_loss import loss
from legos_train.settings import Option

if TYPE_CHECKING:
    import mlx.core as mx

ClipLow = Annotated[float, Field(gt=0, le=1, description="the probability ratio is clipped at 1 minus this.")]
ClipHigh = Annotated[float, Field(gt=0, description="the probability ratio is clipped at 1 plus this.")]
CLIP = 0.2
EXPLORE = Option(
    Annotated[float, Field(ge=0, lt=1)],
    0.0,
    "weight decision points as if every player made a uniformly random move with this probability, so that points the "
    "players now avoid are still learned. The values of actions do not change.",
)
MIRROR_FLOOR = Option(
    Annotated[float, Field(ge=0, lt=0.5)],
    0.0,
    "a step treats every legal action as at least this likely. Actions that have become rare can then recover if they "
    "are worth it; those that deserve to be rare are played about this often.",
)


@loss()
def importance_sampling(new: mx.array, old: mx.array, advantages: mx.array) -> mx.array:
    r"""The advantage, times how much likelier the token has become since it was sampled.

    $$L = -r A \qquad r = p\,/\,p_0$$

    p is the probability of a token under the policy being trained, $p_0$ under the one that sampled it. On fresh
    samples r is 1, and the gradient is that of REINFORCE.

    When: a batch is used for one update and is fresh, so that no clip would act; or with `truncate_ratio`, which bounds
    the weight of stale samples.

    When not: you take many updates on one batch. Nothing restrains a token whose ratio has grown large.

    Source: importance sampling of REINFORCE (Williams 1992, "Simple statistical gradient-following algorithms", Machine
    Learning 8).

    Args:
        new: log-probabilities under the policy being trained, (M,).
        old: those that the sampler recorded, (M,).
        advantages: (M,).
    """
    from inference.forward import fastmath

    return -fastmath.exp(new - old) * advantages


@loss(all_actions=True, before={"explore": EXPLORE})
def expected(new: mx.array, old: mx.array, advantages: mx.array) -> mx.array:
    r"""Every legal action of every decision point, weighted by its probability: the policy gradient without sampling.

    $$L = -\sum_I w(I) \sum_a p_0(a)\,\frac{p(a)}{p_0(a)}\,A(I, a)$$

    I is a decision point of the game, w(I) how often play reaches it, and A(I, a) how much action a gains there over
    the policy's mean, all computed from the game's tree and the policy's own probabilities. Where `importance_sampling`
    estimates from sampled actions, this sums over all of them. An answer that is not an action counts as the worst
    return of the game, which keeps the policy's mass on legal ones. The played episodes are logged but not trained on,
    so a small batch is enough.

    When: games that can be solved, with each prompt an information set. With a moving magnet (`magnet_every`) under a
    constant `kl` the last policy then comes within a NashConv of 0.001 in Kuhn poker (`--preset kuhn_expected`), and
    the run serves as a yardstick for sampled ones.

    When not: anything larger, or with hidden reasoning before the action: it is refused there.

    Source: expected policy gradients, arXiv 1706.05374; mean actor-critic, arXiv 1709.00503.

    Args:
        new: log-probabilities under the policy being trained, (M,).
        old: those under the policy at the start of the step, (M,).
        advantages: (M,).
    """
    return importance_sampling(new, old, advantages)


@loss(all_actions=True, mirror=True, before={"explore": EXPLORE, "mirror_floor": MIRROR_FLOOR})
def mirror(new: mx.array, advantages: mx.array, mirror_step: Annotated[float, Field(gt=0)] = 1.0) -> mx.array:
    r"""Every legal action of every decision point, imitated as often as a step of mirror descent would play it.

    $$L = -\frac{1}{\eta} \sum_I w(I) \sum_a q(a) \log p(a) \qquad q(a) \propto p_0(a)\,e^{\eta A(I, a)}$$

    I, w(I) and A(I, a) are those of `expected`, $p_0$ is the policy at the start of the step (in the target at least
    `mirror_floor`), and $\eta$ is `mirror_step`. For a small $\eta$ the first gradient is that of `expected`; but q
    stays fixed while p is fitted to it, so several passes (`optim.epochs`) bring the whole policy to one target,
    whereas those of `expected` would keep pushing. With the KL to a reference this is magnetic mirror descent, whose
    last policy settles where a policy gradient cycles. q covers legal actions only.

    When: games that can be solved, with two to four `optim.epochs`. `--preset leduc_expected` uses it.

    When not: as for `expected`. A step costs as many passes as it has epochs.

    Source: magnetic mirror descent, arXiv 2206.05825; the fit of a network to its step as in MDPO, arXiv 2005.09814,
    and MPO, arXiv 1806.06920.

    Args:
        new: log-probabilities under the policy being trained, (M,).
        advantages: log(q / p0) of the token's action, divided by `mirror_step`, (M,).
        mirror_step: step size of mirror descent. Use smaller steps with smaller KL weights, or the policy cycles.
    """
    from inference.forward import fastmath

    return -fastmath.exp(mirror_step * advantages) * new / mirror_step


@loss("pushed")
def ppo(
    new: mx.array, old: mx.array, advantages: mx.array, clip_low: ClipLow = CLIP, clip_high: ClipHigh = CLIP
) -> mx.array:
    r"""The advantage times the probability ratio, clipped: no gradient from a token that has already moved far enough.

    $$L = -\min\left(r A,\ \mathrm{clip}(r,\,1 - l,\,1 + h)\,A\right) \qquad r = p\,/\,p_0$$

    p is the probability of a token under the policy being trained, $p_0$ under the one that sampled it; l and h are
    `clip_low` and `clip_high`. The clip acts in the direction the advantage pushes, and never holds a token that has
    moved the wrong way.

    When: the default. You take several updates per batch (`optim.epochs`, `optim.minibatches`), or samples are a few
    steps old.

    When not: turns have hundreds of tokens: each token has its own ratio and noise adds up; see `gspo`. Rare tokens
    that the clip holds get no gradient at all; see `cispo`.

    Source: Schulman et al. 2017, "Proximal policy optimization", arXiv 1707.06347; `clip_high` above `clip_low`: DAPO,
    arXiv 2503.14476.

    Args:
        new: log-probabilities under the policy being trained, (M,).
        old: those that the sampler recorded, (M,).
        advantages: (M,).
        clip_low: the ratio is held above 1 minus this.
        clip_high: the ratio is held below 1 plus this.
    """
    from inference.forward import fastmath

    return _clipped(fastmath.exp(new - old), advantages, clip_low, clip_high)


@loss("outside")
def cispo(
    new: mx.array, old: mx.array, advantages: mx.array, clip_low: ClipLow = CLIP, clip_high: ClipHigh = CLIP
) -> mx.array:
    r"""The log-likelihood, weighted by advantage and clipped ratio: a clipped token keeps a bounded gradient.

    $$L = -\mathrm{sg}\left(\mathrm{clip}(r,\,1 - l,\,1 + h)\right)\,A\,\log p \qquad r = p\,/\,p_0$$

    p is the probability of a token under the policy being trained, $p_0$ under the one that sampled it. sg stops the
    gradient: the ratio is a weight, and only log p is differentiated.

    When: tokens that were unlikely when sampled matter, such as turning points of a chain of thought. `ppo` drops them
    once their ratio is beyond the clip.

    When not: an update should stop at the clip. With this loss it continues, but no faster.

    Source: MiniMax-M1, arXiv 2506.13585.

    Args:
        new: log-probabilities under the policy being trained, (M,).
        old: those that the sampler recorded, (M,).
        advantages: (M,).
        clip_low: the ratio is held above 1 minus this.
        clip_high: the ratio is held below 1 plus this.
    """
    import mlx.core as mx

    from inference.forward import fastmath

    ratio = mx.clip(fastmath.exp(new - old), 1.0 - clip_low, 1.0 + clip_high)
    return -mx.stop_gradient(ratio) * advantages * new


@loss(imitates=True)
def sft(new: mx.array) -> mx.array:
    r"""The negative log-likelihood of the sampled tokens. Advantages play no part.

    $$L = -\log p$$

    Every action left in the batch is imitated equally, so remove those that should not be: `filter.keep` does that.

    When: training on survivors, with `filter.keep = "winners"` or `"success"`; a warm start for self-play, passed on
    by `init_adapter`.

    When not: failures should teach something. This loss never makes any action less likely.

    Source: maximum likelihood; on the survivors of a filter it is rejection sampling, as in STaR, arXiv 2203.14465.

    Args:
        new: (M,).
    """
    return -new


@loss("pushed", by_turn=True)
def gspo(
    new: mx.array,
    old: mx.array,
    advantages: mx.array,
    sequence: NDArray[np.int32],
    *,
    clip_low: ClipLow = CLIP,
    clip_high: ClipHigh = CLIP,
    lengths: NDArray[np.int32] | None = None,
) -> mx.array:
    r"""`ppo` with one ratio per turn: the geometric mean of the ratios of its tokens.

    $$L = -\min\left(s A,\ \mathrm{clip}(s,\,1 - l,\,1 + h)\,A\right) \qquad s = (r_1 r_2 \cdots r_n)^{1/n}$$

    r is the ratio of a token as in `ppo`. All n tokens of a turn are clipped together, or not at all.

    When: turns of many tokens with one reward for the whole turn. The paper reports it for mixture-of-experts models,
    whose token ratios are noisy.

    When not: turns of one or a few tokens, where it is nearly `ppo`. A mean over many tokens stays close to 1, so the
    clip has to be far narrower than the default of 0.2: the paper uses 3e-4 and 4e-4.

    Source: Zheng et al. 2025, "Group sequence policy optimization", arXiv 2507.18071.

    Args:
        new: log-probabilities under the policy being trained, (M,).
        old: those that the sampler recorded, (M,).
        advantages: (M,).
        sequence: (M,) the turn of each token.
        clip_low: the ratio is held above 1 minus this.
        clip_high: the ratio is held below 1 plus this.
        lengths: (M,) how many tokens the turn has, where some are not among the M; each of those counts as `new = old`.
    """
    import mlx.core as mx

    from inference.forward import fastmath

    index, sizes = turn_index(sequence, lengths)
    turn = mx.array(index)
    sums = mx.zeros((len(sizes),), dtype=new.dtype).at[turn].add(new - old)
    return _clipped(fastmath.exp((sums / mx.array(sizes).astype(new.dtype))[turn]), advantages, clip_low, clip_high)


def _clipped(ratio: mx.array, advantages: mx.array, clip_low: float, clip_high: float) -> mx.array:
    import mlx.core as mx

    return -mx.minimum(ratio * advantages, mx.clip(ratio, 1.0 - clip_low, 1.0 + clip_high) * advantages)
