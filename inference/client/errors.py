"""What goes wrong between a client and an engine. Every error is an `InferenceError`; none holds an API key."""

from __future__ import annotations

from inference.types import InferenceError


class ServerUnavailable(InferenceError):
    """No answer, or one that says "later", as often as it was tried.

    Attributes:
        status: the HTTP status when there was an answer (429 busy, 502 to 504), else None.
        retry_after: seconds that the answer asked to wait.
        timed_out: whether one attempt took too long.
    """

    def __init__(
        self, message: str, *, status: int | None = None, retry_after: float | None = None, timed_out: bool = False
    ) -> None:
        super().__init__(message)
        self.status, self.retry_after, self.timed_out = status, retry_after, timed_out


class RequestRefused(InferenceError):
    """The request was understood and will not be served: trying again does not help.

    Attributes:
        status: as over HTTP: 400 for what is out of range, 401 for a missing key, 404 for an adapter that is not
            published, 409 for a version of one that came too late, 500 when the engine failed on this request.
    """

    def __init__(self, status: int, message: str) -> None:
        super().__init__(f"{message} ({status})")
        self.status, self.message = status, message


class BadAnswer(InferenceError):
    """The other side is not a Legos server, or a broken one: its answer breaks the protocol."""


class Incompatible(InferenceError):
    """Client and server do not have the same model; the message names what differs."""
