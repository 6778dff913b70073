"""Policy-gradient losses as pure functions on arrays.

Shapes: K sites (distinct contexts), V vocabulary, M sampled tokens; see batch/. All logarithms are natural, all
log-probabilities at temperature 1. `old` are the log-probabilities the sampler recorded, `new` those of the policy
being trained, `start` those of the policy at the start of the optimiser step, `A` the advantages, and
`r = exp(new - old)` the probability ratio of a token.

`LOSSES` holds the losses of a token by name; the docs have a page for each, with its equation and source.

For samples that are stale, or from an engine whose numerics differ from the trainer's: with `truncate_ratio` C the
ratio becomes `exp(new - start)` and the token weighs `min(exp(start - old), C)`; with `mask_ratio` turns whose
geometric mean of `exp(start - old)` is too far from 1 leave the loss (IcePop's rule, arXiv 2510.18855, on whole turns).

Penalties added to it, each weighted like the tokens themselves: KL to a reference policy, `"exact"` over the full
vocabulary at each context or `"k3"` from the sampled token alone (Schulman, "Approximating KL divergence", 2020), the
negative entropy, and a price for illegal answers (`legality`).
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
