"""Reads a kubeconfig, or the ServiceAccount of the Pod we run in, into an ``ApiConfig``.

Search order, the first that exists: the path given, ``$KUBECONFIG`` (several files, merged as kubectl does: the first
file to say something wins), the Pod's ServiceAccount, ``~/.kube/config``. Every complaint names file and field.

Certificates, tokens and basic authentication are read here. Exec plugins and authentication providers are the part of
the ``kubernetes`` package (``exec_credentials``), imported only when a user needs it: the import alone costs 43 MiB.
"""

from __future__ import annotations

import base64
import binascii
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from dra_driver.errors import InputError
from dra_driver.kube.config import ApiConfig, Credentials, NoCredentials, StaticCredentials, TlsOptions, TokenFile
from dra_driver.kube.proxies import proxy_from_environment

SERVICE_ACCOUNT = Path("/var/run/secrets/kubernetes.io/serviceaccount")


def load(
    path: str | Path | None = None,
    *,
    context: str | None = None,
    environ: Mapping[str, str] | None = None,
    service_account: Path = SERVICE_ACCOUNT,
) -> ApiConfig:
    """The configuration to use.

    Args:
        path: kubeconfig file; None searches as the module says.
        context: name of a context instead of ``current-context``.

    Raises:
        InputError: nothing found, or a file that cannot be read or is incomplete.
    """
    environ = os.environ if environ is None else environ
    if path is not None:
        return _from_files([Path(path)], context, environ, must_exist=True)
    listed = [Path(p) for p in environ.get("KUBECONFIG", "").split(os.pathsep) if p]
    if listed:
        return _from_files(listed, context, environ, must_exist=False)
    if environ.get("KUBERNETES_SERVICE_HOST") and (service_account / "token").exists():
        return in_cluster(environ=environ, service_account=service_account)
    home = Path(environ.get("HOME") or "/") / ".kube" / "config"
    if home.exists():
        return _from_files([home], context, environ, must_exist=True)
    raise InputError(
        "no API server is configured",
        hint=f"pass --kubeconfig, set KUBECONFIG, or run in a Pod with a ServiceAccount token in {service_account}",
    )


def in_cluster(*, environ: Mapping[str, str] | None = None, service_account: Path = SERVICE_ACCOUNT) -> ApiConfig:
    """The API server of the cluster we run in, as the Pod's ServiceAccount; a renewed token is picked up."""
    environ = os.environ if environ is None else environ
    host, port = environ.get("KUBERNETES_SERVICE_HOST"), environ.get("KUBERNETES_SERVICE_PORT")
    source = f"ServiceAccount in {service_account}"
    if not host or not port:
        raise InputError(
            "KUBERNETES_SERVICE_HOST and KUBERNETES_SERVICE_PORT are not set", source=source, hint="not in a Pod?"
        )
    for name in ("token", "ca.crt"):
        if not (service_account / name).exists():
            raise InputError(
                f"file {name} is missing", source=source, hint="check automountServiceAccountToken of the Pod"
            )
    namespace_file = service_account / "namespace"
    server = f"https://[{host}]:{port}" if ":" in host else f"https://{host}:{port}"
    return ApiConfig(
        server=server,
        source=source,
        tls=TlsOptions(ca_file=service_account / "ca.crt"),
        credentials=TokenFile(service_account / "token"),
        proxy=proxy_from_environment(server, environ),
        namespace=namespace_file.read_text("utf-8").strip() if namespace_file.exists() else "default",
    )


@dataclass(frozen=True, slots=True)
class Section:
    """One mapping of a kubeconfig with the place it was read from, so that complaints can name it."""

    value: Mapping[str, Any]
    file: Path
    path: str

    def fail(self, message: str, key: str = "", hint: str | None = None) -> InputError:
        where = f"{self.path}.{key}" if key and self.path else key or self.path
        return InputError(message, source=str(self.file), path=where or None, hint=hint)

    def text(self, key: str) -> str | None:
        value = self.value.get(key)
        if value is None or value == "":
            return None
        if not isinstance(value, str):
            raise self.fail(f"must be a string, not {type(value).__name__}", key)
        return value

    def flag(self, key: str) -> bool:
        value = self.value.get(key)
        if value is None:
            return False
        if not isinstance(value, bool):
            raise self.fail("must be true or false", key)
        return value

    def section(self, key: str) -> Section | None:
        value = self.value.get(key)
        if value is None:
            return None
        if not isinstance(value, Mapping):
            raise self.fail("must be a mapping", key)
        return Section(value, self.file, f"{self.path}.{key}" if self.path else key)

    def existing_file(self, key: str) -> Path | None:
        """A file named in the section, relative to the kubeconfig's folder."""
        text = self.text(key)
        if text is None:
            return None
        path = self.file.parent / text
        if not path.is_file():
            raise self.fail(f"file {path} does not exist", key)
        return path

    def data(self, key: str) -> bytes | None:
        text = self.text(key)
        if text is None:
            return None
        try:
            return base64.b64decode("".join(text.split()), validate=True)
        except binascii.Error as error:
            raise self.fail(f"is not base64: {error}", key) from error


@dataclass(frozen=True, slots=True)
class Merged:
    """All files together: for every kind of entry, name to the section that came first."""

    clusters: Mapping[str, Section]
    users: Mapping[str, Section]
    contexts: Mapping[str, Section]
    current_context: str | None
    files: tuple[Path, ...]


def _from_files(files: list[Path], context: str | None, environ: Mapping[str, str], *, must_exist: bool) -> ApiConfig:
    merged = merge(files, must_exist=must_exist)
    source = os.pathsep.join(str(f) for f in files)
    name = context or merged.current_context
    if name is None:
        raise InputError("is not set", source=source, path="current-context", hint=_known("context", merged.contexts))
    chosen = merged.contexts.get(name)
    if chosen is None:
        raise InputError(
            f'context "{name}" does not exist',
            source=source,
            path="contexts" if context else "current-context",
            hint=_known("context", merged.contexts),
        )
    cluster = _named(chosen, "cluster", merged.clusters)
    user = _named(chosen, "user", merged.users) if chosen.text("user") else None

    server = cluster.text("server")
    if server is None:
        raise cluster.fail("is missing", "server")
    server = server.rstrip("/")
    if urlsplit(server).scheme not in ("http", "https") or not urlsplit(server).hostname:
        raise cluster.fail(f'"{server}" is not an http(s) URL', "server")
    return ApiConfig(
        server=server,
        source=f"{source} context {name}",
        tls=_tls(cluster, user),
        credentials=_credentials(merged, name, cluster, user),
        server_name=cluster.text("tls-server-name"),
        proxy=_proxy(cluster) or proxy_from_environment(server, environ),
        namespace=chosen.text("namespace") or "default",
        headers=_impersonation(user) if user else (),
    )


def merge(files: list[Path], *, must_exist: bool) -> Merged:
    """Reads all files; those that do not exist are left out unless ``must_exist``."""
    tables: dict[str, dict[str, Section]] = {"clusters": {}, "users": {}, "contexts": {}}
    current: str | None = None
    read: list[Path] = []
    for file in files:
        if not must_exist and not file.exists():
            continue
        root = Section(_parse(file), file.absolute(), "")
        read.append(file)
        current = current or root.text("current-context")
        for plural, table in tables.items():
            entries = root.value.get(plural) or []
            if not isinstance(entries, list):
                raise root.fail("must be a list", plural)
            for index, entry in enumerate(entries):
                place = Section(entry, root.file, f"{plural}[{index}]")
                if not isinstance(entry, Mapping):
                    raise place.fail("must be a mapping")
                name = place.text("name")
                if name is None:
                    raise place.fail("is missing", "name")
                body = place.section(plural[:-1])
                if body is None:
                    body = Section({}, root.file, f"{place.path}.{plural[:-1]}")
                table.setdefault(name, body)
    if not read:
        raise InputError("none of the files exists", source=os.pathsep.join(map(str, files)), path="KUBECONFIG")
    return Merged(tables["clusters"], tables["users"], tables["contexts"], current, tuple(read))


def _parse(file: Path) -> Mapping[str, Any]:
    import yaml

    loader: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
    try:
        content = yaml.load(file.read_bytes(), Loader=loader)  # the safe loader
    except OSError as error:
        raise InputError(f"cannot be read: {error.strerror or error}", source=str(file)) from error
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        raise InputError(
            f"is not YAML: {getattr(error, 'problem', None) or error}",
            source=str(file),
            line=mark.line + 1 if mark else None,
            column=mark.column + 1 if mark else None,
        ) from error
    if content is None:
        return {}
    if not isinstance(content, Mapping):
        raise InputError("is not a kubeconfig: a mapping was expected", source=str(file))
    return content


def _named(chosen: Section, key: str, table: Mapping[str, Section]) -> Section:
    name = chosen.text(key)
    if name is None:
        raise chosen.fail("is missing", key)
    if name not in table:
        raise chosen.fail(f'{key} "{name}" does not exist', key, _known(key, table))
    return table[name]


def _known(what: str, table: Mapping[str, Section]) -> str:
    return f"known {what}s: {', '.join(sorted(table))}" if table else f"the file has no {what}s"


def _tls(cluster: Section, user: Section | None) -> TlsOptions:
    insecure = cluster.flag("insecure-skip-tls-verify")
    ca_data, ca_file = cluster.data("certificate-authority-data"), None
    if ca_data is None:
        ca_file = cluster.existing_file("certificate-authority")
    if insecure and (ca_data is not None or ca_file is not None):
        raise cluster.fail("cannot be combined with a certificate authority", "insecure-skip-tls-verify")
    cert_data = key_data = cert_file = key_file = None
    if user is not None:
        # As in client-go, data wins over a file.
        cert_data, key_data = user.data("client-certificate-data"), user.data("client-key-data")
        cert_file = user.existing_file("client-certificate") if cert_data is None else None
        key_file = user.existing_file("client-key") if key_data is None else None
        if (cert_data or cert_file) and not (key_data or key_file):
            raise user.fail("is missing although there is a client certificate", "client-key")
        if (key_data or key_file) and not (cert_data or cert_file):
            raise user.fail("is missing although there is a client key", "client-certificate")
    try:
        ca_text = ca_data.decode("ascii") if ca_data is not None else None
    except UnicodeDecodeError as error:
        raise cluster.fail("is not a PEM certificate", "certificate-authority-data") from error
    return TlsOptions(ca_file, ca_text, cert_file, cert_data, key_file, key_data, insecure)


def _credentials(merged: Merged, context: str, cluster: Section, user: Section | None) -> Credentials:
    if user is None:
        return NoCredentials()
    token_file = user.existing_file("tokenFile")
    if token_file is not None:
        return TokenFile(token_file)
    token = user.text("token")
    if token is not None:
        return StaticCredentials.bearer(token)
    exec_section = user.section("exec")
    if exec_section is not None:
        from dra_driver.kube.exec_credentials import ExecCredentials

        return ExecCredentials(exec_section.value, source=exec_section, cluster=cluster.value)
    if user.section("auth-provider") is not None:
        from dra_driver.kube.exec_credentials import ProviderCredentials

        return ProviderCredentials(user, cluster)
    username, password = user.text("username"), user.text("password")
    if username is not None:
        return StaticCredentials.basic(username, password or "")
    return NoCredentials()


def _impersonation(user: Section) -> tuple[tuple[str, str], ...]:
    headers: list[tuple[str, str]] = []
    if name := user.text("as"):
        headers.append(("Impersonate-User", name))
    if uid := user.text("as-uid"):
        headers.append(("Impersonate-Uid", uid))
    headers += [("Impersonate-Group", str(group)) for group in user.value.get("as-groups") or ()]
    extra = user.section("as-user-extra")
    for key, values in (extra.value if extra else {}).items():
        headers += [(f"Impersonate-Extra-{key}", str(value)) for value in values]
    return tuple(headers)


def _proxy(cluster: Section) -> str | None:
    proxy = cluster.text("proxy-url")
    if proxy is not None and urlsplit(proxy).scheme not in ("http", "https"):
        raise cluster.fail(f'"{proxy}" is not an http(s) URL', "proxy-url", "SOCKS proxies are not supported")
    return proxy
