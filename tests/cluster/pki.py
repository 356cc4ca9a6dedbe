"""Certificates and kubeconfigs of one run, made with the openssl program; elliptic keys, since making RSA keys takes
longer.

The subjects are what Kubernetes' node and role authorisers expect of each component.
"""

from __future__ import annotations

import base64
import json
import subprocess
from dataclasses import dataclass
from pathlib import Path

_EC = ("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1")
_DAYS = "30"


@dataclass(frozen=True, slots=True)
class Pki:
    """A directory with a certificate authority, the service account key pair and what was issued so far."""

    directory: Path

    @classmethod
    def create(cls, directory: Path) -> Pki:
        directory.mkdir(parents=True, exist_ok=True)
        made = cls(directory)
        if not made.ca.exists():
            files = ("-keyout", "ca.key", "-out", "ca.crt")
            made._openssl("req", "-x509", *_EC, "-nodes", "-days", _DAYS, "-subj", "/CN=test-ca", *files)
            made._openssl("ecparam", "-name", "prime256v1", "-genkey", "-noout", "-out", "sa.key")
            made._openssl("ec", "-in", "sa.key", "-pubout", "-out", "sa.pub")
        return made

    @property
    def ca(self) -> Path:
        return self.directory / "ca.crt"

    def certificate(self, name: str) -> Path:
        return self.directory / f"{name}.crt"

    def key(self, name: str) -> Path:
        return self.directory / f"{name}.key"

    def issue(self, name: str, subject: str, alternative_names: str) -> None:
        """Issue ``name.crt``/``name.key`` for both ends of TLS; ``subject`` in openssl's form ``/O=group/CN=user``."""
        if self.certificate(name).exists():
            return
        extensions = f"subjectAltName={alternative_names}\nextendedKeyUsage=serverAuth,clientAuth\n"
        (self.directory / f"{name}.ext").write_text(extensions)
        self._openssl("req", *_EC, "-nodes", "-subj", subject, "-keyout", f"{name}.key", "-out", f"{name}.csr")
        signing = ("-CA", "ca.crt", "-CAkey", "ca.key", "-CAcreateserial", "-days", _DAYS, "-extfile", f"{name}.ext")
        self._openssl("x509", "-req", "-in", f"{name}.csr", *signing, "-out", f"{name}.crt")

    def kubeconfig(self, name: str, server: str) -> Path:
        """Write ``name.kubeconfig`` with the certificate of ``name``; everything embedded, so that it can be copied."""
        user = {
            "client-certificate-data": _encoded(self.certificate(name)),
            "client-key-data": _encoded(self.key(name)),
        }
        path = self.directory / f"{name}.kubeconfig"
        write_kubeconfig(path, server, self.ca, user)
        return path

    def _openssl(self, *arguments: str) -> None:
        done = subprocess.run(
            ["openssl", *arguments], cwd=self.directory, capture_output=True, text=True, stdin=subprocess.DEVNULL
        )
        if done.returncode != 0:
            raise RuntimeError(f"openssl {arguments[0]}: {done.stderr}")


def write_kubeconfig(path: Path, server: str, ca: Path, user: dict[str, str], namespace: str = "default") -> None:
    """Write a kubeconfig for one cluster and one user (JSON is YAML, and every client reads it)."""
    context = {"cluster": "test", "user": "user", "namespace": namespace}
    document = {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": "test", "cluster": {"server": server, "certificate-authority-data": _encoded(ca)}}],
        "users": [{"name": "user", "user": user}],
        "contexts": [{"name": "test", "context": context}],
        "current-context": "test",
    }
    path.write_text(json.dumps(document, indent=1))
    path.chmod(0o600)


def _encoded(path: Path) -> str:
    return base64.b64encode(path.read_bytes()).decode()
