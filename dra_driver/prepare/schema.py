"""Strict reading of the configuration kinds: unknown fields, repeated fields and wrong types are errors with their
path.

A misspelt field that is silently ignored gives a container other limits than its author believes, so nothing is
ignored. All faults of one object are reported at once. The cross-field rules that NVIDIA's driver discovers only while
it prepares (``mpsConfig`` with time-slicing, limits below one mebibyte, unknown device keys) are checked here, so that
the webhook and the offline checker see them too.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Annotated, Any, Literal, TypeVar

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, StrictBool, StrictInt, ValidationError
from pydantic.alias_generators import to_camel

from dra_driver.errors import InputError
from dra_driver.model.quantity import Quantity
from dra_driver.model.strict_json import repeated_fields
from dra_driver.prepare.kinds import (
    API_VERSION,
    GpuConfig,
    MigDeviceConfig,
    Mps,
    TimeSliceInterval,
    TimeSlicing,
    VfioDeviceConfig,
)

_MEBIBYTE = 1 << 20
_DEVICE_KEY = re.compile(r"\d{1,4}|(GPU|MIG)-[0-9a-fA-F]{8}(-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}")


def _quantity(value: object) -> Quantity:
    if isinstance(value, bool) or not isinstance(value, str | int | float):
        raise ValueError("must be a quantity such as 4Gi")  # noqa: TRY004 - pydantic takes ValueError
    try:
        quantity = Quantity.parse(str(value))
    except InputError as error:
        raise ValueError(f"must be a quantity such as 4Gi: {error.message}") from error
    if quantity.value() < _MEBIBYTE:
        raise ValueError(f"{quantity} is too low, the least limit is 1Mi")
    return quantity


_Limit = Annotated[Quantity, BeforeValidator(_quantity)]


class _Strict(BaseModel):
    # Python's names inside, the API's camelCase outside and in messages; Python's names are not accepted from outside.
    model_config = ConfigDict(extra="forbid", frozen=True, arbitrary_types_allowed=True, alias_generator=to_camel)


class _TimeSlicingConfig(_Strict):
    interval: TimeSliceInterval | None = None


class _MpsConfig(_Strict):
    default_active_thread_percentage: Annotated[StrictInt, Field(ge=0, le=100)] | None = None
    default_pinned_device_memory_limit: _Limit | None = None
    default_per_device_pinned_memory_limit: dict[str, _Limit] | None = None
    multi_user: StrictBool | None = None


class _MigSharing(_Strict):
    strategy: Literal["TimeSlicing", "MPS"]
    mps_config: _MpsConfig | None = None


class _GpuSharing(_MigSharing):
    time_slicing_config: _TimeSlicingConfig | None = None


class _Object(_Strict):
    api_version: str
    kind: str


class _GpuConfig(_Object):
    sharing: _GpuSharing | None = None


class _MigDeviceConfig(_Object):
    sharing: _MigSharing | None = None


class _Iommu(_Strict):
    backend_policy: Literal["LegacyOnly", "PreferIommuFD"] | None = None
    enable_api_device: Annotated[StrictBool | None, Field(alias="enableAPIDevice")] = None


class _VfioDeviceConfig(_Object):
    iommu: _Iommu | None = None


_Model = TypeVar("_Model", bound=_Object)


def decode_gpu_config(parameters: Mapping[str, Any], source: str, path: str) -> GpuConfig:
    """``GpuConfig``; raises InputError naming ``source`` and ``path``."""
    raw = _read(_GpuConfig, parameters, source, path)
    return GpuConfig(_sharing(raw.sharing, source, path))


def decode_mig_config(parameters: Mapping[str, Any], source: str, path: str) -> MigDeviceConfig:
    """``MigDeviceConfig``; raises InputError naming ``source`` and ``path``."""
    raw = _read(_MigDeviceConfig, parameters, source, path)
    return MigDeviceConfig(_sharing(raw.sharing, source, path))


def decode_vfio_config(parameters: Mapping[str, Any], source: str, path: str) -> VfioDeviceConfig:
    """``VfioDeviceConfig``; raises InputError naming ``source`` and ``path``."""
    iommu = _read(_VfioDeviceConfig, parameters, source, path).iommu or _Iommu()
    return VfioDeviceConfig(iommu.backend_policy or "LegacyOnly", bool(iommu.enable_api_device))


def _sharing(raw: _MigSharing | None, source: str, path: str) -> TimeSlicing | Mps | None:
    if raw is None:
        return None
    slicing = raw.time_slicing_config if isinstance(raw, _GpuSharing) else None
    if raw.strategy == "TimeSlicing":
        if raw.mps_config is not None:
            raise InputError(
                "can't be used with strategy TimeSlicing",
                source=source,
                path=f"{path}.sharing.mpsConfig",
                hint="remove it, or set strategy to MPS",
            )
        return TimeSlicing((slicing.interval if slicing is not None else None) or "Default")
    if slicing is not None:
        raise InputError(
            "can't be used with strategy MPS",
            source=source,
            path=f"{path}.sharing.timeSlicingConfig",
            hint="remove it, or set strategy to TimeSlicing",
        )
    mps = raw.mps_config or _MpsConfig()
    limits = mps.default_per_device_pinned_memory_limit or {}
    for key in limits:
        if not _DEVICE_KEY.fullmatch(key):
            raise InputError(
                f"{key!r} is neither a GPU UUID nor the position of a device in the claim",
                source=source,
                path=f"{path}.sharing.mpsConfig.defaultPerDevicePinnedMemoryLimit[{key}]",
            )
    return Mps(
        mps.default_active_thread_percentage, mps.default_pinned_device_memory_limit, dict(limits), bool(mps.multi_user)
    )


def _read(model: type[_Model], parameters: Mapping[str, Any], source: str, path: str) -> _Model:
    faults = [(f"{path}.{field}", "is given more than once") for field in repeated_fields(parameters)]
    result: _Model | None = None
    try:
        result = model.model_validate(dict(parameters))
    except ValidationError as error:
        faults += [(f"{path}{_field_path(item['loc'])}", _words(item)) for item in error.errors()]
    if result is not None and not faults:
        return result
    first_path, first = faults[0]
    others = "".join(f"; {other_path}: {text}" for other_path, text in faults[1:])
    members = (str(field.alias) for name, field in model.model_fields.items() if name not in _Object.model_fields)
    hint = f"fields of {API_VERSION} {parameters.get('kind')}: {', '.join(members)}"
    raise InputError(first + others, source=source, path=first_path, hint=hint)


def _field_path(location: tuple[int | str, ...]) -> str:
    return "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in location)


def _words(item: Mapping[str, Any]) -> str:
    """pydantic's finding in the words of the API server."""
    kind = item["type"]
    if kind == "extra_forbidden":
        return "unknown field"
    if kind == "missing":
        return "is required"
    if kind == "literal_error":
        return f"{item['input']!r} is not supported, must be {item['ctx']['expected']}"
    if kind == "value_error":
        return str(item["ctx"]["error"])
    return f"{item['msg'][:1].lower()}{item['msg'][1:]}, not {item['input']!r}"
