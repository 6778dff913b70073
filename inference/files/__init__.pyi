from . import adapter_files as adapter_files
from . import adapter_folder as adapter_folder
from . import peft_files as peft_files
from . import tensors as tensors
from .adapter_files import adapter_tensors as adapter_tensors
from .adapter_files import read_adapter as read_adapter
