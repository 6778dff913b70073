"""Several LoRA adapters over one base model, each published version in its own slot.

LoRA (Hu et al. 2021): y = W x + scale * B A x. Every linear layer is wrapped (`slots.py`); slot 0 is the base model.

Publishing never touches a slot that requests are using: a new version takes a free slot, then the name is pointed at
it. Requests keep the version they were submitted under; a version that is neither current nor in use frees its slot.
The number of slots grows as needed.

Weight names are mlx-lm's: `model.layers.0.self_attn.q_proj.lora_a` (in, rank) and `.lora_b` (rank, out).
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
