"""Where the API server is and how to prove who we are, as values; ``kubeconfig`` makes them, ``client`` uses them.

Whatever can be rotated under a running daemon is a *source*, asked before each request and cheap to ask: a token file
is stat'ed at most once a second and read again when it changed or a minute passed; certificates are reloaded when their
files change. A source that has just become unreadable keeps its last good value, since a rotation may be half done.
"""

from __future__ import annotations

import base64
import contextlib
import logging
import os
import ssl
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

from dra_driver.errors import EnvironmentFault, InputError

_LOG = logging.getLogger(__name__)

Clock = Callable[[], float]


class Credentials(Protocol):
    """What a request needs to be authenticated beyond the TLS client certificate of the configuration."""

    async def authorization(self) -> str | None:
        """Value of the Authorization header, None for none.

        Raises:
            EnvironmentFault: the source cannot be read and there is no earlier value.
        """

    async def rejected(self) -> bool:
        """The server answered 401: forget what is cached; True when asking again may give another answer."""

    def client_certificate(self) -> tuple[bytes, bytes] | None:
        """Certificate and key (PEM) that came with the credentials, as exec plugins may return."""


class NoCredentials:
    """Anonymous, or a TLS client certificate alone."""

    async def authorization(self) -> str | None:
        return None

    async def rejected(self) -> bool:
        return False

    def client_certificate(self) -> tuple[bytes, bytes] | None:
        return None


class StaticCredentials(NoCredentials):
    """A fixed Authorization header: ``token`` or basic authentication of a kubeconfig."""

    def __init__(self, header: str) -> None:
        self._header = header

    @classmethod
    def bearer(cls, token: str) -> StaticCredentials:
        return cls(f"Bearer {token}")

    @classmethod
    def basic(cls, username: str, password: str) -> StaticCredentials:
        return cls("Basic " + base64.b64encode(f"{username}:{password}".encode()).decode())

    async def authorization(self) -> str | None:
        return self._header


class TokenFile(NoCredentials):
    """A bearer token in a file that somebody else renews, e.g. the kubelet for a projected ServiceAccount token.

    Args:
        path: the file; the token is its stripped content.
        clock: monotonic seconds.
    """

    LOOK_EVERY = 1.0
    READ_EVERY = 60.0

    def __init__(self, path: Path, *, clock: Clock = time.monotonic) -> None:
        self.path = path
        self._clock = clock
        self._header: str | None = None
        self._version: tuple[int, int, int] | None = None
        self._looked = self._read = float("-inf")

    async def authorization(self) -> str | None:
        now = self._clock()
        if self._header is None or now - self._looked >= self.LOOK_EVERY:
            self._look(now)
        return self._header

    async def rejected(self) -> bool:
        before = self._header
        self._version = None
        self._look(self._clock())
        return self._header != before

    def _look(self, now: float) -> None:
        try:
            stat = self.path.stat()
            version = (stat.st_mtime_ns, stat.st_ino, stat.st_size)
            if version != self._version or now - self._read >= self.READ_EVERY:
                token = self.path.read_text("ascii").strip()
                if not token:
                    raise OSError("the file is empty")
                self._header, self._version, self._read = f"Bearer {token}", version, now
        except (OSError, UnicodeDecodeError) as error:
            if self._header is None:
                raise EnvironmentFault(
                    f"token file {self.path} cannot be used: {error}",
                    hint="mount the ServiceAccount token or correct tokenFile in the kubeconfig",
                ) from error
            _LOG.warning("token file %s cannot be read, the last token stays in use: %s", self.path, error)
        self._looked = now


@dataclass(frozen=True, slots=True)
class TlsOptions:
    """TLS of the connection; files are reloaded when they change, data is fixed. PEM everywhere."""

    ca_file: Path | None = None
    ca_data: str | None = None
    cert_file: Path | None = None
    cert_data: bytes | None = field(default=None, repr=False)
    key_file: Path | None = None
    key_data: bytes | None = field(default=None, repr=False)
    insecure: bool = False

    def files(self) -> tuple[Path, ...]:
        return tuple(p for p in (self.ca_file, self.cert_file, self.key_file) if p is not None)


@dataclass(frozen=True, slots=True, kw_only=True)
class ApiConfig:
    """One API server as one user.

    Attributes:
        server: base URL without a trailing slash.
        source: where this was read, for messages.
        server_name: name to verify in the server's certificate instead of the URL's host.
        proxy: URL of an HTTP proxy.
        namespace: default namespace of the context or of the ServiceAccount.
        headers: further fixed headers (impersonation).
        request_timeout: seconds for one call with all its repetitions, unless the caller says otherwise.
    """

    server: str
    source: str
    tls: TlsOptions = TlsOptions()
    credentials: Credentials = field(default_factory=NoCredentials)
    server_name: str | None = None
    proxy: str | None = field(default=None, repr=False)
    namespace: str = "default"
    headers: tuple[tuple[str, str], ...] = ()
    request_timeout: float = 30.0


class TlsContext:
    """The ``SSLContext`` for a configuration, rebuilt after its files or the credentials' certificate changed.

    A new context means new connections: running requests and watches finish on the old one.
    """

    LOOK_EVERY = 10.0

    def __init__(self, options: TlsOptions, *, source: str, clock: Clock = time.monotonic) -> None:
        self._options = options
        self._source = source
        self._clock = clock
        self._context: ssl.SSLContext | None = None
        self._version: object = None
        self._certificate: tuple[bytes, bytes] | None = None
        self._looked = float("-inf")

    def current(self, certificate: tuple[bytes, bytes] | None = None) -> ssl.SSLContext:
        """The context to use now.

        Raises:
            InputError: certificate or key cannot be read or do not fit together, and no earlier context exists.
        """
        now = self._clock()
        fresh = now - self._looked < self.LOOK_EVERY and certificate is self._certificate
        if self._context is not None and fresh:
            return self._context
        self._looked, self._certificate = now, certificate
        version = (self._file_versions(), certificate)
        if self._context is None or version != self._version:
            try:
                self._context = _build_context(self._options, certificate)
                self._version = version
            except (OSError, ssl.SSLError, ValueError) as error:
                if self._context is None:
                    raise InputError(
                        f"TLS settings cannot be used: {error}",
                        source=self._source,
                        hint="check certificate-authority, client-certificate and client-key",
                    ) from error
                _LOG.warning("changed TLS files of %s cannot be used, the old ones stay: %s", self._source, error)
        return self._context

    def look_again(self) -> None:
        """The server refused us: do not wait for the next look at the files."""
        self._looked = float("-inf")

    def _file_versions(self) -> tuple[tuple[int, int] | None, ...]:
        versions: list[tuple[int, int] | None] = []
        for path in self._options.files():
            try:
                stat = path.stat()
                versions.append((stat.st_mtime_ns, stat.st_ino))
            except OSError:
                versions.append(None)
        return tuple(versions)


def _build_context(options: TlsOptions, certificate: tuple[bytes, bytes] | None) -> ssl.SSLContext:
    # Not ssl.create_default_context: from 3.13 it demands key identifiers that many cluster CAs do not have (kubectl
    # accepts them), and it loads the whole system store even when the cluster has a CA of its own.
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    # The other choice, HTTP/2, is not spoken here; saying so spares servers a guess.
    context.set_alpn_protocols(["http/1.1"])
    if options.insecure:
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    elif options.ca_data is not None:
        context.load_verify_locations(cadata=options.ca_data)
    elif options.ca_file is not None:
        context.load_verify_locations(cafile=str(options.ca_file))
    else:
        context.load_default_certs(ssl.Purpose.SERVER_AUTH)
    cert, key = certificate or (options.cert_data, options.key_data)
    if cert is None and options.cert_file is not None:
        cert = options.cert_file.read_bytes()
    if key is None and options.key_file is not None:
        key = options.key_file.read_bytes()
    if cert is not None:
        with _as_file(cert + b"\n" + (key or b"")) as path:
            context.load_cert_chain(path)
    return context


@contextlib.contextmanager
def _as_file(content: bytes) -> Iterator[str]:
    """OpenSSL reads key pairs from files only; an anonymous file keeps keys off the disk and needs no writable root."""
    if hasattr(os, "memfd_create"):
        descriptor = os.memfd_create("key-pair")
        try:
            os.write(descriptor, content)
            yield f"/proc/self/fd/{descriptor}"
        finally:
            os.close(descriptor)
    else:
        with tempfile.NamedTemporaryFile() as file:
            file.write(content)
            file.flush()
            yield file.name
