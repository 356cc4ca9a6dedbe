"""The same scenarios against kube-apiserver 1.37: credentials, watches, outages, and slices as it stores them."""

from __future__ import annotations

import asyncio
import shutil
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

import pytest
import yaml

from dra_driver.kube import kubeconfig
from dra_driver.kube.backoff import Backoff
from dra_driver.kube.claims import ClaimReader
from dra_driver.kube.client import ApiClient
from dra_driver.kube.config import ApiConfig
from dra_driver.kube.errors import Conflict, Forbidden, Gone, Invalid, NotFound, Unauthorized, Unavailable
from dra_driver.kube.events import EventRecorder, ObjectReference
from dra_driver.kube.publish import SlicePublisher
from dra_driver.kube.reflector import Reflector
from dra_driver.kube.resources import (
    DEVICE_CLASSES,
    EVENTS,
    NAMESPACES,
    NODES,
    RESOURCE_CLAIMS,
    RESOURCE_SLICES,
)
from dra_driver.model.prepared import ClaimRef
from dra_driver.model.quantity import Quantity
from dra_driver.model.resource import (
    Counter,
    CounterSet,
    Device,
    DeviceAttribute,
    DeviceCounterConsumption,
    DeviceTaint,
)
from dra_driver.model.strict_json import repeated_fields
from tests.cluster.apiserver import ApiServer, served
from tests.kube.fake_apiserver import until
from tests.kube.test_publish import Observer, Slice, gpus

pytestmark = pytest.mark.integration

DRIVER = "gpu.example.com"


@pytest.fixture
async def real(apiserver: ApiServer) -> AsyncIterator[ApiClient]:
    async with ApiClient(kubeconfig.load(apiserver.kubeconfig)) as client:
        yield client


def node(name: str) -> dict[str, Any]:
    return {"apiVersion": "v1", "kind": "Node", "metadata": {"name": name}}


class Published:
    """A publisher at work for one node of the real server."""

    def __init__(self, client: ApiClient, name: str) -> None:
        self.client = client
        self.node = name
        self.observer = Observer()
        self.publisher = SlicePublisher(client, DRIVER, name, observer=self.observer)

    async def slices(self) -> list[dict[str, Any]]:
        selector = f"spec.driver={DRIVER},spec.nodeName={self.node}"
        listed = await self.client.list(RESOURCE_SLICES, field_selector=selector)
        return sorted(listed.items, key=lambda s: str(s["metadata"]["name"]))

    async def devices(self) -> list[list[str]]:
        return [[d["name"] for d in s["spec"].get("devices") or ()] for s in await self.slices()]

    async def settled(self, *want: list[str]) -> None:
        async with asyncio.timeout(60):
            while await self.devices() != list(want) or self.publisher.state.last_success is None:
                await asyncio.sleep(0.02)


@asynccontextmanager
async def published(client: ApiClient, name: str, *slices: Slice) -> AsyncIterator[Published]:
    with suppress(Conflict):
        await client.create(NODES, node(name))
    work = Published(client, name)
    work.publisher.set_desired(slices)
    task = asyncio.create_task(work.publisher.run())
    try:
        yield work
    finally:
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        await work.publisher.uninstall()


async def test_client_certificates_of_files_and_of_data_authenticate(apiserver: ApiServer, tmp_path: Path) -> None:
    files = apiserver.pki
    user = {"client-certificate": str(files.certificate("admin")), "client-key": str(files.key("admin"))}
    config = {
        "current-context": "c",
        "clusters": [{"name": "c", "cluster": {"server": apiserver.url, "certificate-authority": str(files.ca)}}],
        "users": [{"name": "u", "user": user}],
        "contexts": [{"name": "c", "context": {"cluster": "c", "user": "u"}}],
    }
    path = tmp_path / "config"
    path.write_text(yaml.safe_dump(config))
    for source in (path, apiserver.kubeconfig):
        async with ApiClient(kubeconfig.load(source)) as client:
            assert (await client.get(NAMESPACES, "default"))["kind"] == "Namespace"


async def test_a_wrong_authority_is_a_tls_failure_with_a_hint(apiserver: ApiServer) -> None:
    config = ApiConfig(server=apiserver.url, source="test")
    async with ApiClient(config) as client:
        with pytest.raises(Unavailable, match="compare the cluster's CA") as caught:
            await client.get(NAMESPACES, "default")

    assert caught.value.reason == "TlsFailed"


async def test_a_server_name_replaces_the_host_in_verification(apiserver: ApiServer, tmp_path: Path) -> None:
    config = yaml.safe_load(apiserver.kubeconfig.read_text())
    for name, works in (("kubernetes.default.svc", True), ("elsewhere.example", False)):
        config["clusters"][0]["cluster"]["tls-server-name"] = name
        path = tmp_path / name
        path.write_text(yaml.safe_dump(config))
        async with ApiClient(kubeconfig.load(path)) as client:
            if works:
                await client.get(NAMESPACES, "default")
            else:
                with pytest.raises(Unavailable, match="TLS with"):
                    await client.get(NAMESPACES, "default")


async def test_a_service_account_token_is_used_renewed_and_refused_rights_are_named(
    apiserver: ApiServer, real: ApiClient, tmp_path: Path
) -> None:
    account = {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "plain"}}
    apiserver.post("/api/v1/namespaces/default/serviceaccounts", account)
    (tmp_path / "ca.crt").write_bytes(Path(apiserver.pki.ca).read_bytes())
    (tmp_path / "token").write_text("not.a.token")
    host, port = apiserver.url.removeprefix("https://").split(":")
    environ = {"KUBERNETES_SERVICE_HOST": host, "KUBERNETES_SERVICE_PORT": port}
    async with ApiClient(kubeconfig.in_cluster(environ=environ, service_account=tmp_path)) as client:
        with pytest.raises(Unauthorized):
            await client.get(NAMESPACES, "default")
        (tmp_path / "token").write_text(apiserver.service_account_token("default", "plain"))
        with pytest.raises(Forbidden, match="grant the verb to the driver's ServiceAccount") as caught:
            await client.get(NAMESPACES, "default")

    assert "system:serviceaccount:default:plain" in caught.value.server_message


async def test_changed_certificate_files_are_picked_up(apiserver: ApiServer, tmp_path: Path) -> None:
    files = apiserver.pki
    for name, source in (("c.pem", files.certificate("apiserver")), ("k.pem", files.key("apiserver"))):
        shutil.copy(source, tmp_path / name)  # a valid certificate of somebody without rights
    config = {
        "current-context": "c",
        "clusters": [{"name": "c", "cluster": {"server": apiserver.url, "certificate-authority": str(files.ca)}}],
        "users": [{"name": "u", "user": {"client-certificate": "c.pem", "client-key": "k.pem"}}],
        "contexts": [{"name": "c", "context": {"cluster": "c", "user": "u"}}],
    }
    (tmp_path / "config").write_text(yaml.safe_dump(config))
    async with ApiClient(kubeconfig.load(tmp_path / "config")) as client:
        with pytest.raises(Forbidden):
            await client.get(NAMESPACES, "default")
        shutil.copy(files.certificate("admin"), tmp_path / "c.pem")
        shutil.copy(files.key("admin"), tmp_path / "k.pem")
        client._transport._tls.look_again()
        assert await client.get(NAMESPACES, "default")


async def test_verbs_preconditions_and_conflicts(real: ApiClient) -> None:
    created = await real.create(NODES, node("verbs"))
    await real.patch(NODES, "verbs", {"metadata": {"labels": {"a": "b"}}})
    with pytest.raises(Conflict):
        await real.update(NODES, created | {"metadata": created["metadata"] | {"labels": {"c": "d"}}})
    with pytest.raises(Conflict):
        await real.delete(NODES, "verbs", uid="not-this-one")
    with pytest.raises(Conflict):
        await real.delete(NODES, "verbs", resource_version=created["metadata"]["resourceVersion"])
    applied = await real.patch(
        NODES, "verbs", node("verbs") | {"spec": {"unschedulable": True}}, kind="apply", field_manager="test"
    )
    assert applied["spec"]["unschedulable"] is True
    assert applied["metadata"]["labels"]["a"] == "b"
    await real.delete(NODES, "verbs", uid=applied["metadata"]["uid"])
    with pytest.raises(NotFound):
        await real.get(NODES, "verbs")


async def test_modify_survives_concurrent_writers(real: ApiClient) -> None:
    await real.create(NODES, node("busy"))

    def count(obj: dict[str, Any]) -> dict[str, Any]:
        labels = obj["metadata"].setdefault("labels", {})
        labels["count"] = str(int(labels.get("count", "0")) + 1)
        return obj

    await asyncio.gather(*(real.modify(NODES, "busy", None, count, tries=50) for _ in range(6)))

    assert (await real.get(NODES, "busy"))["metadata"]["labels"]["count"] == "6"


async def test_lists_are_paged(real: ApiClient) -> None:
    for number in range(7):
        body = {"apiVersion": "resource.k8s.io/v1", "kind": "DeviceClass"}
        await real.create(DEVICE_CLASSES, body | {"metadata": {"name": f"page-{number}", "labels": {"paged": "yes"}}})

    whole = await real.list(DEVICE_CLASSES, label_selector="paged=yes", limit=3)

    assert [o["metadata"]["name"] for o in whole.items] == [f"page-{n}" for n in range(7)]
    assert whole.items[0]["apiVersion"] == "resource.k8s.io/v1"


async def test_a_claim_is_read_and_an_event_recorded_on_it(real: ApiClient) -> None:
    request = {"name": "gpu", "exactly": {"deviceClassName": DRIVER}}
    created = await real.create(
        RESOURCE_CLAIMS,
        {
            "apiVersion": "resource.k8s.io/v1",
            "kind": "ResourceClaim",
            "metadata": {"name": "mine"},
            "spec": {"devices": {"requests": [request]}},
        },
        "default",
    )
    ref = ClaimRef("default", "mine", created["metadata"]["uid"])
    found = await ClaimReader(real).get(ref)
    assert found.spec.devices.requests[0].exactly is not None
    assert found.spec.devices.requests[0].exactly.device_class_name == DRIVER
    assert await ClaimReader(real).exists(ref)

    recorder = EventRecorder(real, "dra-driver", "node-a")
    task = asyncio.create_task(recorder.run())
    about = ObjectReference("ResourceClaim", "mine", "default", ref.uid, "resource.k8s.io/v1")
    for _ in range(2):
        recorder.record(about, "Warning", "PrepareFailed", "no such device")
    recorder.record(ObjectReference("Node", "node-a", uid="node-a"), "Normal", "Published", "8 devices")
    await recorder.flush(30)
    task.cancel()

    assert (recorder.written, recorder.dropped) == (3, {"queue-full": 0, "rate": 0, "error": 0})
    (event,) = (await real.list(EVENTS, "default", field_selector=f"involvedObject.uid={ref.uid}")).items
    assert (event["count"], event["message"]) == (2, "no such device")


async def test_slices_are_published_changed_and_removed(real: ApiClient) -> None:
    names = [f"gpu-{i:03}" for i in range(160)]
    async with published(real, "node-publish", gpus(*names[:128]), gpus(*names[128:])) as work:
        await work.settled(names[:128], names[128:])
        first = await work.slices()
        work.publisher.set_desired([gpus(*names[1:128]), gpus(*names[128:])])
        await work.settled(names[1:128], names[128:])
        second = await work.slices()
        assert [s["metadata"]["uid"] for s in second] == [s["metadata"]["uid"] for s in first]
        assert second[1]["metadata"]["resourceVersion"] == first[1]["metadata"]["resourceVersion"]
        assert [s["spec"]["pool"]["generation"] for s in second] == [1, 1]
        assert second[0]["metadata"]["managedFields"][0]["manager"] == "dra-driver"
        assert work.publisher.state.writes == 3
        assert work.publisher.state.dropped is None
        work.publisher.set_desired([gpus("only")])
        await work.settled(["only"])
    assert await work.slices() == []


async def test_everything_a_slice_can_hold_by_default_comes_back_equal(real: ApiClient) -> None:
    """Quantities the server rewrites, taint times it fills in, counters: none of it leads to another write."""
    counters = Slice(
        shared_counters=(CounterSet(name="gpu-0", counters={"memory": Counter(value=Quantity.parse("0.5Gi"))}),)
    )
    device = Device(
        name="gpu-0",
        attributes={
            "version": DeviceAttribute("version", "580.65.6"),
            "flag": DeviceAttribute("bool", False),
            "number": DeviceAttribute("int", 0),
            "text": DeviceAttribute("string", ""),
        },
        consumes_counters=(
            DeviceCounterConsumption(counter_set="gpu-0", counters={"memory": Counter(value=Quantity.parse("512Mi"))}),
        ),
        taints=(DeviceTaint(key="example.com/a", effect="NoSchedule"),),
    )
    async with published(real, "node-round-trip", counters, Slice((device,))) as work:
        await work.settled([], ["gpu-0"])
        await asyncio.sleep(1.5)

        assert work.publisher.state.writes == 2
        assert work.publisher.state.dropped is None


async def test_wiped_slices_are_back_within_two_seconds(real: ApiClient) -> None:
    async with published(real, "node-wiped", gpus("a"), gpus("b")) as work:
        await work.settled(["a"], ["b"])
        began = asyncio.get_running_loop().time()
        await real.delete_collection(RESOURCE_SLICES, field_selector="spec.nodeName=node-wiped")
        await work.settled(["a"], ["b"])

        assert asyncio.get_running_loop().time() - began < 2.0


async def test_a_foreign_change_is_undone(real: ApiClient) -> None:
    async with published(real, "node-foreign", gpus("a", "b")) as work:
        await work.settled(["a", "b"])
        (stored,) = await work.slices()

        def remove(obj: dict[str, Any]) -> dict[str, Any]:
            del obj["spec"]["devices"][0]
            return obj

        await real.modify(RESOURCE_SLICES, stored["metadata"]["name"], None, remove)
        assert await work.devices() == [["b"]]
        await work.settled(["a", "b"])


async def test_a_replaced_node_owns_its_slices_again(real: ApiClient) -> None:
    async with published(real, "node-replaced", gpus("a")) as work:
        await work.settled(["a"])
        await real.delete(NODES, "node-replaced")
        replaced = await real.create(NODES, node("node-replaced"))
        (stored,) = await work.slices()
        await real.delete(RESOURCE_SLICES, stored["metadata"]["name"])  # no garbage collector runs here
        await work.settled(["a"])

        (stored,) = await work.slices()
        assert stored["metadata"]["ownerReferences"][0]["uid"] == replaced["metadata"]["uid"]


async def test_a_refused_list_attribute_names_its_gate(real: ApiClient) -> None:
    device = Device(name="a", attributes={"numa": DeviceAttribute("ints", (0, 1))})
    async with published(real, "node-lists", Slice((device,))) as work:
        await until(lambda: work.observer.failures, seconds=60)

        assert isinstance(work.observer.failures[0], Invalid)
        assert "DRAListTypeAttributes is off" in str(work.observer.failures[0])
        work.publisher.set_desired([gpus("a")])
        await work.settled(["a"])


@pytest.fixture
def own_server() -> Iterator[ApiServer]:
    with served(feature_gates={"DRADeviceTaints": False, "DRADeviceTaintRules": False}) as server:
        yield server


async def test_dropped_fields_are_named_and_an_outage_is_survived(own_server: ApiServer) -> None:
    taints = (DeviceTaint(key="example.com/a", effect="NoSchedule"),)
    async with ApiClient(kubeconfig.load(own_server.kubeconfig)) as client:
        follow = Reflector(client, NODES, backoff=Backoff(0.1, 0.5))
        following = asyncio.create_task(follow.run())
        async with published(client, "node-a", gpus("a", taints=taints), gpus("b", taints=taints)) as work:
            await work.settled(["a"], ["b"])
            await until(lambda: work.observer.dropped, seconds=60)
            assert work.observer.dropped[0].gates == ("DRADeviceTaints",)
            assert "spec.devices[0].taints" in str(work.observer.dropped[0])
            await asyncio.sleep(1.0)
            assert work.publisher.state.writes == 2

            await asyncio.to_thread(own_server.stop)
            await until(lambda: follow.last_error is not None, seconds=60)
            with pytest.raises(Unavailable):
                await client.get(NODES, "node-a", timeout=0.5)
            await asyncio.to_thread(own_server.start)
            with pytest.raises(Gone, match="too old resource version"):  # a new server's watch cache starts at now
                await anext(client.watch(NODES, resource_version="1", timeout_seconds=5))
            await client.create(NODES, node("after"))
            await until(lambda: follow.store.get("after"), seconds=60)
            (stored, _) = await work.slices()
            await client.delete(RESOURCE_SLICES, stored["metadata"]["name"])
            await work.settled(["a"], ["b"])
        following.cancel()


async def test_a_field_of_opaque_parameters_that_was_written_twice_is_not_lost(
    real: ApiClient, apiserver: ApiServer
) -> None:
    text = (
        '{"apiVersion":"resource.k8s.io/v1","kind":"ResourceClaim","metadata":{"name":"written-twice"},"spec":{"devices":{'
        '"requests":[{"name":"gpu","exactly":{"deviceClassName":"gpu.example.com"}}],'
        '"config":[{"opaque":{"driver":"gpu.example.com","parameters":{"kind":"K","interval":"Short","interval":"Long"}}}]'
        "}}}"
    )
    path = "/apis/resource.k8s.io/v1/namespaces/default/resourceclaims"
    status, stored = apiserver.post(path, text.encode())
    assert status == 201, stored

    claim = await ClaimReader(real).get(ClaimRef("default", "written-twice", stored["metadata"]["uid"]))

    opaque = claim.spec.devices.config[0].opaque
    assert opaque is not None
    assert list(repeated_fields(opaque.parameters)) == ["interval"]
