from .loop import train as train
from .preflight import estimate as estimate
from .trainer import Trainer as Trainer
