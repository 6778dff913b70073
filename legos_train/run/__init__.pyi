from .build import build as build
from .dry_run import estimate as estimate
from .loop import train as train
from .parts.parts import Parts as Parts
from .trainer import Trainer as Trainer
