"""kubeconfig users whose credentials come from a program or a provider; only here the ``kubernetes`` package is used.

Plugins are run in a thread, their answer is kept until shortly before it expires, and one run serves all requests that
wait for it. Source: client.authentication.k8s.io/v1 (ExecCredential), KEP-541.
"""

from __future__ import annotations

import asyncio
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dra_driver.errors import EnvironmentFault, InputError

if TYPE_CHECKING:
    from dra_driver.kube.kubeconfig import Section

# A token that expires while its request is under way is refused; plugins refresh their own caches about as early.
_EARLY = 60.0


class _Fetched(ABC):
    """Credentials fetched by a blocking call and kept until they expire or are refused."""

    def __init__(self, wall_clock: Callable[[], float]) -> None:
        self._wall_clock = wall_clock
        self._lock = asyncio.Lock()
        self._header: str | None = None
        self._certificate: tuple[bytes, bytes] | None = None
        self._expires = float("-inf")

    async def authorization(self) -> str | None:
        if self._wall_clock() >= self._expires:
            async with self._lock:
                if self._wall_clock() >= self._expires:
                    await asyncio.to_thread(self._fetch)
        return self._header

    async def rejected(self) -> bool:
        # Requests that were under way together are refused together; only the first one starts a new run.
        before = (self._header, self._certificate)
        async with self._lock:
            if (self._header, self._certificate) == before:
                await asyncio.to_thread(self._fetch)
        return (self._header, self._certificate) != before

    def client_certificate(self) -> tuple[bytes, bytes] | None:
        return self._certificate

    @abstractmethod
    def _fetch(self) -> None:
        """Get new credentials and `_keep` them; blocks."""

    def _keep(self, header: str | None, certificate: tuple[bytes, bytes] | None, expiry: str | None) -> None:
        expires = float("inf")
        if expiry:
            instant = datetime.fromisoformat(expiry).timestamp()
            # A lifetime below the margin must not start the plugin for every request.
            expires = max(instant - _EARLY, self._wall_clock() + min(5.0, max(0.0, instant - self._wall_clock())))
        self._header, self._certificate, self._expires = header, certificate, expires


class ExecCredentials(_Fetched):
    """``users[].user.exec`` of a kubeconfig.

    Args:
        config: the exec section.
        source: the same with its place, for messages and relative paths.
        cluster: the cluster section, handed to plugins that ask for it (provideClusterInfo).
    """

    def __init__(
        self,
        config: Mapping[str, Any],
        *,
        source: Section,
        cluster: Mapping[str, Any],
        wall_clock: Callable[[], float] = time.time,
    ) -> None:
        super().__init__(wall_clock)
        self._place = source
        for key in ("command", "apiVersion"):
            if source.text(key) is None:
                raise source.fail("is missing", key)
        command = str(config["command"])
        if "/" in command:
            command = str(source.file.parent / Path(command))
        self._config = {**config, "command": command}
        self._cluster = dict(cluster)

    def _fetch(self) -> None:
        # An import of hundreds of modules: only when a user needs it, and never on the event loop's thread.
        from kubernetes.config.config_exception import ConfigException
        from kubernetes.config.exec_provider import ExecProvider
        from kubernetes.config.kube_config import ConfigNode

        command = self._config["command"]
        run: Any = ExecProvider  # the package is without types
        node: Any = ConfigNode
        try:
            status = run(node("exec", self._config), None, node("cluster", self._cluster)).run()
        except (ConfigException, OSError) as error:
            hint = self._config.get("installHint") or f"run {command} by hand to see why it fails"
            raise EnvironmentFault(
                f"{self._place.file}: {self._place.path}: credential plugin {command} failed: {error}", hint=str(hint)
            ) from error
        token = status.get("token")
        certificate, key = status.get("clientCertificateData"), status.get("clientKeyData")
        if not token and not (certificate and key):
            raise EnvironmentFault(
                f"{self._place.file}: {self._place.path}: credential plugin {command} returned neither a token nor a "
                "client certificate with its key"
            )
        try:
            self._keep(
                f"Bearer {token}" if token else None,
                (certificate.encode(), key.encode()) if certificate and key else None,
                status.get("expirationTimestamp"),
            )
        except ValueError as error:
            raise EnvironmentFault(
                f"{self._place.file}: {self._place.path}: credential plugin {command}: expirationTimestamp: {error}"
            ) from error


class ProviderCredentials(_Fetched):
    """``users[].user.auth-provider`` (oidc, gcp): deprecated in Kubernetes, still found in kubeconfigs."""

    _KEEP_SECONDS = 60.0

    def __init__(self, user: Section, cluster: Section, *, wall_clock: Callable[[], float] = time.time) -> None:
        super().__init__(wall_clock)
        self._user = user
        self._cluster = cluster

    def _fetch(self) -> None:
        from kubernetes.client import Configuration
        from kubernetes.config.config_exception import ConfigException
        from kubernetes.config.kube_config import KubeConfigLoader

        provider = self._user.value["auth-provider"]
        document = {
            "current-context": "c",
            "contexts": [{"name": "c", "context": {"cluster": "c", "user": "u"}}],
            "clusters": [{"name": "c", "cluster": {"server": self._cluster.text("server")}}],
            "users": [{"name": "u", "user": {"auth-provider": provider}}],
        }
        configuration = Configuration()
        loader: Any = KubeConfigLoader  # without types
        try:
            loader(document, config_base_path=str(self._user.file.parent)).load_and_set(configuration)
        except (ConfigException, OSError, ValueError) as error:
            raise EnvironmentFault(
                f"{self._user.file}: {self._user.path}.auth-provider: {error}",
                hint="move this user to an exec plugin; authentication providers are gone from Kubernetes",
            ) from error
        header = configuration.api_key.get("BearerToken")
        if not header:
            raise InputError(
                "gives no token",
                source=str(self._user.file),
                path=f"{self._user.path}.auth-provider",
                hint="only gcp and oidc are known; use an exec plugin instead",
            )
        self._keep(header, None, None)
        self._expires = self._wall_clock() + self._KEEP_SECONDS
