"""Which proxy the environment asks for, by the rules of Go programs, since cluster add-ons are configured for those.

Go's NO_PROXY knows address ranges (``10.0.0.0/8``); Python's own lookup does not, and an in-cluster API server is
nearly always excluded by range. Source: golang.org/x/net/http/httpproxy.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Mapping
from urllib.parse import urlsplit


def proxy_from_environment(server: str, environ: Mapping[str, str]) -> str | None:
    """URL of the proxy for ``server``, None for a direct connection."""
    url = urlsplit(server)
    names = ("HTTPS_PROXY", "https_proxy") if url.scheme == "https" else ("HTTP_PROXY", "http_proxy")
    proxy = next((environ[name] for name in names if environ.get(name)), None)
    host = url.hostname or ""
    if proxy is None or host == "localhost" or _excluded(host, url.port, environ):
        return None
    return proxy if "://" in proxy else f"http://{proxy}"


def _excluded(host: str, port: int | None, environ: Mapping[str, str]) -> bool:
    try:
        address = ipaddress.ip_address(host)
    except ValueError:
        address = None
    if address is not None and address.is_loopback:
        return True
    for raw in (environ.get("NO_PROXY") or environ.get("no_proxy") or "").split(","):
        entry = raw.strip().lower()
        if entry == "*":
            return True
        if entry.count(":") == 1:
            entry, _, wanted = entry.partition(":")
            if wanted != str(port):
                continue
        if not entry:
            continue
        if address is not None:
            try:
                if address in ipaddress.ip_network(entry, strict=False):
                    return True
            except ValueError:
                continue
        else:
            # ".example.com" excludes names below it, "example.com" also the name itself.
            domain = entry.lstrip("*.")
            if host.endswith("." + domain) or (host == domain and not entry.startswith(".")):
                return True
    return False
