from .gated_delta import chunked_gated_delta as chunked_gated_delta
from .install import install as install
from .install import quickly as quickly
from .ssd import chunked_ssd as chunked_ssd
