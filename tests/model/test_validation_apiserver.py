"""What a real API server refuses, our validation refuses: at the same places and in the same words."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from dra_driver.errors import InputError
from dra_driver.model import codec
from dra_driver.model.resource import ResourceSlice
from dra_driver.model.validation import validate_resource_slice
from dra_driver.model.validation.gates import Rules, drop_disabled
from tests.cluster.apiserver import ApiServer, served
from tests.model.slices import misshapen_slices, raw_slices, shareable_slices

pytestmark = pytest.mark.integration

PATH = "/apis/resource.k8s.io/v1/resourceslices?dryRun=All"
ALPHA_GATES = {
    "DRAFractionalCapacityRange": True,
    "DRAListTypeAttributes": True,
    "DRANodeAllocatableResources": True,
    "DRAOptionalNodeOperations": True,
    "DRADeviceCompatibilityGroups": True,
    "DRAPartitionableDevicesType": True,
}

many = settings(
    max_examples=800,
    deadline=None,
    derandomize=True,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow, HealthCheck.data_too_large],
)


@pytest.fixture(scope="module")
def alpha_apiserver() -> Iterator[ApiServer]:
    """An API server with every alpha gate of ResourceSlice on."""
    gates = ALPHA_GATES | {"DRAResourcePoolStatus": True}
    with served(feature_gates=gates, flags=["--min-compatibility-version=1.37"]) as server:
        yield server


def compare(server: ApiServer, raw: dict[str, Any], gates: dict[str, bool]) -> None:
    status, answer = server.post(PATH, {"apiVersion": "resource.k8s.io/v1", "kind": "ResourceSlice", **raw})
    if status == 400:
        with pytest.raises(InputError):
            validate_resource_slice(raw, gates=gates)
        return
    found = validate_resource_slice(raw, gates=gates)
    if status == 201:
        assert [str(error) for error in found] == []
        same_content(raw, answer, gates)
        return
    assert status == 422, answer
    # Go goes through maps in any order, so only the set can be compared.
    expected = sorted(f"{cause['field']}: {cause['message']}" for cause in answer["details"]["causes"])
    assert sorted(str(error) for error in found) == expected


def same_content(raw: dict[str, Any], answer: dict[str, Any], gates: dict[str, bool]) -> None:
    """What is stored is what was sent without the fields that we say are dropped."""
    spec, _ = drop_disabled(json.loads(json.dumps(raw.get("spec", {}))), Rules(gates=gates))
    stored = json.loads(json.dumps(answer["spec"]))
    for content in (spec, stored):
        for device in content.get("devices") or []:
            for taint in (device or {}).get("taints") or []:
                taint.pop("timeAdded", None)
    sent = codec.decode(ResourceSlice, {"metadata": {}, "spec": spec})
    kept = codec.decode(ResourceSlice, {"metadata": {}, "spec": stored}, strict=True)
    assert without_empty(codec.encode(sent)) == without_empty(codec.encode(kept))


def without_empty(raw: Any) -> Any:
    """Lists without content are dropped on the way; objects keep their meaning when they are empty."""
    if isinstance(raw, list):
        return [without_empty(item) for item in raw]
    if isinstance(raw, dict):
        return {key: without_empty(value) for key, value in raw.items() if value not in ([], None)}
    return raw


slices = st.one_of(raw_slices, raw_slices, shareable_slices, misshapen_slices)


@many
@given(raw=slices)
def test_default_gates(apiserver: ApiServer, raw: dict[str, Any]) -> None:
    compare(apiserver, raw, {})


@many
@given(raw=slices)
def test_alpha_gates(alpha_apiserver: ApiServer, raw: dict[str, Any]) -> None:
    compare(alpha_apiserver, raw, ALPHA_GATES)
