"""When contents are equal, and how a dropped field is named."""

from __future__ import annotations

from typing import Any

import pytest

from dra_driver.kube.slice_content import Difference, differences, same, with_times


def spec(**device: Any) -> dict[str, Any]:
    return {"driver": "d", "devices": [{"name": "gpu-0", **device}]}


TAINT = {"key": "gpu", "effect": "NoSchedule"}


@pytest.mark.parametrize(
    ("left", "right"),
    [
        pytest.param(
            spec(capacity={"memory": {"value": "80Gi"}}),
            spec(capacity={"memory": {"value": "81920Mi"}}),
            id="quantities-by-value",
        ),
        pytest.param(
            spec(capacity={"m": {"value": "1", "requestPolicy": {"default": "1", "validValues": ["1000m"]}}}),
            spec(capacity={"m": {"value": "1", "requestPolicy": {"default": "1000m", "validValues": ["1"]}}}),
            id="policy-quantities",
        ),
        pytest.param(
            spec(consumesCounters=[{"counterSet": "c", "counters": {"x": {"value": "1Ki"}}}]),
            spec(consumesCounters=[{"counterSet": "c", "counters": {"x": {"value": "1024"}}}]),
            id="counters",
        ),
        pytest.param(spec(attributes={}, taints=[]), spec(), id="empty-is-absent"),
        pytest.param(
            spec(taints=[TAINT]), spec(taints=[TAINT | {"timeAdded": "2026-01-01T00:00:00Z"}]), id="time-filled"
        ),
        pytest.param(
            spec(taints=[TAINT | {"timeAdded": "2026-01-01T00:00:00.700000Z"}]),
            spec(taints=[TAINT | {"timeAdded": "2026-01-01T00:00:01Z"}]),
            id="time-rounded",
        ),
        pytest.param(spec(taints=[TAINT | {"value": ""}]), spec(taints=[TAINT]), id="empty-taint-value"),
        pytest.param(
            {"pool": {"generation": 1}} | spec(), {"pool": {"generation": 2}} | spec(), id="pool-is-not-content"
        ),
    ],
)
def test_equal(left: dict[str, Any], right: dict[str, Any]) -> None:
    assert same(left, right)
    assert same(right, left)


@pytest.mark.parametrize(
    ("sent", "stored", "expected"),
    [
        pytest.param(spec(taints=[TAINT]), spec(), ("spec.devices[0].taints", "dropped"), id="dropped"),
        pytest.param(spec(), spec(bindsToNode=True), ("spec.devices[0].bindsToNode", "added"), id="added"),
        pytest.param(
            spec(attributes={"a.b/c": {"string": "x"}}),
            spec(attributes={"a.b/c": {"string": "y"}}),
            ("spec.devices[0].attributes[a.b/c].string", "changed"),
            id="attribute",
        ),
        pytest.param(
            spec(attributes={"memory": {"string": "1Gi"}}),
            spec(attributes={"memory": {"string": "1024Mi"}}),
            ("spec.devices[0].attributes[memory].string", "changed"),
            id="strings-are-no-quantities",
        ),
        pytest.param(
            spec(attributes={"a": {"string": ""}}),
            spec(attributes={"a": {}}),
            ("spec.devices[0].attributes[a]", "dropped"),
            id="empty-string-attribute",
        ),
        pytest.param(
            spec(attributes={"a": {"bool": True}}),
            spec(attributes={"a": {"bool": 1}}),
            ("spec.devices[0].attributes[a].bool", "changed"),
            id="true-is-not-one",
        ),
        pytest.param(
            spec(capacity={"memory": {"value": "1", "requestPolicy": {"default": "1"}}}),
            spec(capacity={"memory": {"value": "1"}}),
            ("spec.devices[0].capacity[memory].requestPolicy", "dropped"),
            id="policy",
        ),
        pytest.param(
            spec(taints=[TAINT | {"timeAdded": "2026-01-01T00:00:00Z"}]),
            spec(taints=[TAINT | {"timeAdded": "2026-01-01T00:00:05Z"}]),
            ("spec.devices[0].taints[0].timeAdded", "changed"),
            id="other-time",
        ),
        pytest.param(
            {"devices": [{"name": "a"}, {"name": "b"}]},
            {"devices": [{"name": "b"}, {"name": "a"}]},
            ("spec.devices[0].name", "changed"),
            id="order-counts",
        ),
        pytest.param({"sharedCounters": [{"name": "c"}]}, {}, ("spec.sharedCounters", "dropped"), id="counters"),
    ],
)
def test_different(sent: dict[str, Any], stored: dict[str, Any], expected: tuple[str, str]) -> None:
    found = next(differences(sent, stored))

    assert (found.path, found.kind) == expected


@pytest.mark.parametrize(
    ("path", "gate"),
    [
        ("spec.devices[3].taints", "DRADeviceTaints"),
        ("spec.sharedCounters", "DRAPartitionableDevices"),
        ("spec.devices[0].capacity[memory].requestPolicy", "DRAConsumableCapacity"),
        ("spec.devices[0].consumesCounters[0].compatibilityGroups", "DRADeviceCompatibilityGroups"),
        ("spec.devices[0].attributes[a.b/c].ints", "DRAListTypeAttributes"),
        ("spec.devices[0].name", None),
    ],
)
def test_the_gate_behind_a_field(path: str, gate: str | None) -> None:
    assert Difference(path, "dropped").gate == gate


def test_equal_taints_keep_the_time_they_have() -> None:
    stored = spec(taints=[TAINT | {"timeAdded": "2026-01-01T00:00:00Z"}])
    other = {"key": "other", "effect": "NoExecute"}

    result = with_times(spec(taints=[other, TAINT]), stored)

    assert result == spec(taints=[other, TAINT | {"timeAdded": "2026-01-01T00:00:00Z"}])
