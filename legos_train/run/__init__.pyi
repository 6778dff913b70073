from .build import build as build
from .loop import train as train
from .parts import Parts as Parts
from .preflight.dry_run import estimate as estimate
from .trainer import Trainer as Trainer
