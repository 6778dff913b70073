"""Per-token losses, and the correction for samples from another policy. All are pure functions of arrays (M,)."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, TypeVar

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    import mlx.core as mx

Floats = NDArray[np.float64]


class Samples(NamedTuple):
    """The inputs of a loss: arrays (M,) over sampled tokens, and its settings."""

    new: mx.array
    old: mx.array
    advantages: mx.array
    clip_low: float
    clip_high: float
    sequence: NDArray[np.int32]
    lengths: NDArray[np.int32]
    mirror_step: float = 1.0


@dataclass(frozen=True, slots=True)
class TokenLoss:
    """A row of `LOSSES`: the loss (M,) of each token, and properties that other code needs.

    Attributes:
        function: takes the fields of `Samples` that its parameters name; its docstring is the page in the docs.
        holds: which ratios the clip holds: none; those that their advantage pushes further, which then have no
            gradient; or all outside of it, whose gradient is bounded.
        by_turn: whether all tokens of a turn share one ratio.
        imitates: whether advantages and the sampler's probabilities play no part.
        all_actions: whether it covers every action of a decision point, not only the sampled one.
        mirror: whether these advantages are those of a target policy, see `mirror`.
    """

    function: Callable[..., mx.array]
    holds: Literal["nothing", "pushed", "outside"] = "nothing"
    by_turn: bool = False
    imitates: bool = False
    all_actions: bool = False
    mirror: bool = False

    def __call__(self, samples: Samples) -> mx.array:
        """The loss of each token, (M,)."""
        return self.function(**{name: getattr(samples, name) for name in inspect.signature(self.function).parameters})


LOSSES: dict[str, TokenLoss] = {}
"""The losses by name. Importing this file loads no MLX, so that settings and help can be read without it."""
Function = TypeVar("Function", bound=Callable[..., Any])


def loss(
    holds: Literal["nothing", "pushed", "outside"] = "nothing",
    *,
    by_turn: bool = False,
    imitates: bool = False,
    all_actions: bool = False,
    mirror: bool = False,
) -> Callable[[Function], Function]:
    """Registers a function as the loss of its name, under which settings, help and docs find it. See `TokenLoss`."""

    def declare(function: Function) -> Function:
        LOSSES[function.__name__] = TokenLoss(function, holds, by_turn, imitates, all_actions, mirror)
        return function

    return declare


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


@loss(all_actions=True)
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


@loss(all_actions=True, mirror=True)
def mirror(new: mx.array, advantages: mx.array, mirror_step: float) -> mx.array:
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
        mirror_step: the step of mirror descent, above 0.
    """
    from inference.forward import fastmath

    return -fastmath.exp(mirror_step * advantages) * new / mirror_step


@loss("pushed")
def ppo(new: mx.array, old: mx.array, advantages: mx.array, clip_low: float, clip_high: float) -> mx.array:
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
def cispo(new: mx.array, old: mx.array, advantages: mx.array, clip_low: float, clip_high: float) -> mx.array:
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
    clip_low: float,
    clip_high: float,
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

    index, sizes = _turns(sequence, lengths)
    turn = mx.array(index)
    sums = mx.zeros((len(sizes),), dtype=new.dtype).at[turn].add(new - old)
    return _clipped(fastmath.exp((sums / mx.array(sizes).astype(new.dtype))[turn]), advantages, clip_low, clip_high)


def turn_means(values: NDArray, sequence: NDArray[np.int32], lengths: NDArray[np.int32] | None = None) -> Floats:
    """Means over turns of values (M,), given back to each token (M,); `lengths` as in `gspo`."""
    index, sizes = _turns(sequence, lengths)
    return np.asarray((np.bincount(index, values, len(sizes)) / sizes)[index], dtype=np.float64)


def _turns(sequence: NDArray, lengths: NDArray | None) -> tuple[NDArray[np.int64], NDArray]:
    """For each token the place of its turn, and the lengths of the turns."""
    _, first, index, sizes = np.unique(sequence, return_index=True, return_inverse=True, return_counts=True)
    return index.reshape(-1), sizes if lengths is None else lengths[first]


def truncated_weights(gap: NDArray, limit: float) -> Floats:
    r"""A weight for stale samples: how much likelier a token is now than when it was sampled, cut off at C.

    $$A \leftarrow \min(p_1 / p_0,\ C)\,A \qquad r = p\,/\,p_1$$

    $p_0$ is the probability of the token when it was sampled, $p_1$ at the start of the optimiser step, p now. The loss
    then measures its own ratio from there, and its clip has nothing to do with staleness. A token that the sampler
    found ten times less likely does not count ten times. With `gspo` there is one weight per turn.

    When: episodes are generated during training, or trained on more than once; or the engine's numerics differ from the
    trainer's.

    When not: fresh samples from the same weights. All weights are 1 then. The losses `sft` and `mirror` refuse it.

    Source: Ionides 2008, "Truncated importance sampling", J. Comput. Graph. Stat. 17(2).

    Args:
        gap: `start - old`, (M,).
        limit: C, above 0.
    """
    with np.errstate(over="ignore"):
        return np.minimum(np.exp(np.asarray(gap, dtype=np.float64)), limit)


def inside(gap: NDArray, low: float, high: float) -> NDArray[np.bool_]:
    r"""A mask for stale turns: those whose probability has changed too much are left out of the loss.

    $$low \le (q_1 q_2 \cdots q_n)^{1/n} \le high \qquad q = p_1 / p_0$$

    $p_0$ is the probability of a token when it was sampled, $p_1$ at the start of the optimiser step; n tokens make the
    turn. The other turns keep their weights, so a batch with one turn left does not take a full step on it.

    When: as for `truncate_ratio`, if samples that are far off should not count at all. Both may be on.

    When not: fresh samples from the same weights. Nothing is left out then. The losses `sft` and `mirror` refuse it.

    Source: IcePop, arXiv 2510.18855; there token by token, here whole turns.

    Args:
        gap: (M,) the mean of `start - old` over the turn of each token.
        low: at most 1.
        high: at least 1.
    """
    with np.errstate(divide="ignore"):
        return (gap >= np.log(low)) & (gap <= np.log(high))


def _clipped(ratio: mx.array, advantages: mx.array, clip_low: float, clip_high: float) -> mx.array:
    import mlx.core as mx

    return -mx.minimum(ratio * advantages, mx.clip(ratio, 1.0 - clip_low, 1.0 + clip_high) * advantages)
