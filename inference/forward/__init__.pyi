from . import blocks as blocks
from . import fastblas as fastblas
from . import fastmath as fastmath
from .choose import choose_forward as choose_forward
from .kv import capacity_for as capacity_for
from .mlx_forward import Forward as Forward
from .mlx_forward import Logits as Logits
from .threads import use_threads as use_threads
