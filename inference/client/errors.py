"""Errors between a client and an engine. Each is an `InferenceError`; none contains an API key."""

from __future__ import annotations

from inference.types import InferenceError


class ServerUnavailable(InferenceError):
    """Every attempt got no answer, or one that says "later".

    Attributes:
        status: the HTTP status if there was an answer (429 busy, 502 to 504), else None.
        retry_after: seconds to wait, as requested by the answer.
        timed_out: whether one attempt took too long.
    """

    def __init__(
        self, message: str, *, status: int | None = None, retry_after: float | None = None, timed_out: bool = False
    ) -> None:
        super().__init__(message)
        self.status, self.retry_after, self.timed_out = status, retry_after, timed_out


class RequestRefused(InferenceError):
    """The request was understood but will not be served; retrying does not help.

    Attributes:
        status: as over HTTP: 400 for values out of range, 401 for a missing key, 404 for an adapter that is not
            published, 409 for an adapter version that came too late, 500 if the engine failed on this request.
    """

    def __init__(self, status: int, message: str) -> None:
        super().__init__(f"{message} ({status})")
        self.status, self.message = status, message


class BadAnswer(InferenceError):
    """The other side is not a Legos server, or a broken one: its answer breaks the protocol."""


class Incompatible(InferenceError):
    """Client and server have different models; the message names the differences."""
