"""A request of a fleet that has no answer yet, and how errors affect it."""

from __future__ import annotations

from dataclasses import dataclass

from inference.client.endpoint import Endpoint, Publication
from inference.types import Request

REFUSED = (400, 413, 422)
"""Statuses that concern the content of a call."""
FAULTS = 3
"""After this many server errors (500), on any server, the fault is taken to be the request's."""


@dataclass(eq=False, slots=True)
class Pending:
    """A request that awaits its single answer.

    Attributes:
        since: time of its first failure.
        faults: how often a server failed on it; after the first failure it travels alone.
        alone: whether it travels alone because a call that it was part of was refused.
        last: the server that failed last; tried again only if there is no other.
    """

    number: int
    request: Request
    publication: Publication | None
    since: float | None = None
    faults: int = 0
    alone: bool = False
    last: Endpoint | None = None
    cancelled: bool = False
