"""Which configuration applies, and what is wrong with it."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Sequence
from typing import Any

import pytest

from dra_driver.errors import InputError
from dra_driver.model.quantity import Quantity
from dra_driver.model.resource import DeviceAllocationConfiguration, DeviceRequestAllocationResult
from dra_driver.model.strict_json import json_object, repeated_fields
from dra_driver.prepare.claim import read_allocation
from dra_driver.prepare.config import Candidate, candidates, choose
from dra_driver.prepare.kinds import GPU_KINDS, GpuConfig, MigDeviceConfig, Mps, TimeSlicing, VfioDeviceConfig
from tests.prepare.node import DRIVER, POOL, claim, gpu_config, opaque, ref, result

SLICING = gpu_config(sharing={"strategy": "TimeSlicing"})
LONG = gpu_config(sharing={"strategy": "TimeSlicing", "timeSlicingConfig": {"interval": "Long"}})
MIG = {"apiVersion": "resource.nvidia.com/v1beta1", "kind": "MigDeviceConfig"}
VFIO = {"apiVersion": "resource.nvidia.com/v1beta1", "kind": "VfioDeviceConfig"}


def chosen(
    configs: Sequence[DeviceAllocationConfiguration],
    *results: DeviceRequestAllocationResult,
    kind: str = "gpu",
) -> Candidate | None:
    allocated = read_allocation(ref("c"), claim("c", *results, config=configs), driver=DRIVER, pool=POOL)
    found = candidates(allocated, driver=DRIVER, kinds=GPU_KINDS)
    return choose(allocated, allocated.devices[0], kind, found)


PRECEDENCE: dict[str, tuple[list[DeviceAllocationConfiguration], str, int | None]] = {
    "none": ([], "gpu", None),
    "for all requests": ([opaque(SLICING)], "gpu", 0),
    "for this request": ([opaque(SLICING, "gpu")], "gpu", 0),
    "for another request": ([opaque(SLICING, "other")], "gpu", None),
    "the later wins": ([opaque(SLICING), opaque(LONG)], "gpu", 1),
    "the claim wins over its class": (
        [opaque(SLICING, "gpu", source="FromClass"), opaque(LONG, source="FromClaim")],
        "gpu",
        1,
    ),
    "the claim wins over its class in any order": ([opaque(LONG), opaque(SLICING, source="FromClass")], "gpu", 0),
    "the later for all wins over the earlier for one": ([opaque(SLICING, "gpu"), opaque(LONG)], "gpu", 1),
    "a request covers its subrequests": ([opaque(SLICING, "gpu")], "gpu/big", 0),
    "a subrequest is meant exactly": ([opaque(SLICING, "gpu/big"), opaque(LONG, "gpu/small")], "gpu/big", 0),
    "a subrequest does not cover its request": ([opaque(SLICING, "gpu/big")], "gpu", None),
    "a request's name is no prefix": ([opaque(SLICING, "gp")], "gpu", None),
    "other drivers' are skipped": ([opaque({"any": "thing"}, driver="net.example")], "gpu", None),
    "another kind for all is skipped": ([opaque(SLICING), opaque(MIG), opaque(VFIO)], "gpu", 0),
}


@pytest.mark.parametrize(("configs", "request_name", "index"), PRECEDENCE.values(), ids=PRECEDENCE)
def test_precedence(configs: list[DeviceAllocationConfiguration], request_name: str, index: int | None) -> None:
    found = chosen(configs, result(request=request_name))
    assert (found.index if found is not None else None) == index


def test_a_used_device_is_configured_by_who_uses_it() -> None:
    found = chosen(
        [opaque(SLICING, "use"), opaque(LONG, "watch")],
        result(request="watch", admin_access=True),
        result(request="use"),
    )
    assert found is not None
    assert found.value == GpuConfig(TimeSlicing("Default"))


def test_requests_of_one_device_must_agree() -> None:
    with pytest.raises(
        InputError, match="device gpu-0 serves requests a and b, which are configured differently"
    ) as error:
        chosen([opaque(SLICING, "a"), opaque(LONG, "b")], result(request="a"), result(request="b"))
    assert "GpuConfig at status.allocation.devices.config[1] (FromClaim)" in str(error.value)


def test_requests_of_one_device_may_say_the_same_twice() -> None:
    found = chosen([opaque(LONG, "a"), opaque(LONG, "b")], result(request="a"), result(request="b"))
    assert found is not None
    assert found.index == 0


VALUES: dict[str, tuple[dict[str, Any], object]] = {
    "plain": (gpu_config(), GpuConfig()),
    "null sharing": (gpu_config(sharing=None), GpuConfig()),
    "time-slicing": (SLICING, GpuConfig(TimeSlicing("Default"))),
    "empty timeSlicingConfig": (
        gpu_config(sharing={"strategy": "TimeSlicing", "timeSlicingConfig": {}}),
        GpuConfig(TimeSlicing("Default")),
    ),
    "interval": (LONG, GpuConfig(TimeSlicing("Long"))),
    "MPS": (gpu_config(sharing={"strategy": "MPS"}), GpuConfig(Mps())),
    "MPS with everything": (
        gpu_config(
            sharing={
                "strategy": "MPS",
                "mpsConfig": {
                    "defaultActiveThreadPercentage": 50,
                    "defaultPinnedDeviceMemoryLimit": "10Gi",
                    "defaultPerDevicePinnedMemoryLimit": {
                        "0": "1Gi",
                        "GPU-2f6ea0b3-1f5a-4f4c-9d8e-9b0c1d2e3f40": 2 << 30,
                    },
                    "multiUser": True,
                },
            }
        ),
        GpuConfig(
            Mps(
                50,
                Quantity.parse("10Gi"),
                {"0": Quantity.parse("1Gi"), "GPU-2f6ea0b3-1f5a-4f4c-9d8e-9b0c1d2e3f40": Quantity.parse("2Gi")},
                True,
            )
        ),
    ),
    "MIG": (MIG, MigDeviceConfig()),
    "MIG with time-slicing": ({**MIG, "sharing": {"strategy": "TimeSlicing"}}, MigDeviceConfig(TimeSlicing("Default"))),
    "VFIO": (VFIO, VfioDeviceConfig()),
    "VFIO with iommu": (
        {**VFIO, "iommu": {"backendPolicy": "PreferIommuFD", "enableAPIDevice": True}},
        VfioDeviceConfig("PreferIommuFD", True),
    ),
}


@pytest.mark.parametrize(("parameters", "value"), VALUES.values(), ids=VALUES)
def test_values(parameters: dict[str, Any], value: object) -> None:
    kind = {"GpuConfig": "gpu", "MigDeviceConfig": "mig", "VfioDeviceConfig": "vfio"}[parameters["kind"]]
    found = chosen([opaque(parameters, "gpu")], result(), kind=kind)
    assert found is not None
    assert found.value == value


P = "ResourceClaim default/c: status.allocation.devices.config[0].opaque.parameters"
MPS_LIMITS = "sharing.mpsConfig.defaultPerDevicePinnedMemoryLimit"


def mps(**config: Any) -> dict[str, Any]:
    return gpu_config(sharing={"strategy": "MPS", "mpsConfig": config})


WRONG: dict[str, tuple[DeviceAllocationConfiguration, str]] = {
    "unknown kind": (
        opaque({**gpu_config(), "kind": "GPUConfig"}),
        f"{P}.kind: unknown configuration kind: apiVersion 'resource.nvidia.com/v1beta1', kind 'GPUConfig' (FromClaim)"
        " (driver gpu.nvidia.com knows: resource.nvidia.com/v1beta1 GpuConfig, resource.nvidia.com/v1beta1"
        " MigDeviceConfig, resource.nvidia.com/v1beta1 VfioDeviceConfig)",
    ),
    "unknown version": (
        opaque({**gpu_config(), "apiVersion": "gpu.resource.nvidia.com/v1alpha1"}, source="FromClass"),
        f"{P}.apiVersion: unknown configuration kind: apiVersion 'gpu.resource.nvidia.com/v1alpha1', kind 'GpuConfig'"
        " (FromClass)",
    ),
    "no kind": (opaque({}), f"{P}.kind: unknown configuration kind: apiVersion None, kind None"),
    "not opaque": (
        DeviceAllocationConfiguration(source="FromClaim"),
        "ResourceClaim default/c: status.allocation.devices.config[0]: has no opaque parameters",
    ),
    "unknown source": (
        opaque(gpu_config(), source="FromNode"),
        "ResourceClaim default/c: status.allocation.devices.config[0].source: unknown source 'FromNode'",
    ),
    "unknown field": (
        opaque(gpu_config(sharing={"strategy": "MPS", "mpsconfig": {}})),
        f"{P}.sharing.mpsconfig: unknown field (fields of resource.nvidia.com/v1beta1 GpuConfig: sharing)",
    ),
    "Python's name of a field": (opaque(mps(multi_user=True)), f"{P}.sharing.mpsConfig.multi_user: unknown field"),
    "two faults": (
        opaque(gpu_config(sharing={"x": 1})),
        f"{P}.sharing.strategy: is required; status.allocation.devices.config[0].opaque.parameters.sharing.x: unknown"
        " field",
    ),
    "unknown strategy": (
        opaque(gpu_config(sharing={"strategy": "Turns"})),
        f"{P}.sharing.strategy: 'Turns' is not supported, must be 'TimeSlicing' or 'MPS'",
    ),
    "unknown interval": (
        opaque(gpu_config(sharing={"strategy": "TimeSlicing", "timeSlicingConfig": {"interval": "short"}})),
        f"{P}.sharing.timeSlicingConfig.interval: 'short' is not supported, must be 'Default', 'Short', 'Medium' or",
    ),
    "time-slicing with mpsConfig": (
        opaque(gpu_config(sharing={"strategy": "TimeSlicing", "mpsConfig": {}})),
        f"{P}.sharing.mpsConfig: can't be used with strategy TimeSlicing",
    ),
    "MPS with timeSlicingConfig": (
        opaque(gpu_config(sharing={"strategy": "MPS", "timeSlicingConfig": {}})),
        f"{P}.sharing.timeSlicingConfig: can't be used with strategy MPS",
    ),
    "MIG has no timeSlicingConfig": (
        opaque({**MIG, "sharing": {"strategy": "TimeSlicing", "timeSlicingConfig": {}}}),
        f"{P}.sharing.timeSlicingConfig: unknown field",
    ),
    "percentage over 100": (
        opaque(mps(defaultActiveThreadPercentage=101)),
        f"{P}.sharing.mpsConfig.defaultActiveThreadPercentage: input should be less than or equal to 100, not 101",
    ),
    "percentage below 0": (
        opaque(mps(defaultActiveThreadPercentage=-1)),
        f"{P}.sharing.mpsConfig.defaultActiveThreadPercentage: input should be greater than or equal to 0, not -1",
    ),
    "percentage as text": (
        opaque(mps(defaultActiveThreadPercentage="50")),
        f"{P}.sharing.mpsConfig.defaultActiveThreadPercentage: input should be a valid integer, not '50'",
    ),
    "bad quantity": (
        opaque(mps(defaultPinnedDeviceMemoryLimit="lots")),
        f"{P}.sharing.mpsConfig.defaultPinnedDeviceMemoryLimit: must be a quantity such as 4Gi",
    ),
    "limit below 1Mi": (
        opaque(mps(defaultPerDevicePinnedMemoryLimit={"0": "4k"})),
        f"{P}.{MPS_LIMITS}.0: 4k is too low, the least limit is 1Mi",
    ),
    "device key": (
        opaque(mps(defaultPerDevicePinnedMemoryLimit={"gpu-0": "4Gi"})),
        f"{P}.{MPS_LIMITS}[gpu-0]: 'gpu-0' is neither a GPU UUID nor the position of a device in the claim",
    ),
    "sharing is a list": (opaque(gpu_config(sharing=[])), f"{P}.sharing: input should be a valid dictionary"),
    "wrong kind for a named request": (
        opaque(MIG, "gpu"),
        f"{P}: MigDeviceConfig (FromClaim) can't be applied to device gpu-0 of kind gpu of request gpu",
    ),
    "iommu policy": (
        opaque({**VFIO, "iommu": {"backendPolicy": "Any"}}),
        f"{P}.iommu.backendPolicy: 'Any' is not supported",
    ),
}


@pytest.mark.parametrize(("config", "text"), WRONG.values(), ids=WRONG)
def test_wrong(config: DeviceAllocationConfiguration, text: str) -> None:
    with pytest.raises(InputError) as caught:
        chosen([config], result())
    assert str(caught.value).startswith(text)


def test_a_mistake_is_told_even_when_no_device_needs_the_entry() -> None:
    with pytest.raises(InputError, match=r"config\[1\].opaque.parameters.nonsense: unknown field"):
        chosen([opaque(gpu_config()), opaque(gpu_config(nonsense=1), "another-request")], result())


def test_repeated_fields_are_errors_with_their_path() -> None:
    text = (
        '{"apiVersion":"resource.nvidia.com/v1beta1","kind":"GpuConfig","sharing":'
        '{"strategy":"TimeSlicing","timeSlicingConfig":{"interval":"Short","interval":"Long"}}}'
    )
    parameters = json.loads(text, object_pairs_hook=json_object)
    with pytest.raises(InputError) as caught:
        chosen([opaque(parameters)], result())
    assert str(caught.value).startswith(f"{P}.sharing.timeSlicingConfig.interval: is given more than once")


def test_repeated_fields_are_found_everywhere() -> None:
    text = '{"a":1,"a":2,"b":[{"c":1},{"c":1,"c":1,"c":1,"d":{}}],"e":{"f":0,"f":0,"g":0,"g":0}}'
    value = json.loads(text, object_pairs_hook=json_object)
    assert list(repeated_fields(value)) == ["a", "b[1].c", "e.f", "e.g"]
    assert value == json.loads(text)


def test_pydantic_is_imported_only_for_configuration() -> None:
    code = (
        "import sys, dra_driver.prepare.service, dra_driver.prepare.reconcile\n"
        "assert not any(m.partition('.')[0] == 'pydantic' for m in sys.modules), 'pydantic is imported'\n"
        "from dra_driver.prepare.kinds import GPU_KINDS\n"
        "GPU_KINDS[0].decode({'apiVersion': GPU_KINDS[0].api_version, 'kind': 'GpuConfig'}, 'x', 'y')\n"
        "assert 'pydantic' in sys.modules\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
