from . import hub as hub
from . import peft as peft
from . import rows as rows
from .checkpoint_adapter import is_checkpoint as is_checkpoint
from .checkpoint_adapter import unpack as unpack
from .run_source import open_run as open_run
from .verifiers import write_package as write_package
