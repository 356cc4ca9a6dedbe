"""The driver's edge against the kubelet's own plugin and DRA managers (`tests/minikubelet`).

PodResources is served by a part of the kubelet that minikubelet does not have; it is tested on the real cluster.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from dra_driver.errors import EnvironmentFault
from dra_driver.kubelet.health import DeviceHealth, Health
from dra_driver.kubelet.server import PluginServer
from dra_driver.model.prepared import ClaimRef, PreparedDevice
from tests.cluster.availability import Unavailable, skip_or_fail
from tests.kubelet.plugin import DRIVER, Preparer, options, sockets_in, uids
from tests.minikubelet import MiniKubelet, OperationFailed, compiled
from tests.minikubelet.objects import claim, pod, prepared_devices, resource_slice

pytestmark = pytest.mark.integration

POD = pod("p", "a")
LONG = "a-driver-with-a-very-long-name-of-sixty-three-bytes.example.com"


@pytest.fixture(scope="module", autouse=True)
def _program() -> None:
    try:
        compiled()
    except Unavailable as reason:
        skip_or_fail(reason)


@pytest.fixture
async def kubelet(root: Path) -> AsyncIterator[MiniKubelet]:
    """Running, with the allocated claims ``a`` and ``b`` reserved for Pod ``p``."""
    async with MiniKubelet(root) as running:
        for name in ("a", "b"):
            await running.apply(claim(name, f"gpu-{name}", driver=DRIVER, pods=["p", "q"]))
        yield running


@asynccontextmanager
async def plugin(kubelet: MiniKubelet, preparer: Preparer | None = None, **changes: Any) -> AsyncIterator[PluginServer]:
    """A registered plugin with production's look at its sockets."""
    health = changes.pop("health", None)
    server = PluginServer(
        options(kubelet.root, **({"poll_seconds": 1.0} | changes)), preparer or Preparer(), health=health
    )
    await server.start()
    try:
        async with asyncio.timeout(60):
            await server.wait_registered()
        yield server
    finally:
        await server.stop(5)


async def until(condition: Callable[[], Awaitable[bool]], seconds: float = 60) -> None:
    """Waits until it holds; the limit only keeps a broken test from hanging."""
    async with asyncio.timeout(seconds):
        while not await condition():
            await asyncio.sleep(0.1)


async def happens(kubelet: MiniKubelet, event: str, driver: str = DRIVER, times: int = 1) -> list[dict[str, Any]]:
    """Waits for the plugin manager's decision; returns everything that happened meanwhile."""
    seen: list[Any] = []

    async def enough() -> bool:
        seen.extend(await kubelet.registrations())
        return len([1 for entry in seen if (entry["event"], entry["driver"]) == (event, driver)]) >= times

    await until(enough)
    return seen


@pytest.mark.parametrize(
    ("changes", "versions"),
    [
        pytest.param({}, ["v1.DRAPlugin", "v1beta1.DRAPlugin"], id="two-sockets"),
        pytest.param({"single_socket": True}, ["v1.DRAPlugin", "v1beta1.DRAPlugin"], id="one-socket"),
        pytest.param({"versions": ("v1beta1",)}, ["v1beta1.DRAPlugin"], id="v1beta1-only"),
        pytest.param({"versions": ("v1",)}, ["v1.DRAPlugin"], id="v1-only"),
    ],
)
async def test_a_pod_gets_its_devices(kubelet: MiniKubelet, changes: dict[str, Any], versions: list[str]) -> None:
    preparer = Preparer()
    with pytest.raises(OperationFailed, match=f"DRA driver {DRIVER} is not registered"):
        await kubelet.prepare(POD)
    async with plugin(kubelet, preparer, **changes) as server:
        validated, registered = await happens(kubelet, "register")
        assert (validated["event"], validated["versions"]) == ("validate", versions)
        assert (registered["endpoint"], registered.get("error")) == (str(server.endpoint), None)
        await kubelet.prepare(POD)
        assert preparer.prepared == [(ClaimRef("default", "a", "uid-of-a"),)]
        assert await kubelet.cdi(POD) == {"main": ["example.com/gpu=uid-of-a-gpu-0"], "other": []}
        assert prepared_devices((await kubelet.claims(POD))["main"]) == ["gpu-0"]
        await kubelet.unprepare(POD)
        assert preparer.unprepared == [(ClaimRef("default", "a", "uid-of-a"),)]
    await happens(kubelet, "deregister")
    assert sockets_in(kubelet.root) == []
    with pytest.raises(OperationFailed, match=f"DRA driver {DRIVER} is not registered"):
        await kubelet.prepare(POD)


async def test_the_kubelet_refuses_and_we_know_why(kubelet: MiniKubelet) -> None:
    async with plugin(kubelet) as first:
        # A second registration of the same endpoint, which only a mistake in the setup can bring about.
        second = PluginServer(options(kubelet.root, driver=DRIVER, pod_uid="other"), Preparer())
        second._registration._info.endpoint = str(first.endpoint)
        await second.start()

        async def refused() -> bool:
            return bool(second.registration.problem)

        await until(refused)
        problem = second.registration.problem
        await second.stop(1)
    assert problem.startswith(
        f"the kubelet refused driver {DRIVER}: RegisterPlugin error -- plugin registration failed"
    )
    assert f"endpoint {first.endpoint} already registered for DRA driver plugin {DRIVER}" in problem


async def test_two_claims_of_a_pod_come_in_one_call(kubelet: MiniKubelet) -> None:
    preparer = Preparer()
    async with plugin(kubelet, preparer):
        both = pod("p", "a", "b")
        await kubelet.prepare(both)
        assert uids(preparer.prepared) == [["uid-of-a", "uid-of-b"]]
        # The kubelet keeps a container's claims in a map: their order is chance (GetResources of 1.37.2).
        ids = (await kubelet.cdi(both))["main"]
        assert sorted(ids) == ["example.com/gpu=uid-of-a-gpu-0", "example.com/gpu=uid-of-b-gpu-0"]
        await kubelet.unprepare(both)
        assert uids(preparer.unprepared) == [["uid-of-a", "uid-of-b"]]


async def test_the_cause_reaches_the_user_and_a_retry_succeeds(kubelet: MiniKubelet) -> None:
    fault = EnvironmentFault("GPU gpu-a (UUID GPU-1) has no device node", hint="run nvidia-modprobe -u -c=0")
    fault.__cause__ = FileNotFoundError(2, "No such file or directory", "/dev/nvidia0")
    preparer = Preparer(answers={"uid-of-a": fault})
    both = pod("p", "a", "b")
    async with plugin(kubelet, preparer):
        with pytest.raises(OperationFailed) as caught:
            await kubelet.prepare(both)
        assert str(caught.value) == (
            "prepare dynamic resources: NodePrepareResources failed for ResourceClaim a: "
            "GPU gpu-a (UUID GPU-1) has no device node (run nvidia-modprobe -u -c=0): "
            "[Errno 2] No such file or directory: '/dev/nvidia0'"
        )
        preparer.answers.clear()
        await kubelet.prepare(both)
        # The whole batch is asked for again, also what had succeeded.
        assert uids(preparer.prepared) == [["uid-of-a", "uid-of-b"]] * 2
        preparer.unprepare_answers["uid-of-b"] = EnvironmentFault("device gpu-b is in use by process 7")
        with pytest.raises(OperationFailed, match="ResourceClaim b: device gpu-b is in use by process 7"):
            await kubelet.unprepare(both)
        preparer.unprepare_answers.clear()
        await kubelet.unprepare(both)


@pytest.mark.parametrize(
    ("preparer", "text"),
    [
        pytest.param(
            Preparer(answers={"uid-of-a": None}, extra={"uid-x": ()}),
            "ResourceClaim a: prepare gave no result for this claim; this is a bug in dra-driver",
            id="claim-left-out",
        ),
        pytest.param(
            Preparer(raises=ZeroDivisionError("division by zero")),
            "ResourceClaim a: prepare failed: ZeroDivisionError: division by zero; this is a bug in dra-driver",
            id="exception",
        ),
    ],
)
async def test_a_bug_in_the_preparer_is_named_too(kubelet: MiniKubelet, preparer: Preparer, text: str) -> None:
    async with plugin(kubelet, preparer):
        with pytest.raises(OperationFailed, match=text):
            await kubelet.prepare(POD)


async def test_one_claim_of_two_pods_is_prepared_once(kubelet: MiniKubelet) -> None:
    preparer = Preparer()
    async with plugin(kubelet, preparer):
        for name in ("p", "q", "p"):
            await kubelet.prepare(pod(name, "a"))
        assert uids(preparer.prepared) == [["uid-of-a"]]
        await kubelet.unprepare(pod("p", "a"))
        assert preparer.unprepared == []
        await kubelet.unprepare(pod("q", "a"))
        assert uids(preparer.unprepared) == [["uid-of-a"]]


async def test_pods_are_prepared_at_the_same_time(kubelet: MiniKubelet) -> None:
    preparer = Preparer(gate=asyncio.Event())
    async with plugin(kubelet, preparer):
        running = [
            asyncio.ensure_future(kubelet.prepare(pod("p", "a"))),
            asyncio.ensure_future(kubelet.prepare(pod("q", "b"))),
        ]

        async def both() -> bool:
            return preparer.running == 2

        await until(both)
        assert preparer.gate is not None
        preparer.gate.set()
        await asyncio.gather(*running)


async def test_request_names_decide_what_a_container_gets(kubelet: MiniKubelet) -> None:
    answers = (
        PreparedDevice(("gpu/large",), "node-1", "gpu-0", ("example.com/gpu=0",)),
        PreparedDevice(("nic",), "node-1", "nic-0", ("example.com/nic=0",)),
    )
    wanted = pod("p", "a")
    wanted["spec"]["containers"][0]["resources"]["claims"] = [{"name": "a", "request": "gpu"}]
    wanted["spec"]["containers"][1]["resources"] = {"claims": [{"name": "a"}]}
    async with plugin(kubelet, Preparer(answers={"uid-of-a": answers})):
        await kubelet.prepare(wanted)
        assert await kubelet.cdi(wanted) == {
            "main": ["example.com/gpu=0"],
            "other": ["example.com/gpu=0", "example.com/nic=0"],
        }


async def test_share_ids_reach_the_kubelet(kubelet: MiniKubelet) -> None:
    answers = (PreparedDevice(("gpu",), "node-1", "gpu-0", ("example.com/gpu=0",), "share-1"),)
    async with plugin(kubelet, Preparer(answers={"uid-of-a": answers})):
        await kubelet.prepare(POD)
        (info,) = (await kubelet.claims(POD))["main"]
        assert [device["ShareID"] for device in info["DriverState"][DRIVER]["Devices"]] == ["share-1"]


async def test_several_drivers_of_one_process(kubelet: MiniKubelet) -> None:
    first, second = Preparer(), Preparer()
    other = "compute-domain.example.com"
    await kubelet.apply(claim("c", "channel-0", driver=other, pods=["p"]))
    async with plugin(kubelet, first), plugin(kubelet, second, driver=other):
        await kubelet.prepare(pod("p", "a", "c"))
    assert (uids(first.prepared), uids(second.prepared)) == ([["uid-of-a"]], [["uid-of-c"]])


@pytest.mark.parametrize("changes", [{}, {"single_socket": True}], ids=["two-sockets", "one-socket"])
async def test_the_driver_restarts(kubelet: MiniKubelet, changes: dict[str, Any]) -> None:
    first, second = Preparer(), Preparer()
    async with plugin(kubelet, first, **changes):
        await kubelet.prepare(POD)
    async with plugin(kubelet, second, **changes):
        # Prepared in this life of the kubelet, whatever became of the driver.
        await kubelet.prepare(pod("q", "a"))
        assert second.prepared == []
        for name in ("p", "q"):
            await kubelet.unprepare(pod(name, "a"))
    assert (uids(first.unprepared), uids(second.unprepared)) == ([], [["uid-of-a"]])


@pytest.mark.parametrize("crash", [False, True], ids=["stopped", "killed"])
async def test_the_kubelet_restarts(root: Path, crash: bool) -> None:
    preparer = Preparer()
    server = PluginServer(options(root), preparer)
    await server.start()
    try:
        async with MiniKubelet(root) as kubelet:
            await kubelet.apply(claim("a", "gpu-a", driver=DRIVER, pods=["p"]))
            await happens(kubelet, "register")
            await kubelet.prepare(POD)
            if crash:
                await kubelet.kill()
        async with MiniKubelet(root, active=[POD]) as kubelet:
            await kubelet.apply(claim("a", "gpu-a", driver=DRIVER, pods=["p"]))
            await happens(kubelet, "register")
            # "Prepared" is not in the kubelet's checkpoint, the Pod's use of the claim is.
            await kubelet.prepare(POD)
            assert uids(preparer.prepared) == [["uid-of-a"]] * 2
            await kubelet.unprepare(POD)
            assert uids(preparer.unprepared) == [["uid-of-a"]]
    finally:
        await server.stop(1)


async def test_a_pod_that_ended_while_the_kubelet_was_away(root: Path) -> None:
    """The kubelet's loop for inactive Pods comes every minute; its first round may find no driver yet."""
    preparer = Preparer()
    server = PluginServer(options(root), preparer)
    await server.start()
    try:
        async with MiniKubelet(root) as kubelet:
            await kubelet.apply(claim("a", "gpu-a", driver=DRIVER, pods=["p"]))
            await happens(kubelet, "register")
            await kubelet.prepare(POD)
        async with MiniKubelet(root):

            async def unprepared() -> bool:
                return uids(preparer.unprepared) == [["uid-of-a"]]

            await until(unprepared, 150)
    finally:
        await server.stop(1)


@pytest.mark.parametrize("which", ["socket", "directory"])
async def test_the_registration_vanishes_while_the_kubelet_is_away(root: Path, which: str) -> None:
    server = PluginServer(options(root), Preparer())
    await server.start()
    try:
        async with MiniKubelet(root) as kubelet:
            await happens(kubelet, "register")
        server.registration_socket.unlink()
        if which == "directory":
            server.registration_socket.parent.rmdir()
        async with MiniKubelet(root) as kubelet:
            await kubelet.apply(claim("a", "gpu-a", driver=DRIVER, pods=["p"]))
            await happens(kubelet, "register")
            await kubelet.prepare(POD)
    finally:
        await server.stop(1)


async def test_a_socket_removed_under_a_running_kubelet(kubelet: MiniKubelet) -> None:
    async with plugin(kubelet) as server:
        await happens(kubelet, "register")
        server.registration_socket.unlink()
        events = [entry["event"] for entry in await happens(kubelet, "register")]
        assert events[-2:] == ["validate", "register"]
        await kubelet.prepare(POD)


async def test_rolling_update(kubelet: MiniKubelet) -> None:
    old, new = Preparer(), Preparer()
    async with plugin(kubelet, old, pod_uid="uid-old"):
        await kubelet.prepare(POD)
        async with plugin(kubelet, new, pod_uid="uid-new"):
            await happens(kubelet, "register", times=2)
            await kubelet.prepare(pod("q", "b"))
            assert (uids(old.prepared), uids(new.prepared)) == ([["uid-of-a"]], [["uid-of-b"]])
            assert len(sockets_in(kubelet.root)) == 4
        # The new one fails and leaves: the old one is still there and serves again.
        await happens(kubelet, "deregister")
        assert sockets_in(kubelet.root) == ["dra-uid-old.sock", f"{DRIVER}-uid-old-reg.sock"]
        await kubelet.unprepare(pod("q", "b"))
        assert uids(old.unprepared) == [["uid-of-b"]]
    assert sockets_in(kubelet.root) == []


@pytest.mark.parametrize("uid", ["", "6a1f3c1e-0e4e-4f0e-9d0a-1f0b7a3c2d4e"], ids=["one-instance", "rolling"])
async def test_the_longest_driver_name(kubelet: MiniKubelet, uid: str) -> None:
    await kubelet.apply(claim("c", "gpu-0", driver=LONG, pods=["p"]))
    preparer = Preparer()
    async with plugin(kubelet, preparer, driver=LONG, pod_uid=uid):
        await kubelet.prepare(pod("p", "c"))
    assert uids(preparer.prepared) == [["uid-of-c"]]


async def test_stop_waits_for_a_call_whose_result_the_next_instance_finds(kubelet: MiniKubelet) -> None:
    preparer = Preparer(gate=asyncio.Event())
    server = PluginServer(options(kubelet.root), preparer)
    await server.start()
    await happens(kubelet, "register")
    call = asyncio.ensure_future(kubelet.prepare(POD))

    async def running() -> bool:
        return preparer.running == 1

    await until(running)
    stopping = asyncio.ensure_future(server.stop(30))
    await happens(kubelet, "deregister")
    # The kubelet closes its connection as soon as the driver is deregistered; the work is not lost by that.
    with pytest.raises(OperationFailed, match="prepare dynamic resources: NodePrepareResources: rpc error"):
        await call
    assert (preparer.running, stopping.done()) == (1, False)
    assert preparer.gate is not None
    preparer.gate.set()
    await stopping
    assert preparer.completed == 1


class Monitor:
    """A health source that is told what to say."""

    def __init__(self) -> None:
        self.lists: asyncio.Queue[list[DeviceHealth]] = asyncio.Queue()

    async def watch(self) -> AsyncIterator[list[DeviceHealth]]:
        while True:
            yield await self.lists.get()


async def test_health_reaches_the_pods_status(kubelet: MiniKubelet) -> None:
    monitor = Monitor()
    resource = "example.com/gpu=uid-of-a-gpu-0"
    async with plugin(kubelet, health=monitor):
        (validated, *_) = await happens(kubelet, "register")
        assert validated["versions"][2:] == ["v1.DRAResourceHealth", "v1alpha1.DRAResourceHealth"]
        await kubelet.prepare(POD)

        async def shows(health: str, message: str) -> None:
            async def shown() -> bool:
                return (await kubelet.health(POD))["main"] == [(resource, health, message)]

            await until(shown)

        await shows("Unknown", "")
        await monitor.lists.put([DeviceHealth("node-1", "gpu-0", Health.HEALTHY)])
        await shows("Healthy", "")
        await monitor.lists.put([DeviceHealth("node-1", "gpu-0", Health.UNHEALTHY, "XID 79")])
        await shows("Unhealthy", "XID 79")
        assert (await kubelet.health(POD))["other"] == []
    await shows("Unknown", "")


async def test_slices_are_wiped_only_of_drivers_that_stay_away(kubelet: MiniKubelet) -> None:
    """The kubelet removes a driver's slices 30 s after its last instance left; a quick restart keeps them."""
    away, back = "away.example.com", "back.example.com"
    for driver in (away, back):
        await kubelet.apply(resource_slice(f"slice-of-{driver}", driver=driver))
    async with plugin(kubelet, driver=away), plugin(kubelet, driver=back):
        assert len(await kubelet.slices()) == 2
    async with plugin(kubelet, driver=back):

        async def wiped() -> bool:
            return len(await kubelet.slices()) < 2

        await until(wiped, 120)
        # Both timers began together, so the other one would have fired by now.
        await asyncio.sleep(3)
        assert [entry["metadata"]["name"] for entry in await kubelet.slices()] == [f"slice-of-{back}"]


async def test_slices_of_the_node_are_wiped_when_the_kubelet_starts(root: Path) -> None:
    objects = [
        resource_slice("mine", driver=DRIVER),
        resource_slice("of-another-node", driver=DRIVER, node="node-2"),
    ]
    async with MiniKubelet(root, objects=objects) as kubelet:

        async def wiped() -> bool:
            return [entry["metadata"]["name"] for entry in await kubelet.slices()] == ["of-another-node"]

        await until(wiped)
