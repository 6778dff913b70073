"""What a loss is: a function of arrays over sampled tokens, registered under its name."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, TypeVar

import numpy as np
from numpy.typing import NDArray

from legos_train.settings import Option, options_declared

if TYPE_CHECKING:
    import mlx.core as mx


class Samples(NamedTuple):
    """The inputs of a loss besides its options: arrays (M,) over sampled tokens."""

    new: mx.array
    old: mx.array
    advantages: mx.array
    sequence: NDArray[np.int32]
    lengths: NDArray[np.int32]


@dataclass(frozen=True, slots=True)
class TokenLoss:
    """A row of `LOSSES`: the loss (M,) of each token, and properties that other code needs.

    Attributes:
        function: takes the fields of `Samples` that its parameters name, and its options; its docstring is the page in
            the docs.
        holds: which ratios the clip holds: none; those that their advantage pushes further, which then have no
            gradient; or all outside of it, whose gradient is bounded.
        by_turn: whether all tokens of a turn share one ratio.
        imitates: whether advantages and the sampler's probabilities play no part.
        all_actions: whether it covers every action of a decision point, not only the sampled one.
        mirror: whether these advantages are those of a target policy, see `mirror`.
        options: settings of `[loss]` that no other loss reads, unless it declares them too.
    """

    function: Callable[..., mx.array]
    holds: Literal["nothing", "pushed", "outside"] = "nothing"
    by_turn: bool = False
    imitates: bool = False
    all_actions: bool = False
    mirror: bool = False
    options: Mapping[str, Option] = field(default_factory=dict)

    def __call__(self, samples: Samples, **options: Any) -> mx.array:
        """The loss of each token, (M,)."""
        given = {**samples._asdict(), **options}
        parameters = inspect.signature(self.function).parameters
        return self.function(**{name: value for name, value in given.items() if name in parameters})


LOSSES: dict[str, TokenLoss] = {}
"""The losses by name; see `loss`."""
Function = TypeVar("Function", bound=Callable[..., Any])


def loss(
    holds: Literal["nothing", "pushed", "outside"] = "nothing",
    *,
    by_turn: bool = False,
    imitates: bool = False,
    all_actions: bool = False,
    mirror: bool = False,
    before: Mapping[str, Option] | None = None,
) -> Callable[[Function], Function]:
    """Registers a function as the loss of its name, under which settings, help and docs find it.

    Its arguments are fields of `Samples`, and options with their defaults. `before` are options that act on the samples
    before they reach it. For the rest see `TokenLoss`.
    """

    def declare(function: Function) -> Function:
        name = function.__name__
        options = {**(before or {}), **options_declared("loss", name, function, Samples._fields)}
        LOSSES[name] = TokenLoss(function, holds, by_turn, imitates, all_actions, mirror, options)
        return function

    return declare
