"""How a client gets to a server: directly or, for https, through the proxy that the environment names."""

from __future__ import annotations

import ipaddress
import os
import socket
import ssl
import urllib.request
from contextlib import suppress
from typing import TYPE_CHECKING
from urllib.parse import SplitResult, urlsplit

from inference.types import InferenceError

if TYPE_CHECKING:
    import httpx2


class ProxyError(InferenceError, ValueError):
    """The environment names a proxy that cannot be used."""


def proxy_for(url: str) -> str | None:
    """The proxy for an address: HTTPS_PROXY or ALL_PROXY, unless NO_PROXY covers the host; on macOS also the system's.

    NO_PROXY lists hosts, domains, HOST:PORT, IP addresses and networks such as 10.0.0.0/8, or is `*`. The result is
    None for http addresses: those are servers of one's own network, and a proxy would see prompts and keys. It is None
    for this machine, too.

    Raises:
        ProxyError: the proxy speaks neither HTTP nor HTTPS, or is no address.
    """
    to = urlsplit(url)
    if to.scheme != "https" or _bypassed(to):
        return None
    proxies = urllib.request.getproxies()
    proxy = proxies.get("https") or proxies.get("all")
    if not proxy:
        return None
    if "://" not in proxy:
        proxy = f"http://{proxy}"
    scheme = proxy.partition("://")[0].lower()
    remedy = f"Set HTTPS_PROXY to http://HOST:PORT, or NO_PROXY={to.hostname} to connect directly"
    if scheme not in ("http", "https"):
        raise ProxyError(
            f"the proxy that the environment names for {to.hostname} (HTTPS_PROXY or ALL_PROXY) speaks {scheme}; "
            f"accepted are http:// and https:// proxies. {remedy}"
        )
    usable = False
    with suppress(ValueError):  # whose message may repeat a part of the password
        at = urlsplit(proxy)
        usable = bool(at.hostname) and at.port != 0 and at.path in ("", "/") and not at.query + at.fragment
    if not usable:
        raise ProxyError(
            f"what the environment names as the proxy for {to.hostname} (HTTPS_PROXY or ALL_PROXY) is not the address "
            f"of one. {remedy}; characters such as # or / in a password are written %23, %2F"
        )
    return proxy


def _bypassed(to: SplitResult) -> bool:
    host = to.hostname or ""
    try:
        address = ipaddress.ip_address(host)
    except ValueError:
        here = host == "localhost" or host.endswith(".localhost")
        return here or any(map(urllib.request.proxy_bypass, (host, f"{host}:{to.port or 443}")))
    if address.is_loopback or urllib.request.proxy_bypass(f"{host}:{to.port or 443}"):
        return True
    for entry in (os.environ.get("no_proxy") or os.environ.get("NO_PROXY") or "").split(","):
        with suppress(ValueError):  # a name, or another kind of address
            if address in ipaddress.ip_network(entry.strip().strip("[]"), strict=False):
                return True
    return bool(urllib.request.proxy_bypass(host))


def transport(url: str, limits: httpx2.Limits) -> httpx2.AsyncHTTPTransport:
    """A transport for one server; certificates are those of SSL_CERT_FILE or SSL_CERT_DIR, or the system's.

    Raises:
        ProxyError: as `proxy_for`.
    """
    import httpx2

    # Reading all certificates takes longer than most requests; without TLS there is nothing to verify.
    verify = urlsplit(url).scheme == "https" or ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    proxy = proxy_for(url)
    return httpx2.AsyncHTTPTransport(verify=verify, limits=limits, proxy=proxy, socket_options=_keepalive())


def _keepalive() -> list[tuple[int, int, int]]:
    """Detects within a minute that the other machine is gone, even while waiting for a long completion."""
    options = [(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)]
    for name, value in (("TCP_KEEPIDLE", 20), ("TCP_KEEPINTVL", 10), ("TCP_KEEPCNT", 4)):
        if hasattr(socket, name):
            options.append((socket.IPPROTO_TCP, getattr(socket, name), value))
    return options
