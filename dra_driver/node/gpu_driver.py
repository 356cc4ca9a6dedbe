"""The DRA driver ``gpu.nvidia.com``: prepare, the kubelet's service, publishing and reconciliation of one driver.

A second driver in the same process (compute-domain.nvidia.com) is another object with the same four verbs.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from dra_driver.cdi.edits import EditsSource
from dra_driver.cdi.files import SpecDirectory
from dra_driver.devices.allocatable import AllocatableDevices
from dra_driver.devices.gpu import DRIVER
from dra_driver.errors import DraDriverError, EnvironmentFault
from dra_driver.kube.claims import ClaimReader
from dra_driver.kube.client import ApiClient
from dra_driver.kube.errors import NotFound
from dra_driver.kube.events import EventRecorder, ObjectReference
from dra_driver.kube.publish import SlicePublisher
from dra_driver.kube.publish_state import PublishObserver
from dra_driver.kube.resources import PODS
from dra_driver.kubelet.podresources import PodResources
from dra_driver.kubelet.registration import RegistrationState
from dra_driver.kubelet.server import PluginOptions, PluginServer
from dra_driver.kubelet.sockets import SocketInUse
from dra_driver.model.prepared import ClaimRef, PreparedDevice
from dra_driver.model.resource import Device, ResourceClaim
from dra_driver.node.configuration import NodeConfiguration
from dra_driver.node.discovery import Discovery
from dra_driver.node.hardware import boot_id_path
from dra_driver.node.metrics import Metrics
from dra_driver.prepare.fate import ClaimFate
from dra_driver.prepare.reconcile import Reconciler
from dra_driver.prepare.records import RecordStore, read_boot_id
from dra_driver.prepare.service import ClaimDone, PrepareService

log = logging.getLogger(__name__)

FIRST_LOOK_SECONDS = 20.0
"""How long a claim waits for the first look at the hardware; less than the kubelet waits (45 s)."""

SOCKET_RETRY_SECONDS = 2.0

RETRY_UNDECIDED_SECONDS = 60.0
"""A reconciliation that could not ask somebody is tried again sooner than the ordinary interval."""


@dataclass(frozen=True, slots=True)
class PublishedSlice:
    """What the publisher takes; counter sets join with partitionable devices."""

    devices: tuple[Device, ...]
    shared_counters: tuple[()] = ()


class _PublishMetrics(PublishObserver):
    def __init__(self, metrics: Metrics) -> None:
        self._failures = metrics.publish_failures.labels(DRIVER)

    def failed(self, error: EnvironmentFault, retry_in: float) -> None:
        self._failures.inc()


class _AfterFirstLook:
    """The service, with its first answers held back until the hardware has been looked at.

    A kubelet that was waiting for the driver calls at once; without the devices it would be refused and come back only
    after its back-off. Unprepare never waits.
    """

    def __init__(self, service: PrepareService, discovery: Discovery) -> None:
        self._service = service
        self._discovery = discovery

    async def prepare(self, claims: Sequence[ClaimRef]) -> Mapping[str, Sequence[PreparedDevice] | DraDriverError]:
        if self._discovery.devices is None:
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._discovery.first(), FIRST_LOOK_SECONDS)
        return await self._service.prepare(claims)

    async def unprepare(self, claims: Sequence[ClaimRef]) -> Mapping[str, DraDriverError | None]:
        return await self._service.unprepare(claims)


class GpuDriver:
    """One driver, composed.

    Args:
        discovery: where the devices come from.
        edits: what containers get.
        events: where failures of claims are told to their users.
    """

    name = DRIVER

    def __init__(
        self,
        configuration: NodeConfiguration,
        *,
        client: ApiClient,
        discovery: Discovery,
        edits: EditsSource,
        metrics: Metrics,
        events: EventRecorder,
    ) -> None:
        self._configuration = configuration
        self._client = client
        self._discovery = discovery
        self._metrics = metrics
        self._events = events
        self._stopping = False
        self._waiting = ""
        node, pool = configuration.node_name, configuration.pool_name
        self._specs = SpecDirectory(Path(configuration.cdi_dir))
        records = RecordStore(
            configuration.state_dir(DRIVER),
            boot_id=read_boot_id(boot_id_path(configuration)),
            on_quarantine=lambda put_aside: metrics.quarantined.labels(DRIVER).inc(),
        )
        claims = ClaimReader(client)
        fate = ClaimFate(
            driver=DRIVER,
            pool=pool,
            claims=claims,
            in_use=PodResources(Path(configuration.pod_resources_socket)).claims_in_use,
            pod_exists=self._pod_exists,
        )
        self.service = PrepareService(
            driver=DRIVER,
            pool=pool,
            claims=claims,
            devices=lambda: discovery.devices,
            edits=edits,
            specs=self._specs,
            records=records,
            fate=fate,
            seconds_since_look=lambda: (
                time.monotonic() - discovery.last_look if discovery.last_look is not None else None
            ),
            on_missing_device=discovery.request,
            on_failure=self._tell_users,
            observe=self._claim_done,
        )
        self.reconciler = Reconciler(self.service, fate)
        self.publisher = SlicePublisher(client, DRIVER, node, observer=_PublishMetrics(metrics))
        options = PluginOptions(
            driver=DRIVER,
            plugins_directory=Path(configuration.kubelet_plugins_dir),
            registry_directory=Path(configuration.kubelet_registry_dir),
            pod_uid=configuration.pod_uid,
            single_socket=configuration.sockets == "one",
        )
        preparer = _AfterFirstLook(self.service, discovery)
        self.server = PluginServer(options, preparer, observer=metrics, on_registration=self._registration_changed)

    async def start(self) -> None:
        """Read what is remembered; the hardware is not waited for, since unprepare must work without it."""
        try:
            await asyncio.to_thread(self._specs.prepare)
        except DraDriverError as fault:
            # Claims will fail with the same words until it is mended; the daemon lives to say so.
            log.error("CDI folder: %s", fault)
        await self.service.start()

    async def run(self) -> None:
        """Serve the kubelet, publish and reconcile until cancelled.

        Raises:
            DraDriverError: what can't go on without an operator, such as a plugin folder that can't be written to.
        """
        try:
            async with asyncio.TaskGroup() as tasks:
                tasks.create_task(self._serve())
                tasks.create_task(self.publisher.run())
                tasks.create_task(self._reconcile())
        except BaseExceptionGroup as group:
            # Of several, the first is the cause. A bug stays a group, with its traceback.
            expected, bugs = group.split(DraDriverError)
            if expected is None or bugs is not None:
                raise
            raise _leaf(expected) from None

    async def stop(self) -> None:
        """Leave the kubelet's sight, let running calls finish."""
        self._stopping = True
        await self.server.stop(self._configuration.stop_grace_seconds)
        await self.service.close()

    def devices_changed(self, devices: AllocatableDevices) -> None:
        """Publish new devices."""
        try:
            self.publisher.set_desired([PublishedSlice(chunk) for chunk in devices.slices()])
        except DraDriverError as error:
            # What was published before stays, which is better than nothing; this is our bug, so it is loud.
            log.error("the devices found can't be published: %s", error)
            self._metrics.publish_failures.labels(DRIVER).inc()

    def unmet(self) -> dict[str, str]:
        """Why the driver is not ready, by condition."""
        unmet = {}
        registration = self.server.registration
        if not registration.registered or registration.problem:
            unmet[f"{DRIVER} registration"] = (
                registration.problem or self._waiting or "the kubelet has not registered the driver yet"
            )
        state = self.publisher.state
        if state.last_success is None:
            error = state.last_error or self.publisher.watch_error
            unmet[f"{DRIVER} slices"] = str(error or "the ResourceSlices have not been published yet")
        try:
            self._specs.check()
        except DraDriverError as fault:
            unmet["CDI folder"] = str(fault)
        return unmet

    async def _serve(self) -> None:
        """Serve, as soon as another instance that still holds the sockets has left."""
        while True:
            try:
                await self.server.start()
            except SocketInUse as fault:
                log.warning("%s: waiting: %s", DRIVER, fault)
                self._waiting = str(fault)
                await asyncio.sleep(SOCKET_RETRY_SECONDS)
            else:
                self._waiting = ""
                return

    async def _reconcile(self) -> None:
        await self._discovery.first()
        while True:
            report = await self.reconciler.run_once()
            self._metrics.collected.labels(DRIVER).inc(len(report.collected))
            interval = self._configuration.reconcile_seconds
            await asyncio.sleep(min(interval, RETRY_UNDECIDED_SECONDS) if report.undecided else interval)

    async def _pod_exists(self, namespace: str, name: str, uid: str) -> bool:
        try:
            pod = await self._client.get(PODS, name, namespace)
        except NotFound:
            return False
        return bool(pod["metadata"]["uid"] == uid)

    def _tell_users(self, ref: ClaimRef, claim: ResourceClaim | None, error: DraDriverError) -> None:
        """A Warning on each Pod that waits for the claim, or on the claim itself when its Pods aren't known."""
        pods = [user for user in (claim.status.reserved_for if claim is not None else ()) if user.resource == "pods"]
        regarding = [
            ObjectReference(kind="Pod", name=pod.name, namespace=ref.namespace, uid=pod.uid, api_version="v1")
            for pod in pods
        ] or [
            ObjectReference(
                kind="ResourceClaim",
                name=ref.name,
                namespace=ref.namespace,
                uid=ref.uid,
                api_version="resource.k8s.io/v1",
            )
        ]
        for reference in regarding:
            self._events.record(reference, "Warning", "FailedPrepareDevices", str(error))

    def _claim_done(self, done: ClaimDone) -> None:
        self._metrics.claims.labels(DRIVER, done.operation, done.outcome).inc()

    def _registration_changed(self, state: RegistrationState) -> None:
        if state.problem and not self._stopping:
            words = "registered with the kubelet, but" if state.registered else "not registered with the kubelet:"
            log.warning("%s: %s %s", DRIVER, words, state.problem)
        elif state.registered:
            log.info("%s: registered with the kubelet", DRIVER)


def _leaf(group: BaseExceptionGroup[DraDriverError]) -> DraDriverError:
    first = group.exceptions[0]
    return _leaf(first) if isinstance(first, BaseExceptionGroup) else first
