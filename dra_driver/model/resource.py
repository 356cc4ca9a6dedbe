"""The objects of ``resource.k8s.io/v1``, as immutable values.

Field names are the API's in snake_case; absent is ``None`` or empty. Reading and writing JSON is in ``codec``; rules
that the API server enforces are in ``validation`` and work on raw JSON, so a value here is well-formed by construction.
Source: k8s.io/api/resource/v1/types.go (1.37).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from dra_driver.model.quantity import Quantity

AttributeKind = Literal["int", "bool", "string", "version", "ints", "bools", "strings", "versions", "unknown"]


@dataclass(frozen=True, slots=True, kw_only=True)
class OwnerReference:
    api_version: str
    kind: str
    name: str
    uid: str
    controller: bool | None = None
    block_owner_deletion: bool | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ObjectMeta:
    name: str = ""
    generate_name: str = ""
    namespace: str = ""
    uid: str = ""
    resource_version: str = ""
    generation: int = 0
    creation_timestamp: str | None = None
    deletion_timestamp: str | None = None
    labels: Mapping[str, str] = field(default_factory=dict)
    annotations: Mapping[str, str] = field(default_factory=dict)
    finalizers: tuple[str, ...] = ()
    owner_references: tuple[OwnerReference, ...] = ()


@dataclass(frozen=True, slots=True)
class DeviceAttribute:
    """One attribute value; ``kind`` is the member of the API's one-of, lists are tuples.

    ``unknown`` (value ``""``) stands for an attribute without any member that we know, as an API server hands one out
    when a newer release has written it: the attribute exists, but nothing can be said about its value.
    """

    kind: AttributeKind
    value: int | bool | str | tuple[int, ...] | tuple[bool, ...] | tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class CapacityRequestPolicyRange:
    min: Quantity
    max: Quantity | None = None
    step: Quantity | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class CapacityRequestPolicy:
    default: Quantity | None = None
    valid_values: tuple[Quantity, ...] = ()
    valid_range: CapacityRequestPolicyRange | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceCapacity:
    value: Quantity
    request_policy: CapacityRequestPolicy | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Counter:
    value: Quantity


@dataclass(frozen=True, slots=True, kw_only=True)
class CounterSet:
    name: str
    counters: Mapping[str, Counter]


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceCounterConsumption:
    counter_set: str
    counters: Mapping[str, Counter]
    compatibility_groups: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceTaint:
    key: str
    effect: str
    value: str = ""
    time_added: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Device:
    name: str
    attributes: Mapping[str, DeviceAttribute] = field(default_factory=dict)
    capacity: Mapping[str, DeviceCapacity] = field(default_factory=dict)
    consumes_counters: tuple[DeviceCounterConsumption, ...] = ()
    node_name: str | None = None
    node_selector: Mapping[str, Any] | None = None
    all_nodes: bool | None = None
    taints: tuple[DeviceTaint, ...] = ()
    binds_to_node: bool | None = None
    binding_conditions: tuple[str, ...] = ()
    binding_failure_conditions: tuple[str, ...] = ()
    allow_multiple_allocations: bool | None = None
    node_allocatable_resources: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class ResourcePool:
    name: str
    generation: int
    resource_slice_count: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ResourceSliceSpec:
    driver: str
    pool: ResourcePool
    node_name: str | None = None
    node_selector: Mapping[str, Any] | None = None
    all_nodes: bool | None = None
    per_device_node_selection: bool | None = None
    devices: tuple[Device, ...] = ()
    shared_counters: tuple[CounterSet, ...] = ()
    partition_type_attribute: str | None = None
    skip_node_operations: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class ResourceSlice:
    metadata: ObjectMeta
    spec: ResourceSliceSpec


@dataclass(frozen=True, slots=True, kw_only=True)
class CelDeviceSelector:
    expression: str


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceSelector:
    cel: CelDeviceSelector | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class OpaqueDeviceConfiguration:
    driver: str
    parameters: Mapping[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceToleration:
    key: str = ""
    operator: str = "Equal"
    value: str = ""
    effect: str = ""
    toleration_seconds: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class CapacityRequirements:
    requests: Mapping[str, Quantity] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceDerivedAttribute:
    name: str
    expression: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ExactDeviceRequest:
    """``count`` is 0 when ``allocation_mode`` is ``All``, as the API demands."""

    device_class_name: str
    selectors: tuple[DeviceSelector, ...] = ()
    allocation_mode: str = "ExactCount"
    count: int = 1
    admin_access: bool | None = None
    tolerations: tuple[DeviceToleration, ...] = ()
    capacity: CapacityRequirements | None = None
    derived_attributes: tuple[DeviceDerivedAttribute, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceSubRequest:
    """``count`` is 0 when ``allocation_mode`` is ``All``, as the API demands."""

    name: str
    device_class_name: str
    selectors: tuple[DeviceSelector, ...] = ()
    allocation_mode: str = "ExactCount"
    count: int = 1
    tolerations: tuple[DeviceToleration, ...] = ()
    capacity: CapacityRequirements | None = None
    derived_attributes: tuple[DeviceDerivedAttribute, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceRequest:
    name: str
    exactly: ExactDeviceRequest | None = None
    first_available: tuple[DeviceSubRequest, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceConstraint:
    requests: tuple[str, ...] = ()
    match_attribute: str | None = None
    distinct_attribute: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceClaimConfiguration:
    requests: tuple[str, ...] = ()
    opaque: OpaqueDeviceConfiguration | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceClaim:
    requests: tuple[DeviceRequest, ...] = ()
    constraints: tuple[DeviceConstraint, ...] = ()
    config: tuple[DeviceClaimConfiguration, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class ResourceClaimSpec:
    devices: DeviceClaim = DeviceClaim()


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceRequestAllocationResult:
    request: str
    driver: str
    pool: str
    device: str
    admin_access: bool | None = None
    tolerations: tuple[DeviceToleration, ...] = ()
    binding_conditions: tuple[str, ...] = ()
    binding_failure_conditions: tuple[str, ...] = ()
    share_id: str | None = field(default=None, metadata={"json": "shareID"})
    consumed_capacity: Mapping[str, Quantity] = field(default_factory=dict)
    skip_node_operations: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceAllocationConfiguration:
    source: str
    requests: tuple[str, ...] = ()
    opaque: OpaqueDeviceConfiguration | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceAllocationResult:
    results: tuple[DeviceRequestAllocationResult, ...] = ()
    config: tuple[DeviceAllocationConfiguration, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class AllocationResult:
    devices: DeviceAllocationResult = DeviceAllocationResult()
    node_selector: Mapping[str, Any] | None = None
    allocation_timestamp: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ResourceClaimConsumerReference:
    resource: str
    name: str
    uid: str
    api_group: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class ResourceClaimStatus:
    allocation: AllocationResult | None = None
    reserved_for: tuple[ResourceClaimConsumerReference, ...] = ()
    devices: tuple[Mapping[str, Any], ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class ResourceClaim:
    metadata: ObjectMeta
    spec: ResourceClaimSpec = ResourceClaimSpec()
    status: ResourceClaimStatus = ResourceClaimStatus()


@dataclass(frozen=True, slots=True, kw_only=True)
class ResourceClaimTemplateSpec:
    metadata: ObjectMeta = ObjectMeta()
    spec: ResourceClaimSpec = ResourceClaimSpec()


@dataclass(frozen=True, slots=True, kw_only=True)
class ResourceClaimTemplate:
    metadata: ObjectMeta
    spec: ResourceClaimTemplateSpec


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceClassSpec:
    selectors: tuple[DeviceSelector, ...] = ()
    config: tuple[DeviceClaimConfiguration, ...] = ()
    extended_resource_name: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceClass:
    metadata: ObjectMeta
    spec: DeviceClassSpec = DeviceClassSpec()


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceTaintSelector:
    """Which devices a rule taints; without any field set it means all devices."""

    driver: str | None = None
    pool: str | None = None
    device: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceTaintRuleSpec:
    """``device_selector`` absent matches no device at all."""

    taint: DeviceTaint
    device_selector: DeviceTaintSelector | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceTaintRuleStatus:
    conditions: tuple[Mapping[str, Any], ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceTaintRule:
    metadata: ObjectMeta
    spec: DeviceTaintRuleSpec
    status: DeviceTaintRuleStatus = DeviceTaintRuleStatus()
