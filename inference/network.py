"""How a client gets to a server: directly or, for https, through the proxy that the environment names."""

from __future__ import annotations

import ipaddress
import re
import socket
import ssl
import urllib.request
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

if TYPE_CHECKING:
    import httpx2


def proxy_for(url: str) -> str | None:
    """The proxy for an address: HTTPS_PROXY or ALL_PROXY, unless NO_PROXY covers the host; on macOS also the system's.

    None for http addresses: those are servers of one's own network, and a proxy would see prompts and keys. None for
    this machine, too.

    Raises:
        ValueError: the proxy speaks neither HTTP nor HTTPS.
    """
    to = urlsplit(url)
    host = to.hostname or ""
    if to.scheme != "https" or _is_here(host) or urllib.request.proxy_bypass(host):
        return None
    proxies = urllib.request.getproxies()
    proxy = proxies.get("https") or proxies.get("all")
    if not proxy:
        return None
    if "://" not in proxy:
        proxy = f"http://{proxy}"
    if not re.match(r"https?://[^/]", proxy, re.IGNORECASE):
        scheme = proxy.partition("://")[0]
        raise ValueError(
            f"the environment names a proxy for {to.scheme}://{host} that speaks {scheme}; accepted are http:// and "
            f"https:// proxies. Set HTTPS_PROXY to one, or NO_PROXY={host} to connect directly"
        )
    return proxy


def _is_here(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost" or host.endswith(".localhost")


def transport(url: str, limits: httpx2.Limits) -> httpx2.AsyncHTTPTransport:
    """A transport for one server; certificates are those of SSL_CERT_FILE or SSL_CERT_DIR, or the system's.

    Raises:
        ValueError: as `proxy_for`.
    """
    import httpx2

    # Reading all certificates takes longer than most requests; without TLS there is nothing to verify.
    verify = url.startswith("https:") or ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    proxy = proxy_for(url)
    return httpx2.AsyncHTTPTransport(verify=verify, limits=limits, proxy=proxy, socket_options=_keepalive())


def _keepalive() -> list[tuple[int, int, int]]:
    """Detect within a minute that the other machine is gone, even while waiting for a long completion."""
    options = [(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)]
    for name, value in (("TCP_KEEPIDLE", 20), ("TCP_KEEPINTVL", 10), ("TCP_KEEPCNT", 4)):
        if hasattr(socket, name):
            options.append((socket.IPPROTO_TCP, getattr(socket, name), value))
    return options
