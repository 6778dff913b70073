"""Which actions are legal, for games whose state tells. Names are what stands inside the brackets.

`moves(game)` gives None where any text may be said, where the list would show what a blind variant hides, and where it
would have more than `listing.MOST` names, since prompts repeat it.
"""

from legos_envs.textarena.legal import board_moves, card_moves, listing, puzzle_moves, vote_moves
from legos_envs.textarena.legal.listing import moves

__all__ = ["board_moves", "card_moves", "listing", "moves", "puzzle_moves", "vote_moves"]
