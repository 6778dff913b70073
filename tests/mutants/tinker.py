"""Mistakes in what a Tinker API is sent, and in what is believed of it."""

from __future__ import annotations

from tests.mutants.mutant import mutants

STUB = "tests/train/test_tinker.py"
SERVICE = "tests/train/test_tinker_service.py"

MUTANTS = [
    *mutants(
        "legos_train/model/tinker/data.py",
        SERVICE,
        (
            "tinker-signs-merged",
            "signs = np.sign(advantages[own])",
            "signs = np.sign(0 * advantages[own])",
            "good and bad of one action cancel before the clip has seen either",
        ),
        (
            "tinker-mean-of-merged",
            "[group].sum(axis=0),",
            "[group].mean(axis=0),",
            "an action that was taken a hundred times counts once",
        ),
    ),
    *mutants(
        "legos_train/model/tinker/tinker_backend.py",
        STUB,
        (
            "tinker-kl-sign",
            "advantages + settings.kl * np.expm1(away)",
            "advantages - settings.kl * np.expm1(away)",
            "the KL pushes away from the base",
        ),
        (
            "tinker-reduction-not-undone",
            "self.training.gradient(calls, [part.old for part in calls], scale)",
            "self.training.gradient(calls, [part.old for part in calls])",
            "long turns count less, as the server has it",
        ),
    ),
    *mutants(
        "legos_train/model/tinker/weights.py",
        STUB,
        (
            "tinker-snapshots-move",
            "if live or self._freeze is None:",
            "if True:",
            "members of a league learn with the learner at a server that trains what it has saved",
        ),
    ),
    *mutants(
        "legos_train/model/tinker/service.py",
        SERVICE,
        (
            "tinker-key-to-another-host",
            "if urlsplit(there).netloc != urlsplit(url).netloc:",
            "if False:",
            "the key is shown to whoever stores the files",
        ),
    ),
]
