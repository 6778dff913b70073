"""Episodes and advantages -> arrays to train on. Tokens are only arranged here, never sampled again.

**Rows.** The turns of one trajectory are laid end to end: a turn whose prompt starts with everything the previous turn
read and wrote continues that turn's row, any other starts a new row. Only the action tokens of trainable agents are
sampled tokens with an advantage; everything else is context.

**Each context is computed once.** In self-play on a small game a thousand turns are a few dozen distinct rows. What a
model computes for a sampled token depends only on the tokens before it, so equal rows are stored once, a row that is
a prefix of another is left out, and the last token of a row, which predicts nothing, is dropped. A *site* is one
distinct context in which something was sampled, the pair (row, column) whose hidden state predicts the next token.
Every sampled token points at its site. With K sites and M sampled tokens, K is often a hundredth of M, and the loss at
the M tokens is exact.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
