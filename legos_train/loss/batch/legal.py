"""Which tokens start or continue a legal action, at every token of a sampled action."""

from __future__ import annotations

from collections.abc import Callable, Sequence

Encode = Callable[[str], Sequence[int]]


class LegalTokens:
    """Numbered sets of tokens, filled as turns are processed. Games revisit positions, so results are cached.

    `encode` maps the text of an action to its token ids as the sampler would write it, with the end token if that
    should count as a legal continuation of a finished action. Raises ValueError for an action without tokens.
    """

    def __init__(self, encode: Encode) -> None:
        self._encode = encode
        self._codes: dict[str, tuple[int, ...]] = {}
        self._numbers: dict[tuple[int, ...], int] = {(): 0}
        self._seen: dict[tuple[tuple[str, ...], tuple[int, ...]], list[int]] = {}

    @property
    def sets(self) -> tuple[tuple[int, ...], ...]:
        """The sets by number, each ascending."""
        return tuple(self._numbers)

    def along(self, actions: Sequence[str], sampled: Sequence[int]) -> list[int]:
        """For each token of `sampled`, the number of the set it could have been drawn from; -1 without actions."""
        if not actions:
            return [-1] * len(sampled)
        key = (tuple(actions), tuple(sampled))
        if key not in self._seen:
            self._seen[key] = self._walk(*key)
        return self._seen[key]

    def _walk(self, actions: tuple[str, ...], sampled: tuple[int, ...]) -> list[int]:
        alive = [self._code(action) for action in actions]
        numbers = []
        for place, token in enumerate(sampled):
            alive = [code for code in alive if len(code) > place]
            options = tuple(sorted({code[place] for code in alive}))
            numbers.append(self._numbers.setdefault(options, len(self._numbers)))
            alive = [code for code in alive if code[place] == token]
        return numbers

    def _code(self, action: str) -> tuple[int, ...]:
        if action not in self._codes:
            self._codes[action] = tuple(int(token) for token in self._encode(action))
            if not self._codes[action]:
                raise ValueError(f"the legal action {action!r} has no tokens; `legal` must give at least one id")
        return self._codes[action]
