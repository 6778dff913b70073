"""Legal actions, for games whose state determines them. Names are the contents of the brackets.

`moves(game)` returns None if any text is legal, if the list would reveal what a blind variant hides, or if it would
have more than `listing.MOST` names, since prompts repeat it.
"""

from legos_envs.textarena.legal import board_moves, card_moves, puzzle_moves, vote_moves  # noqa: F401  they fill the list
from legos_envs.textarena.legal.listing import moves

__all__ = ["moves"]
