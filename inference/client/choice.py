"""Which of several servers a request goes to."""

from __future__ import annotations

import zlib
from collections.abc import Sequence

from inference.client.endpoint import Endpoint

SLOWEST = 8.0
"""At most so many times slower than the fastest is a server taken for, so that it is asked now and then."""


def choose(endpoints: Sequence[Endpoint], session: str | None, last: Endpoint | None) -> Endpoint | None:
    """The conversation's own server, unless it is lost or much busier than another; None when all are full.

    Args:
        endpoints: the servers, always in the same order.
        session: the conversation that the request belongs to, if it is of one.
        last: the server that failed on the request last; asked again only where there is no other.
    """
    if len(endpoints) == 1:
        return endpoints[0] if endpoints[0].room > 0 else None
    able = [e for e in endpoints if e.room > 0]
    if last in able and len(able) > 1:
        able.remove(last)
    if len(able) <= 1:
        return able[0] if able else None
    fastest = min(e.pace for e in able)

    def load(endpoint: Endpoint) -> float:
        """What is to be done there, in requests of the fastest server."""
        slower = min(endpoint.pace / fastest, SLOWEST) if fastest else 1.0
        return (endpoint.outstanding + 1) * slower

    least = min(able, key=load)
    if session is None:
        return least
    home = endpoints[zlib.crc32(session.encode()) % len(endpoints)]
    return home if home in able and load(home) <= 2 * load(least) + 32 else least
