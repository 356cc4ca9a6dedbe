"""etcd and kube-apiserver alone: the judge for everything that only reads and writes objects. Ready in about three
seconds.

There is no controller and no scheduler: objects stay exactly as written. ServiceAccount admission is off in this form
(nobody would create the default account of a namespace, so no Pod could be written); the full node in `node` has it
on.
"""

from __future__ import annotations

import http.client
import json
import shutil
import ssl
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from tests.cluster.availability import Unavailable, require_programs, skip_or_fail
from tests.cluster.pki import Pki, write_kubeconfig
from tests.cluster.processes import Port, Process, StartFailed, end_processes, new_run_directory, wait_until
from tests.cluster.programs import program

MERGE_PATCH = "application/merge-patch+json"
JSON_PATCH = "application/json-patch+json"
STRATEGIC_MERGE_PATCH = "application/strategic-merge-patch+json"
APPLY_PATCH = "application/apply-patch+yaml"

Json = dict[str, Any]


class ApiServer:
    """One running etcd + kube-apiserver pair; several can run at once, each with its own directory and ports.

    Args:
        runtime_config: API versions on or off, e.g. ``{"resource.k8s.io/v1beta1": True}``.
        feature_gates: e.g. ``{"DRAConsumableCapacity": False}``.
        flags: further flags of kube-apiserver, appended last.
        address, port: where it listens; the loopback interface and a free port by default.
        service_range: addresses of services; the first is the API server's own.
        directory: the run's directory; a new one by default, removed by `close`.

    Attributes:
        url: ``https://127.0.0.1:PORT``.
        kubeconfig: file for a member of system:masters.
        pki: the certificates of the run.
    """

    def __init__(
        self,
        *,
        runtime_config: Mapping[str, bool] | None = None,
        feature_gates: Mapping[str, bool] | None = None,
        flags: Sequence[str] = (),
        directory: Path | None = None,
        address: str = "127.0.0.1",
        port: int | None = None,
        service_range: str = "10.0.0.0/24",
        service_accounts: bool = False,
    ) -> None:
        require_programs(["openssl"])
        self.directory = directory if directory is not None else new_run_directory()
        self._ports = [Port(), Port(), Port()]
        free, client, peer = (reserved.number for reserved in self._ports)
        secure = port if port is not None else free
        self.url = f"https://{address}:{secure}"
        self.pki = Pki.create(self.directory / "pki")
        names = f"IP:{address},DNS:localhost,DNS:kubernetes,DNS:kubernetes.default.svc"
        self.pki.issue("apiserver", "/CN=kube-apiserver", names)
        self.pki.issue("admin", "/O=system:masters/CN=admin", "DNS:admin")
        self.kubeconfig = self.pki.kubeconfig("admin", self.url)
        etcd_url = f"http://127.0.0.1:{client}"
        self.etcd = Process(
            self.directory,
            "etcd",
            [
                str(program("etcd")),
                f"--data-dir={self.directory}/etcd",
                f"--listen-client-urls={etcd_url}",
                f"--advertise-client-urls={etcd_url}",
                f"--listen-peer-urls=http://127.0.0.1:{peer}",
                "--unsafe-no-fsync",
            ],
        )
        keys = self.pki.directory
        self.process = Process(
            self.directory,
            "kube-apiserver",
            [
                str(program("kube-apiserver")),
                f"--etcd-servers={etcd_url}",
                f"--secure-port={secure}",
                f"--bind-address={address}",
                f"--advertise-address={address}",
                "--endpoint-reconciler-type=none",  # the default one refuses a loopback address
                f"--service-cluster-ip-range={service_range}",
                "--service-account-issuer=https://kubernetes.default.svc",
                f"--service-account-key-file={keys}/sa.pub",
                f"--service-account-signing-key-file={keys}/sa.key",
                f"--client-ca-file={keys}/ca.crt",
                f"--tls-cert-file={keys}/apiserver.crt",
                f"--tls-private-key-file={keys}/apiserver.key",
                "--authorization-mode=Node,RBAC",
                "--allow-privileged=true",
                *([] if service_accounts else ["--disable-admission-plugins=ServiceAccount"]),
                *_pairs("--runtime-config", runtime_config),
                *_pairs("--feature-gates", feature_gates),
                *flags,
            ],
        )
        self._tls = ssl.create_default_context(cafile=str(self.pki.ca))
        self._tls.load_cert_chain(self.pki.certificate("admin"), self.pki.key("admin"))

    def start(self) -> None:
        """Start what does not run and return when the server is ready and its bootstrap roles and namespaces exist."""
        if self.etcd.pid is None:
            self.etcd.start()
        if self.process.pid is None:
            self.process.start()
        wait_until("kube-apiserver to be ready", self._ready, needs=[self.etcd, self.process])

    def stop(self) -> None:
        """Take the API server away, as in an outage: connections break at once. etcd keeps the objects for `start`."""
        self.process.kill()

    def close(self) -> None:
        """End both processes and remove the directory."""
        self.process.kill()
        self.etcd.kill()
        end_processes(self.directory)
        for reserved in self._ports:
            reserved.release()
        shutil.rmtree(self.directory, ignore_errors=True)

    def _ready(self) -> bool:
        try:
            return (
                self.request("GET", "/readyz")[0] == 200 and self.request("GET", "/api/v1/namespaces/default")[0] == 200
            )
        except (OSError, http.client.HTTPException):
            return False

    def request(
        self,
        method: str,
        path: str,
        body: object = None,
        *,
        content_type: str = "application/json",
        token: str | None = None,
    ) -> tuple[int, Json]:
        """One request, as admin or as the bearer of ``token``.

        Returns:
            The status code and the decoded answer (``{"text": …}`` when it is not JSON).
        """
        address = urlsplit(self.url)
        tls = self._tls if token is None else ssl.create_default_context(cafile=str(self.pki.ca))
        connection = http.client.HTTPSConnection(address.hostname or "", address.port, context=tls, timeout=60)
        headers = {"Content-Type": content_type, "Accept": "application/json"}
        if token is not None:
            headers["Authorization"] = f"Bearer {token}"
        try:
            payload = None if body is None else body if isinstance(body, (str, bytes)) else json.dumps(body)
            connection.request(method, path, body=payload, headers=headers)
            answer = connection.getresponse()
            text = answer.read().decode()
        finally:
            connection.close()
        try:
            decoded = json.loads(text)
        except ValueError:
            decoded = {"text": text}
        return answer.status, decoded if isinstance(decoded, dict) else {"value": decoded}

    def get(self, path: str) -> tuple[int, Json]:
        return self.request("GET", path)

    def post(self, path: str, body: object) -> tuple[int, Json]:
        return self.request("POST", path, body)

    def put(self, path: str, body: object) -> tuple[int, Json]:
        return self.request("PUT", path, body)

    def patch(self, path: str, body: object, content_type: str = MERGE_PATCH) -> tuple[int, Json]:
        return self.request("PATCH", path, body, content_type=content_type)

    def delete(self, path: str, body: object = None) -> tuple[int, Json]:
        return self.request("DELETE", path, body)

    def items(self, path: str) -> list[Json]:
        """The items of a list; fails the caller with the server's answer when it can't be read."""
        status, body = self.get(path)
        assert status == 200, f"GET {path}: {status} {body.get('message', body)}"
        listed: list[Json] = body["items"]
        return listed

    def kubectl(
        self, *arguments: str, stdin: str | None = None, check: bool = True, kubeconfig: Path | None = None
    ) -> str:
        """Run kubectl 1.37.2; returns its standard output.

        Raises:
            AssertionError: it failed and ``check`` is set; the message has both of its outputs.
        """
        done = subprocess.run(
            [*self.kubectl_command(kubeconfig), *arguments],
            input=stdin,
            stdin=subprocess.DEVNULL if stdin is None else None,
            capture_output=True,
            text=True,
        )
        if check and done.returncode != 0:
            raise AssertionError(f"kubectl {' '.join(arguments)}: {done.stderr}{done.stdout}")
        return done.stdout if done.returncode == 0 else done.stdout + done.stderr

    def kubectl_command(self, kubeconfig: Path | None = None) -> list[str]:
        """The start of a kubectl command line, for those that run in the background."""
        return [str(program("kubectl")), f"--kubeconfig={kubeconfig or self.kubeconfig}"]

    def service_account_token(self, namespace: str, name: str, *, pod: Json | None = None) -> str:
        """A token as a Pod's ServiceAccount has it; bound to ``pod`` (the object) when given, which adds its node
        name.
        """
        spec: Json = {"expirationSeconds": 3600}
        if pod is not None:
            metadata = pod["metadata"]
            spec["boundObjectRef"] = {
                "apiVersion": "v1",
                "kind": "Pod",
                "name": metadata["name"],
                "uid": metadata["uid"],
            }
        path = f"/api/v1/namespaces/{namespace}/serviceaccounts/{name}/token"
        review = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": spec}
        status, body = self.post(path, review)
        if status != 201:
            raise StartFailed(f"no token for serviceaccount {namespace}/{name}: {status} {body.get('message')}")
        token: str = body["status"]["token"]
        return token

    def token_kubeconfig(self, token: str, path: Path, *, namespace: str = "default") -> Path:
        """Write a kubeconfig for the bearer of ``token``."""
        write_kubeconfig(path, self.url, self.pki.ca, {"token": token}, namespace)
        return path


@contextmanager
def served(**options: Any) -> Iterator[ApiServer]:
    """A started server for the body of a fixture, with the options of `ApiServer`; the test is skipped where the
    machine can't run one (a failure with CI set)."""
    try:
        server = ApiServer(**options)
    except Unavailable as reason:
        skip_or_fail(reason)
    try:
        server.start()
        yield server
    finally:
        server.close()


def _pairs(flag: str, values: Mapping[str, bool] | None) -> list[str]:
    if not values:
        return []
    return [f"{flag}=" + ",".join(f"{name}={str(value).lower()}" for name, value in values.items())]
