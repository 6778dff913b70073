"""LoRA adapters that live beside each other over one base model, each published version in a slot of its own.

LoRA (Hu et al. 2021): y = W x + scale * B A x. Every linear layer is wrapped (`slots.py`), and
slot 0 is the base model.

Publishing never touches a slot that requests are using: a new version takes a free slot, then the name is pointed at
it. Requests keep the version they were submitted under; a version that is neither current nor in use gives its slot
back. There are as many slots as that takes.

Weight names are mlx-lm's: `model.layers.0.self_attn.q_proj.lora_a` (in, rank) and `.lora_b` (rank, out).
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
