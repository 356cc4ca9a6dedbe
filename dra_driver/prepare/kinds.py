"""The configuration that a claim or a DeviceClass may carry for our devices, as immutable values.

Group ``resource.nvidia.com/v1beta1``, spelled as NVIDIA's driver spells it, so that manifests written for it work
unchanged. Reading JSON into these values is in ``schema``, which needs pydantic and is imported only when a claim has
configuration: most claims have none, and an idle daemon should not pay for it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from dra_driver.model.quantity import Quantity

API_VERSION = "resource.nvidia.com/v1beta1"

TimeSliceInterval = Literal["Default", "Short", "Medium", "Long"]


@dataclass(frozen=True, slots=True)
class TimeSlicing:
    """Processes take turns on the GPU; ``interval`` is how long a turn lasts."""

    interval: TimeSliceInterval = "Default"


@dataclass(frozen=True, slots=True)
class Mps:
    """Processes run at the same time through NVIDIA's Multi-Process Service.

    Attributes:
        active_thread_percentage: 0 to 100 of the multiprocessors that one client may use, None for all.
        pinned_memory_limit: device memory that one client may use on each device, None for all.
        pinned_memory_limits: the same for single devices, by GPU UUID or by position among the claim's devices.
        multi_user: whether clients of several Unix users may share the daemon.
    """

    active_thread_percentage: int | None = None
    pinned_memory_limit: Quantity | None = None
    pinned_memory_limits: Mapping[str, Quantity] = field(default_factory=dict)
    multi_user: bool = False


@dataclass(frozen=True, slots=True)
class GpuConfig:
    """For whole GPUs; without ``sharing`` it asks for nothing beyond the device."""

    sharing: TimeSlicing | Mps | None = None


@dataclass(frozen=True, slots=True)
class MigDeviceConfig:
    """For MIG devices; time-slicing is accepted for NVIDIA's sake and has no interval."""

    sharing: TimeSlicing | Mps | None = None


@dataclass(frozen=True, slots=True)
class VfioDeviceConfig:
    """For GPUs that are passed through to a virtual machine."""

    backend_policy: Literal["LegacyOnly", "PreferIommuFD"] = "LegacyOnly"
    enable_api_device: bool = False


Configuration = GpuConfig | MigDeviceConfig | VfioDeviceConfig


@dataclass(frozen=True, slots=True)
class ConfigurationKind:
    """One kind of configuration that a driver understands.

    Attributes:
        kind, api_version: as in the object.
        device_kinds: the kinds of devices (``AllocatableDevice.kind``) that it can be applied to.
        decode: strict reading of the whole object. Arguments: the object, the name of the object it stands in and the
            field path to it, both for error messages. Raises InputError.
    """

    kind: str
    device_kinds: frozenset[str]
    decode: Callable[[Mapping[str, Any], str, str], object]
    api_version: str = API_VERSION


def _decode_gpu(parameters: Mapping[str, Any], source: str, path: str) -> object:
    from dra_driver.prepare import schema

    return schema.decode_gpu_config(parameters, source, path)


def _decode_mig(parameters: Mapping[str, Any], source: str, path: str) -> object:
    from dra_driver.prepare import schema

    return schema.decode_mig_config(parameters, source, path)


def _decode_vfio(parameters: Mapping[str, Any], source: str, path: str) -> object:
    from dra_driver.prepare import schema

    return schema.decode_vfio_config(parameters, source, path)


GPU_KINDS: tuple[ConfigurationKind, ...] = (
    ConfigurationKind("GpuConfig", frozenset({"gpu"}), _decode_gpu),
    ConfigurationKind("MigDeviceConfig", frozenset({"mig"}), _decode_mig),
    ConfigurationKind("VfioDeviceConfig", frozenset({"vfio"}), _decode_vfio),
)
"""What ``gpu.nvidia.com`` understands; another driver passes its own kinds."""
