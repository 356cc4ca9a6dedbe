"""aiohttp, imported without the certificate authorities that it would load and never use.

At its import aiohttp makes two TLS contexts with all authorities of the system, which costs 2 MiB and tens of
milliseconds in every process. Here each connection brings a context of its own (``config.TlsContext``), so those two
stay empty.
"""

from __future__ import annotations

import contextlib
import ssl
from collections.abc import Iterator


@contextlib.contextmanager
def _no_default_authorities() -> Iterator[None]:
    def load_nothing(context: ssl.SSLContext, *purpose: object) -> None:
        del context, purpose

    ssl.SSLContext.load_default_certs = load_nothing  # type: ignore[method-assign, assignment]
    ssl.SSLContext.set_default_verify_paths = load_nothing  # type: ignore[method-assign, assignment]
    try:
        yield
    finally:
        ssl.SSLContext.load_default_certs = _LOAD_DEFAULT_CERTS  # type: ignore[method-assign]
        del ssl.SSLContext.set_default_verify_paths


_LOAD_DEFAULT_CERTS = ssl.SSLContext.load_default_certs

with _no_default_authorities():
    import aiohttp

__all__ = ["aiohttp"]
