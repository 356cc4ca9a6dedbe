"""A node in a temporary directory: real files, real records and CDI specs; the API server, kubelet and GPUs are values.

``Node.kill_at(n)`` makes the n-th change of a file (or of a device) the last one: the operation after it and all later
ones raise ``Killed``, as if the process were gone; ``Node.restart()`` starts a new service on what lies on the disk.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from dra_driver.cdi.files import SpecDirectory
from dra_driver.cdi.spec import ContainerEdits, DeviceNode
from dra_driver.devices.allocatable import AllocatableDevice, AllocatableDevices, allocatable_devices
from dra_driver.errors import DraDriverError, EnvironmentFault
from dra_driver.inventory.hardware import DriverState, Gpu, Machine
from dra_driver.model.prepared import ClaimRef
from dra_driver.model.resource import (
    AllocationResult,
    DeviceAllocationConfiguration,
    DeviceAllocationResult,
    DeviceRequestAllocationResult,
    ObjectMeta,
    OpaqueDeviceConfiguration,
    ResourceClaim,
    ResourceClaimConsumerReference,
    ResourceClaimStatus,
)
from dra_driver.prepare.fate import ClaimFate
from dra_driver.prepare.reconcile import Reconciler
from dra_driver.prepare.record_files import RecordFiles, Stamp
from dra_driver.prepare.records import Quarantined, RecordStore
from dra_driver.prepare.service import ClaimDone, PrepareService
from dra_driver.prepare.steps import DeviceGroup, DevicePreparer, Step, WholeGpu

DRIVER = "gpu.nvidia.com"
POOL = "node-a"
BOOT = "boot-1"


class Killed(BaseException):
    """kill -9 at this place."""


class NotFound(EnvironmentFault):
    """As the API client raises it."""

    status = 404


def ref(name: str, uid: str | None = None, namespace: str = "default") -> ClaimRef:
    return ClaimRef(namespace, name, uid or f"uid-{name}")


def result(device: str = "gpu-0", request: str = "gpu", **more: Any) -> DeviceRequestAllocationResult:
    return DeviceRequestAllocationResult(
        request=request, driver=more.pop("driver", DRIVER), pool=more.pop("pool", POOL), device=device, **more
    )


def opaque(
    parameters: Mapping[str, Any], *requests: str, source: str = "FromClaim", driver: str = DRIVER
) -> DeviceAllocationConfiguration:
    return DeviceAllocationConfiguration(
        source=source, requests=requests, opaque=OpaqueDeviceConfiguration(driver=driver, parameters=parameters)
    )


def gpu_config(**fields: Any) -> dict[str, Any]:
    return {"apiVersion": "resource.nvidia.com/v1beta1", "kind": "GpuConfig", **fields}


def claim(
    name: str,
    *results: DeviceRequestAllocationResult,
    uid: str | None = None,
    config: Sequence[DeviceAllocationConfiguration] = (),
    reserved: bool = True,
    allocated: bool = True,
) -> ResourceClaim:
    consumers = (ResourceClaimConsumerReference(resource="pods", name=f"pod-{name}", uid=f"pod-uid-{name}"),)
    devices = DeviceAllocationResult(results=results or (result(),), config=tuple(config))
    return ResourceClaim(
        metadata=ObjectMeta(name=name, namespace="default", uid=uid or f"uid-{name}"),
        status=ResourceClaimStatus(
            allocation=AllocationResult(devices=devices) if allocated else None,
            reserved_for=consumers if reserved else (),
        ),
    )


class Api:
    """The API server's claims and Pods."""

    def __init__(self) -> None:
        self.claims: dict[tuple[str, str], ResourceClaim] = {}
        self.pods: set[str] | None = None
        self.reads = 0
        self.down: DraDriverError | None = None
        self.gate: asyncio.Event | None = None

    def add(self, *claims: ResourceClaim) -> None:
        for item in claims:
            self.claims[(item.metadata.namespace, item.metadata.name)] = item

    def delete(self, name: str) -> None:
        del self.claims[("default", name)]

    async def get(self, ref: ClaimRef, /) -> ResourceClaim:
        self.reads += 1
        if self.gate is not None:
            await self.gate.wait()
        await asyncio.sleep(0)
        if self.down is not None:
            raise self.down
        try:
            return self.claims[(ref.namespace, ref.name)]
        except KeyError:
            raise NotFound(f"GET resourceclaims {ref}: not found") from None

    async def pod_exists(self, namespace: str, name: str, uid: str) -> bool:
        return self.pods is None or uid in self.pods


class Kubelet:
    """PodResources."""

    def __init__(self) -> None:
        self.in_use: set[tuple[str, str]] = set()
        self.down: EnvironmentFault | None = None
        self.asked = 0

    async def claims_in_use(self) -> set[tuple[str, str]]:
        self.asked += 1
        if self.down is not None:
            raise self.down
        return set(self.in_use)


class Changes:
    """Counts changes of the node; at the limit the process is gone."""

    def __init__(self) -> None:
        self.count = 0
        self.limit: int | None = None
        self.trace: list[str] = []
        self._lock = threading.Lock()

    def check(self, what: str) -> None:
        with self._lock:
            if self.limit is not None and self.count >= self.limit:
                raise Killed(what)
            self.count += 1
            self.trace.append(what)


class KillableSpecs(SpecDirectory):
    """``fail`` is raised by the next writes or removals instead of what they should do."""

    changes: Changes
    fail: EnvironmentFault | None = None

    def write(self, name: str, data: bytes) -> None:
        self.changes.check(f"write spec {name}")
        if self.fail is not None:
            raise self.fail
        super().write(name, data)

    def remove(self, name: str) -> bool:
        self.changes.check(f"remove spec {name}")
        if self.fail is not None:
            raise self.fail
        return super().remove(name)


class KillableRecords(RecordFiles):
    changes: Changes
    fail: EnvironmentFault | None = None

    def write(self, name: str, data: bytes) -> Stamp:
        self.changes.check(f"write record {name}")
        if self.fail is not None:
            raise self.fail
        return super().write(name, data)

    def remove(self, name: str) -> bool:
        self.changes.check(f"remove record {name}")
        if self.fail is not None:
            raise self.fail
        return super().remove(name)


class Edits:
    """Edits of a driver; ``fail`` stands for a missing device node."""

    def __init__(self) -> None:
        self.fail: EnvironmentFault | None = None
        self.marker = "1"
        self.warnings: tuple[str, ...] = ()
        self._asked = 0

    def kept(self, gpus: Sequence[Gpu], since: float) -> Edits | None:
        """Every other time a search is needed, so that both ways are taken."""
        self._asked += bool(gpus)
        return self if self._asked % 2 and self.fail is None else None

    def common(self) -> ContainerEdits:
        return ContainerEdits(env=(f"DRIVER={self.marker}",))

    def gpu(self, gpu: Gpu) -> ContainerEdits:
        if self.fail is not None:
            raise self.fail
        return ContainerEdits(device_nodes=(DeviceNode(path=f"/dev/nvidia{gpu.minor}"),))


class Partitions:
    """A preparer whose devices need two steps: make a partition, start its server.

    ``world`` is the hardware: it survives the process, but not the boot.
    """

    def __init__(self, world: dict[str, str], changes: Changes) -> None:
        self.world = world
        self.changes = changes
        self.fail_apply: str | None = None
        self.fail_undo: str | None = None

    def plan(self, group: DeviceGroup, /) -> Sequence[Step]:
        return [
            Step(preparer="part", action=action, arguments={"device": allocatable.name, "claim": group.claim.uid})
            for _, allocatable in group.devices
            for action in ("make", "serve")
        ]

    def apply(self, step: Step, /) -> Mapping[str, Any]:
        self.changes.check(f"apply {step.action}")
        if self.fail_apply == step.action:
            raise EnvironmentFault(f"{step.action} refused by the hardware")
        place = f"{step.action} {step.arguments['device']}"
        assert place not in self.world, f"{place} made twice: {self.world}"
        self.world[place] = step.arguments["claim"]
        self.changes.check(f"applied {step.action}")
        return {"id": place}

    def undo(self, step: Step, /) -> None:
        self.changes.check(f"undo {step.action}")
        if self.fail_undo == step.action:
            raise EnvironmentFault(f"{step.action} is in use by another client")
        place = f"{step.action} {step.arguments['device']}"
        if self.world.get(place) == step.arguments["claim"]:
            del self.world[place]
        self.changes.check(f"undone {step.action}")

    def verify(self, step: Step, /) -> str | None:
        place = f"{step.action} {step.arguments['device']}"
        return None if self.world.get(place) == step.arguments["claim"] else f"{place} is gone"

    def edits(self, device: AllocatableDevice, steps: Sequence[Step], source: Any, /) -> ContainerEdits:
        ids = ",".join(str(step.outcome["id"]) for step in steps if step.outcome is not None)
        return ContainerEdits(env=(f"PARTITION={ids}",))


def machine(*minors: int, **fields: Any) -> Machine:
    gpus = tuple(Gpu(index=n, minor=n, uuid=f"GPU-{n}", name="Test GPU") for n in minors)
    return Machine(state=DriverState.READY, source="nvml", driver_version="580.65.06", gpus=gpus, **fields)


@dataclass
class Node:
    """Everything of one node; the fields are set before or between calls."""

    path: Path
    api: Api = field(default_factory=Api)
    kubelet: Kubelet = field(default_factory=Kubelet)
    edits: Edits = field(default_factory=Edits)
    devices: AllocatableDevices | None = field(default_factory=lambda: allocatable_devices(machine(0, 1, 2, 3)))
    boot_id: str = BOOT
    world: dict[str, str] = field(default_factory=dict)
    failures: list[tuple[ClaimRef, ResourceClaim | None, DraDriverError]] = field(default_factory=list)
    done: list[ClaimDone] = field(default_factory=list)
    quarantined: list[Quarantined] = field(default_factory=list)
    looks: int = 0
    now: float = 1_700_000_000.0
    claim_read_seconds: float = 30.0
    fate_wanted: bool = True

    def __post_init__(self) -> None:
        self.cdi = self.path / "cdi"
        self.cdi.mkdir()
        self.state = self.path / "state"
        self._build()

    def _build(self) -> None:
        self.changes = Changes()
        self.specs = KillableSpecs(self.cdi, now=lambda: self.now)
        self.specs.changes = self.changes
        self.files = KillableRecords(self.state / "claims")
        self.files.changes = self.changes
        self.records = RecordStore(
            self.state,
            boot_id=self.boot_id,
            files=self.files,
            on_quarantine=self.quarantined.append,
            clock=lambda: self.now,
            version="1.2.3",
        )
        self.partitions = Partitions(self.world, self.changes)
        preparers: dict[str, DevicePreparer] = {"gpu": WholeGpu(), "part": self.partitions}
        self.fate = ClaimFate(
            driver=DRIVER,
            pool=POOL,
            claims=self.api,
            in_use=self.kubelet.claims_in_use,
            pod_exists=self.api.pod_exists,
        )
        self.service = PrepareService(
            driver=DRIVER,
            pool=POOL,
            claims=self.api,
            devices=lambda: self.devices,
            edits=self.edits,
            specs=self.specs,
            records=self.records,
            preparers=preparers,
            fate=self.fate if self.fate_wanted else None,
            seconds_since_look=lambda: 12.0,
            on_missing_device=self._look,
            on_failure=lambda ref, claim, error: self.failures.append((ref, claim, error)),
            observe=self.done.append,
            claim_read_seconds=self.claim_read_seconds,
        )
        self.reconciler = Reconciler(self.service, self.fate, orphan_seconds=300, monotonic=lambda: self.now)

    def _look(self) -> None:
        self.looks += 1

    async def restart(self, *, boot_id: str | None = None) -> None:
        """A new process on the same disk; with a boot id, after a reboot: tmpfs and hardware state are gone."""
        await self.service.close()
        if boot_id is not None:
            self.boot_id = boot_id
            for file in self.cdi.iterdir():
                file.unlink()
            self.world.clear()
        self._build()
        await self.service.start()

    def kill_at(self, changes: int) -> None:
        self.changes.limit = self.changes.count + changes

    async def prepare(self, name: str, uid: str | None = None) -> Any:
        """The answer for one claim."""
        item = ref(name, uid)
        return (await self.service.prepare([item]))[item.uid]

    async def unprepare(self, name: str, uid: str | None = None) -> DraDriverError | None:
        item = ref(name, uid)
        return (await self.service.unprepare([item]))[item.uid]

    def with_partitions(self, *names: str) -> None:
        """Add devices whose preparer has steps."""
        assert self.devices is not None
        more = {name: replace(self.devices.by_name["gpu-3"], name=name, kind="part") for name in names}
        self.devices = replace(self.devices, by_name={**self.devices.by_name, **more})

    def leftovers(self) -> list[str]:
        """Everything that is on the node for claims, by path."""
        claims = self.state / "claims"
        files = [*self.cdi.iterdir(), *(claims.iterdir() if claims.exists() else ())]
        return sorted([*(str(file.relative_to(self.path)) for file in files), *self.world])
