"""The backends that a config can name. A new one is a folder in `legos_train/model` and a row here."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class BackendRow:
    """What the settings say of a backend, and where it is.

    Attributes:
        module: a `legos_train.model.backends.BackendModule`, imported when a run needs it.
        section: the section of its own settings.
        refused: settings that it has no use for, each with the error; what fits no backend's `Capabilities` is refused
            by these.
    """

    module: str
    section: str | None = None
    refused: tuple[tuple[str, str], ...] = ()


BACKENDS: dict[str, BackendRow] = {
    "mlx": BackendRow("legos_train.model.mlx_place"),
    "tinker": BackendRow(
        "legos_train.model.tinker.tinker_place",
        section="tinker",
        refused=(
            ("server.urls", "backend = 'tinker' samples at the service; leave out server.urls"),
            ("lora.layers", "the service trains all blocks; leave out lora.layers"),
            ("lora.targets", "the service trains all linear layers; leave out lora.targets"),
            ("learner", "several learners cannot be combined with backend = 'tinker'; remove one of the two"),
        ),
    ),
}
"""By the name that `backend` has in a config."""
