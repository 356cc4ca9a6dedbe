"""What a user applies is what a real API server takes: every field known, every right sufficient, and none too many."""

from __future__ import annotations

import argparse
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import dra_driver
from dra_driver.node import configuration
from tests.cluster import manifests
from tests.cluster.apiserver import ApiServer, served

pytestmark = pytest.mark.integration

Json = dict[str, Any]
SLICES = "/apis/resource.k8s.io/v1/resourceslices"
KUSTOMIZATIONS = {"base": manifests.DEPLOY, "described": manifests.DESCRIBED}
FILES = sorted([*manifests.EXAMPLES.glob("*.yaml"), *manifests.DEVICE_CLASSES.glob("gpu*.yaml")])


@pytest.fixture(scope="module")
def server() -> Iterator[ApiServer]:
    """An API server where `deploy/` has been applied with strict field validation."""
    with served() as own:
        own.kubectl("apply", "--validate=strict", "-k", str(manifests.DEPLOY))
        yield own


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_file_is_accepted_with_strict_validation(server: ApiServer, path: Path) -> None:
    for document in manifests.objects(path):
        if document["kind"] == "Namespace":  # the rest of the file goes into it
            server.post("/api/v1/namespaces", document)
    server.kubectl("apply", "--validate=strict", "--dry-run=server", "-f", str(path))


@pytest.mark.parametrize("path", KUSTOMIZATIONS.values(), ids=KUSTOMIZATIONS)
def test_kustomization_is_accepted_with_strict_validation(server: ApiServer, path: Path) -> None:
    server.kubectl("apply", "--validate=strict", "--dry-run=server", "-k", str(path))


@pytest.mark.parametrize("path", sorted(manifests.EXAMPLES.glob("*.yaml")), ids=lambda path: path.stem)
def test_example_says_what_it_shows(path: Path) -> None:
    comment = re.match(r"(?:#.*\n)+", path.read_text())
    assert comment is not None
    assert len(comment.group()) > 150


@pytest.mark.parametrize("path", KUSTOMIZATIONS.values(), ids=KUSTOMIZATIONS)
def test_account_of_the_daemon_set_is_the_one_with_the_rights_and_the_policy(server: ApiServer, path: Path) -> None:
    documents = manifests.rendered(server, path)
    pod = manifests.of_kind(documents, "DaemonSet")["spec"]["template"]["spec"]
    namespace = manifests.of_kind(documents, "DaemonSet")["metadata"]["namespace"]
    account = {"kind": "ServiceAccount", "name": pod["serviceAccountName"], "namespace": namespace}
    policy = manifests.of_kind(documents, "ValidatingAdmissionPolicy")["spec"]
    pattern = re.search(r'"(.*)"', policy["matchConditions"][0]["expression"])

    assert manifests.of_kind(documents, "ServiceAccount")["metadata"]["name"] == pod["serviceAccountName"]
    assert manifests.of_kind(documents, "ClusterRoleBinding")["subjects"] == [account]
    assert pattern is not None
    assert re.fullmatch(pattern.group(1), f"system:serviceaccount:{namespace}:{pod['serviceAccountName']}")


@pytest.mark.parametrize("path", KUSTOMIZATIONS.values(), ids=KUSTOMIZATIONS)
def test_arguments_and_image_fit_this_version_of_the_daemon(server: ApiServer, path: Path) -> None:
    pod = manifests.of_kind(manifests.rendered(server, path), "DaemonSet")["spec"]["template"]["spec"]
    (container,) = pod["containers"]
    parser = argparse.ArgumentParser()
    configuration.add_flags(parser)
    command, *flags = container["args"]

    settings = configuration.load(parser.parse_args(flags), {"NODE_NAME": "node-a", "POD_UID": "u"})

    assert command == "node"
    assert settings.inventory == ("profile:dgx-h100" if path == manifests.DESCRIBED else "nvml")
    assert {each["image"] for each in manifests.containers(pod)} == {f"dra-driver:{dra_driver.__version__}"}
    mounted = {mount["mountPath"] for mount in container["volumeMounts"]}
    assert {settings.kubelet_plugins_dir, settings.kubelet_registry_dir, settings.cdi_dir, settings.sys_root} <= mounted
    assert str(Path(settings.pod_resources_socket).parent) in mounted
    port = configuration.parse_address(settings.http_address)[1]
    assert [declared["containerPort"] for declared in container["ports"]] == [port]


# --- the policy that pins a node to its own slices


def token_of_a_pod(server: ApiServer, node: str | None, account: str = manifests.ACCOUNT) -> str:
    """A token as the kubelet of ``node`` would project it into the daemon's Pod; unbound when ``node`` is None."""
    if node is None:
        return server.service_account_token(manifests.NAMESPACE, account)
    body = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"generateName": "daemon-"},
        "spec": {
            "serviceAccountName": account,
            "nodeName": node,
            "containers": [{"name": "main", "image": "dra-driver"}],
        },
    }
    status, pod = server.post(f"/api/v1/namespaces/{manifests.NAMESPACE}/pods", body)
    assert status == 201, pod
    return server.service_account_token(manifests.NAMESPACE, account, pod=pod)


def kubectl_as(server: ApiServer, token: str, *arguments: str, stdin: str | None = None) -> str:
    path = server.token_kubeconfig(token, server.directory / "as-account.kubeconfig", namespace=manifests.NAMESPACE)
    return server.kubectl(*arguments, stdin=stdin, check=False, kubeconfig=path)


def resource_slice(name: str, node: str | None, *, pool: str | None = None, driver: str = "gpu.nvidia.com") -> Json:
    where: Json = {"allNodes": True} if node is None else {"nodeName": node}
    spec = {
        "driver": driver,
        "pool": {"name": pool or node or "everywhere", "generation": 1, "resourceSliceCount": 1},
        "devices": [{"name": "gpu-0"}],
    }
    return {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceSlice",
        "metadata": {"name": name},
        "spec": spec | where,
    }


class Writer:
    """Writes slices with one token and reports what the API server said."""

    def __init__(self, server: ApiServer, token: str) -> None:
        self._server, self._token = server, token

    def write(self, method: str, path: str, body: Json | None = None) -> tuple[int, str]:
        status, answer = self._server.request(method, path, body, token=self._token)
        return status, str(answer.get("message", ""))

    def create(self, body: Json) -> tuple[int, str]:
        return self.write("POST", SLICES, body)


@pytest.fixture(scope="module")
def node_a(server: ApiServer) -> Writer:
    """The daemon on node-a, once the policy is in force (the API server takes new policies up in the background)."""
    from tests.cluster.processes import wait_until

    writer = Writer(server, token_of_a_pod(server, "node-a"))

    def bites() -> bool:
        status, _ = writer.create(resource_slice("probe", "node-b"))
        if status == 201:
            server.delete(f"{SLICES}/probe")
        return status == 403

    wait_until("the policy to be in force", bites, timeout=30)
    return writer


def test_own_slices_can_be_created_changed_and_deleted(node_a: Writer) -> None:
    status, message = node_a.create(resource_slice("own", "node-a"))
    assert status == 201, message

    changed = resource_slice("own", "node-a")
    changed["spec"]["devices"] = [{"name": "gpu-1"}]
    assert node_a.write("PUT", f"{SLICES}/own", changed)[0] == 200
    assert node_a.write("DELETE", f"{SLICES}/own")[0] == 200


@pytest.mark.parametrize(
    ("body", "said"),
    [
        pytest.param(
            resource_slice("x", "node-b"),
            'the driver on node "node-a" may not create a ResourceSlice of node "node-b"',
            id="another node",
        ),
        pytest.param(
            resource_slice("x", None),
            'the driver on node "node-a" may not create a ResourceSlice of no particular node',
            id="all nodes",
        ),
        pytest.param(
            resource_slice("x", "node-a", pool="node-b"),
            'the driver on node "node-a" may not write pool "node-b"',
            id="pool of another node",
        ),
        pytest.param(
            resource_slice("x", "node-a", driver="other.example.com"),
            'dra-driver-node may not write slices of driver "other.example.com"',
            id="another driver",
        ),
    ],
)
def test_slices_of_others_are_refused(node_a: Writer, body: Json, said: str) -> None:
    status, message = node_a.create(body)

    assert status == 403
    assert said in message


def test_slices_of_another_node_can_be_neither_changed_nor_deleted(server: ApiServer, node_a: Writer) -> None:
    other = resource_slice("of-b", "node-b")
    assert server.post(SLICES, other)[0] == 201  # an administrator is not restricted
    stolen = resource_slice("of-b", "node-b")
    stolen["spec"]["devices"] = []

    assert node_a.write("PUT", f"{SLICES}/of-b", stolen)[0] == 403
    assert node_a.write("DELETE", f"{SLICES}/of-b")[0] == 403
    assert server.delete(f"{SLICES}/of-b")[0] == 200


def test_token_without_a_node_is_refused(server: ApiServer, node_a: Writer) -> None:
    status, message = Writer(server, token_of_a_pod(server, None)).create(resource_slice("x", "node-a"))

    assert status == 403
    assert "not bound to a Pod on a node" in message


# --- the role

NEEDED = [
    "get resourceclaims.resource.k8s.io",
    "get nodes",
    "get pods",
    "create events",
    "patch events",
    *(f"{verb} resourceslices.resource.k8s.io" for verb in ("list", "watch", "create", "update", "delete")),
]
REFUSED = [
    "get resourceslices.resource.k8s.io",
    "patch resourceslices.resource.k8s.io",
    "list resourceclaims.resource.k8s.io",
    "update resourceclaims.resource.k8s.io",
    "update resourceclaims.resource.k8s.io --subresource=status",
    "deletecollection resourceslices.resource.k8s.io",
    "list secrets",
    "list pods",
    "create pods",
    "update nodes",
    "list nodes",
    "create serviceaccounts --subresource=token",
]


@pytest.mark.parametrize(
    ("question", "answer"), [*((question, "yes") for question in NEEDED), *((question, "no") for question in REFUSED)]
)
def test_role_allows_what_the_daemon_does_and_nothing_more(server: ApiServer, question: str, answer: str) -> None:
    said = kubectl_as(server, token_of_a_pod(server, None), "auth", "can-i", *question.split(), "--all-namespaces")

    assert said.splitlines()[0] == answer
