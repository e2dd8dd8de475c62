"""Whether Go sends a request through a proxy. Source: ``golang.org/x/net/http/httpproxy``."""

from __future__ import annotations

import ipaddress
from collections.abc import Mapping
from urllib.parse import SplitResult


def proxy_for(address: SplitResult, environment: Mapping[str, str]) -> str:
    """Return the proxy that variables of ``environment`` put before a URL of HTTP, or nothing."""
    name = f"{address.scheme}_proxy"
    proxy = environment.get(name.upper()) or environment.get(name) or ""
    exempt = environment.get("NO_PROXY") or environment.get("no_proxy") or ""
    return proxy if proxy and not _is_exempt(address, exempt) else ""


def _is_exempt(address: SplitResult, exempt: str) -> bool:
    host = (address.hostname or "").rstrip(".")
    port = address.port or {"http": 80, "https": 443}[address.scheme]
    ip = _ip(host)
    if host == "localhost" or (ip is not None and ip.is_loopback):
        return True
    return any(_matches(entry.strip().lower(), host, port, ip) for entry in exempt.split(","))


def _matches(entry: str, host: str, port: int, ip: ipaddress.IPv4Address | ipaddress.IPv6Address | None) -> bool:
    if not entry:
        return False
    if entry == "*":
        return True
    if "/" in entry and ip is not None:
        try:
            return ip in ipaddress.ip_network(entry, strict=False)
        except ValueError:
            return False
    name, colon, wanted = entry.rpartition(":")
    if colon and wanted.isdecimal() and _ip(entry) is None:
        if int(wanted) != port:
            return False
        entry = name
    entry = entry.strip("[]")
    if ip is not None:
        return _ip(entry) == ip
    if entry.startswith("*."):
        entry = entry[1:]
    # A leading dot leaves out the domain itself.
    return host.endswith(entry) if entry.startswith(".") else host == entry or host.endswith(f".{entry}")


def _ip(text: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address | None:
    try:
        return ipaddress.ip_address(text)
    except ValueError:
        return None
