"""Rules of a ResourceSlice, with the texts that a real API server gives (see test_validation_apiserver)."""

from __future__ import annotations

import copy
from typing import Any

import pytest

from dra_driver.errors import InputError
from dra_driver.model.validation import validate_resource_slice
from dra_driver.model.validation.gates import Rules, drop_disabled
from dra_driver.model.validation.report import shortened
from tests.model.slices import EVERYTHING, shareable

PARTITIONS = {"DRAPartitionableDevices": True, "DRADeviceTaints": True}


def make(*devices: dict[str, Any], **spec: Any) -> dict[str, Any]:
    content: dict[str, Any] = {
        "driver": "gpu.nvidia.com",
        "pool": {"name": "node1", "generation": 1, "resourceSliceCount": 1},
        "nodeName": "node1",
        **spec,
    }
    if devices:
        content["devices"] = list(devices)
    kept = {key: value for key, value in content.items() if value is not None}
    return {"apiVersion": "resource.k8s.io/v1", "kind": "ResourceSlice", "metadata": {"name": "s"}, "spec": kept}


def errors(raw: dict[str, Any], minor: int = 37, **gates: bool) -> list[str]:
    return [str(error) for error in validate_resource_slice(raw, minor=minor, gates=gates)]


def device(name: str = "gpu-0", **members: Any) -> dict[str, Any]:
    return {"name": name, **members}


def _id(value: Any) -> str:
    """A row is called by what it finds."""
    return value[0].split(":", 3)[0] if isinstance(value, list) else "rule"


TAINT = {"key": "example.com/sick", "effect": "NoSchedule"}
CHOICE = "exactly one of `nodeName`, `nodeSelector`, `allNodes`, `perDeviceNodeSelection` is required"


def test_a_typical_slice_is_fine_in_every_release() -> None:
    raw = make(
        device(
            attributes={
                "type": {"string": "gpu"},
                "resource.kubernetes.io/pcieRoot": {"string": "pci0000:00"},
                "driverVersion": {"version": "580.65.6"},
                "index": {"int": 0},
                "eccEnabled": {"bool": False},
            },
            capacity={"memory": {"value": "80Gi"}},
        )
    )
    before = copy.deepcopy(raw)
    for minor in (34, 35, 36, 37):
        assert errors(raw, minor) == []
    assert raw == before


@pytest.mark.parametrize(
    ("raw", "expected"),
    [
        (make(driver=""), ["spec.driver: Required value"]),
        (make(driver="x" * 64), ["spec.driver: Too long: may not be more than 63 bytes"]),
        (make(pool={"resourceSliceCount": 1}), ["spec.pool.name: Required value"]),
        (
            make(pool={"name": "p", "generation": -1}),
            [
                "spec.pool.resourceSliceCount: Invalid value: 0: must be greater than zero",
                "spec.pool.generation: Invalid value: -1: must be greater than or equal to zero",
            ],
        ),
        (make(nodeName=None), [f"spec: Required value: {CHOICE}"]),
        (
            make(nodeName=""),
            [
                'spec.nodeName: Invalid value: "": must be either unset or set to a non-empty string',
                f"spec: Required value: {CHOICE}",
            ],
        ),
        (
            make(allNodes=True),
            [f'spec: Invalid value: "{{`nodeName`, `allNodes`}}": {CHOICE}, but multiple fields are set'],
        ),
        (make(allNodes=False), ["spec.allNodes: Invalid value: false: must be either unset or set to true"]),
        (
            make(nodeName=None, nodeSelector={}),
            [
                "spec.nodeSelector.nodeSelectorTerms: Required value: must have at least one node selector term",
                "spec.nodeSelector.nodeSelectorTerms: Invalid value: null: must have exactly one node selector term",
            ],
        ),
        (make(device("a.b")), ['spec.devices[0].name: Invalid value: "a.b": must not contain dots']),
        (make(device("a"), device("b"), device("a")), ['spec.devices[2]: Duplicate value: "a"']),
        (
            make(*[device(f"d{i}") for i in range(129)]),
            ["spec.devices: Too many: 129: must have at most 128 items"],
        ),
        (
            make(*[device(f"d{i}", taints=[TAINT]) for i in range(65)]),
            ["spec.devices: Too many: 65: must have at most 64 items"],
        ),
        (make(device(taints=[TAINT] * 17)), ["spec.devices[0].taints: Too many: 17: must have at most 16 items"]),
        (
            make(device(taints=[{"key": "a", "effect": "x"}, {"key": "a"}])),
            [
                'spec.devices[0].taints[0].effect: Unsupported value: "x":'
                ' supported values: "NoExecute", "NoSchedule", "None"',
                "spec.devices[0].taints[1].effect: Required value",
            ],
        ),
        (
            make(
                device(
                    attributes={key: {"int": 1} for key in "abcdefghijklmnopqrst"},
                    capacity={key: {} for key in "ABCDEFGHIJKLM"},
                )
            ),
            ["spec.devices[0]: Invalid value: 33: the total number of attributes and capacities must not exceed 32"],
        ),
        (
            make(device(attributes={"a": {"string": "x" * 65}, "b": {"version": "1.2"}})),
            [
                "spec.devices[0].attributes[a].string: Too long: may not be more than 64 bytes",
                'spec.devices[0].attributes[b].version: Invalid value: "1.2":'
                " must be a string compatible with semver.org spec 2.0.0",
            ],
        ),
        (
            make(device(attributes={"/a": {"int": 1}})),
            ['spec.devices[0].attributes: Invalid value: "": the domain must not be empty'],
        ),
        (
            make(device(attributes={"a": {}})),
            [
                'spec.devices[0].attributes[a]: Invalid value: "": must specify one of:'
                " `int`, `bool`, `string`, `version`, `ints`, `bools`, `strings`, `versions`"
            ],
        ),
        (
            make(device(nodeName="node1")),
            [
                "spec.devices[0]: Invalid value: null: `nodeName`, `nodeSelector` and `allNodes` can only be set if"
                " `perDeviceNodeSelection` is set to true in the ResourceSlice spec"
            ],
        ),
        (
            make(device(), nodeName=None, perDeviceNodeSelection=True),
            [
                "spec.devices[0]: Required value: exactly one of `nodeName`, `nodeSelector`, or `allNodes` is required"
                " when `perDeviceNodeSelection` is set to true in the ResourceSlice spec"
            ],
        ),
        (
            make(device(), sharedCounters=[{"name": "a", "counters": {"b": {"value": "1"}}}]),
            ['spec: Invalid value: "": only one of `sharedCounters` or `devices` is allowed'],
        ),
        (
            make(sharedCounters=[{"name": "a", "counters": {"b": {"value": "1"}}}, {"name": "a"}]),
            [
                'spec.sharedCounters[1]: Duplicate value: {"name":"a"}',
                "spec.sharedCounters[1].counters: Required value",
            ],
        ),
        (
            make(device(consumesCounters=[{"counterSet": "A", "counters": {"x_y": {"value": "1"}}}])),
            [
                'spec.devices[0].consumesCounters[0].counterSet: Invalid value: "A": a lowercase RFC 1123 label must'
                " consist of lower case alphanumeric characters or '-', and must start and end with an alphanumeric"
                " character (e.g. 'my-name',  or '123-abc', regex used for validation is"
                " '[a-z0-9]([-a-z0-9]*[a-z0-9])?')",
                'spec.devices[0].consumesCounters[0].counters: Invalid value: "x_y": a lowercase RFC 1123 label must'
                " consist of lower case alphanumeric characters or '-', and must start and end with an alphanumeric"
                " character (e.g. 'my-name',  or '123-abc', regex used for validation is"
                " '[a-z0-9]([-a-z0-9]*[a-z0-9])?')",
            ],
        ),
        (
            make(device(bindingConditions=["a", "a"])),
            [
                'spec.devices[0].bindingConditions[1]: Duplicate value: "a"',
                "spec.devices[0].bindingFailureConditions: Invalid value: null:"
                " bindingFailureConditions are required to use bindingConditions",
            ],
        ),
        (
            make(device(capacity={"m": {"value": "1", "requestPolicy": {}}})),
            ["spec.devices[0].capacity[m].requestPolicy: Forbidden: allowMultipleAllocations must be true"],
        ),
    ],
    ids=_id,
)
def test_rules_of_1_37(raw: dict[str, Any], expected: list[str]) -> None:
    assert errors(raw) == expected


POLICY = "spec.devices[0].capacity[memory].requestPolicy"


@pytest.mark.parametrize(
    ("policy", "expected"),
    [
        ({"default": "10", "validValues": ["10", "20"]}, []),
        ({"default": "10", "validRange": {"min": "10", "max": "80", "step": "10"}}, []),
        ({"validValues": ["1"]}, [f"{POLICY}.default: Required value: required when validValues is defined"]),
        (
            {"default": "1", "validValues": ["1"], "validRange": {}},
            [
                f"{POLICY}: Forbidden: exactly one policy can be specified,"
                ' cannot specify "validValues" and "validRange" at the same time'
            ],
        ),
        (
            {"default": "5", "validValues": ["2", "1", "81", "500m"]},
            [
                f'{POLICY}.validValues[1]: Invalid value: "1": values must be sorted in ascending order',
                f'{POLICY}.validValues[3]: Invalid value: "500m": values must be sorted in ascending order',
                f'{POLICY}.validValues[2]: Invalid value: "81": option is larger than capacity value: 80',
                f'{POLICY}.validValues[3]: Duplicate value: "1"',
                f'{POLICY}.validValues: Invalid value: "5": default value is not valid according to the requestPolicy',
            ],
        ),
        (
            {"default": "5", "validRange": {"min": "10", "max": "85", "step": "20"}},
            [
                f'{POLICY}.validRange.max: Invalid value: "85": max is larger than capacity value: 80',
                f'{POLICY}.validRange.default: Invalid value: "5": default is less than min: 10',
                f'{POLICY}.validRange.step: Invalid value: "5": value is not a multiple of a given step (20) from (10)',
                f'{POLICY}.validRange.step: Invalid value: "85":'
                " value is not a multiple of a given step (20) from (10)",
            ],
        ),
        (
            {"default": "1", "validRange": {"min": "1", "step": "0"}},
            [f'{POLICY}.validRange.step: Invalid value: "0": must be greater than zero'],
        ),
        (
            {"default": "1", "validRange": {"min": "-1", "step": "1"}},
            [f'{POLICY}.validRange.min: Invalid value: "-1": must be greater than or equal to 0'],
        ),
    ],
)
def test_request_policies(policy: dict[str, Any], expected: list[str]) -> None:
    assert sorted(errors(shareable(policy))) == sorted(expected)


def test_fractional_ranges_need_their_gate() -> None:
    raw = shareable({"default": "1500m", "validRange": {"min": "500m", "step": "500m"}})
    assert errors(raw, DRAFractionalCapacityRange=True) == []
    tiny = shareable({"default": "1", "validRange": {"min": "1u", "step": "1"}})
    assert errors(tiny, DRAFractionalCapacityRange=True) == [
        f'{POLICY}.validRange.min: Invalid value: "1u": value cannot be represented as a milli value'
    ]


@pytest.mark.parametrize(
    ("minor", "expected"),
    [
        (34, ["spec.devices[0].attributes[a]: Required value: exactly one value must be specified"]),
        (35, ['spec.devices[0].attributes[a]: Invalid value: "": exactly one value must be specified']),
        (36, ['spec.devices[0].attributes[a]: Invalid value: "": exactly one value must be specified']),
    ],
)
def test_an_attribute_without_value_in_older_releases(minor: int, expected: list[str]) -> None:
    assert errors(make(device(attributes={"a": {}})), minor) == expected
    # The gate of lists is off, so a list is lost before anyone looks.
    assert errors(make(device(attributes={"a": {"ints": [1]}})), minor) == expected


@pytest.mark.parametrize(
    ("minor", "expected"),
    [
        (34, ['spec.devices[1].name: Duplicate value: "a"']),
        (35, ['spec.devices[1]: Duplicate value: "a"']),
    ],
)
def test_duplicate_devices_in_older_releases(minor: int, expected: list[str]) -> None:
    assert errors(make(device("a"), device("a")), minor) == expected


def test_bad_keys_are_reported_at_their_entry_until_1_35() -> None:
    raw = make(device(attributes={"/a": {"int": 1}}))
    assert errors(raw, 34) == ["spec.devices[0].attributes[/a]: Required value: the domain must not be empty"]
    assert errors(raw, 35) == ['spec.devices[0].attributes[/a]: Invalid value: "": the domain must not be empty']
    assert errors(raw, 36) == ['spec.devices[0].attributes: Invalid value: "": the domain must not be empty']


def test_taints_of_1_34() -> None:
    five = make(device(taints=[TAINT] * 5))
    assert errors(five, 34) == []
    assert errors(five, 34, **PARTITIONS) == ["spec.devices[0].taints: Too many: 5: must have at most 4 items"]
    assert errors(five, 35, **PARTITIONS) == []
    many = make(*[device(f"d{i}", taints=[TAINT]) for i in range(65)])
    assert errors(many, 34, **PARTITIONS) == []
    assert errors(many, 35, **PARTITIONS) == ["spec.devices: Too many: 65: must have at most 64 items"]
    dry_run = make(device(taints=[{"key": "a", "effect": "None"}]))
    assert errors(dry_run, 34, **PARTITIONS) == [
        'spec.devices[0].taints[0].effect: Unsupported value: "None": supported values: "NoExecute", "NoSchedule"'
    ]


def test_counters_of_1_34_belong_to_their_slice() -> None:
    consumer = device(consumesCounters=[{"counterSet": "a", "counters": {"x": {"value": "1"}, "y": {"value": "1"}}}])
    sets = [{"name": "a", "counters": {"x": {"value": "1"}}}]
    assert errors(make(consumer, sharedCounters=sets), 34, **PARTITIONS) == [
        'spec.devices[0].consumesCounters[0].counters: Invalid value: "y":'
        " must reference a counter defined in the ResourceSlice sharedCounters"
    ]
    assert errors(make(consumer), 34, **PARTITIONS) == [
        'spec.devices[0].consumesCounters[0].counterSet: Invalid value: "a":'
        " must reference a counterSet defined in the ResourceSlice sharedCounters"
    ]
    assert errors(make(consumer), 35, **PARTITIONS) == []
    many = [{"name": f"s{i}", "counters": {f"c{j}": {"value": "1"} for j in range(11)}} for i in range(3)]
    assert errors(make(sharedCounters=many), 34, **PARTITIONS) == [
        "spec.sharedCounters: Invalid value: 33: the total number of shared counters must not exceed 32"
    ]
    assert errors(make(sharedCounters=many), 35, **PARTITIONS) == []


def test_fields_of_disabled_features_are_dropped_and_named() -> None:
    spec = EVERYTHING["spec"]
    kept, dropped = drop_disabled(spec, Rules(34))
    assert dropped == [
        "spec.perDeviceNodeSelection",
        "spec.partitionTypeAttribute",
        "spec.skipNodeOperations",
        "spec.sharedCounters",
        "spec.devices[0].consumesCounters",
        "spec.devices[0].taints",
        "spec.devices[0].bindsToNode",
        "spec.devices[0].bindingConditions",
        "spec.devices[0].bindingFailureConditions",
        "spec.devices[0].allowMultipleAllocations",
        "spec.devices[0].nodeAllocatableResources",
        "spec.devices[0].attributes[e].ints",
        "spec.devices[0].attributes[f].bools",
        "spec.devices[0].attributes[g].strings",
        "spec.devices[0].attributes[h].versions",
        "spec.devices[0].capacity[memory].requestPolicy",
    ]
    assert kept["devices"][0]["capacity"] == {"memory": {"value": "80Gi"}}
    assert "requestPolicy" in spec["devices"][0]["capacity"]["memory"]
    _, dropped = drop_disabled(spec, Rules(37))
    assert dropped == [
        "spec.partitionTypeAttribute",
        "spec.skipNodeOperations",
        "spec.devices[0].nodeAllocatableResources",
        "spec.devices[0].attributes[e].ints",
        "spec.devices[0].attributes[f].bools",
        "spec.devices[0].attributes[g].strings",
        "spec.devices[0].attributes[h].versions",
        "spec.devices[0].consumesCounters[0].compatibilityGroups",
    ]


def test_what_an_update_must_not_change() -> None:
    old = make(device())
    new = make(device(), driver="other.example.com", pool={"name": "p", "resourceSliceCount": 1}, nodeName="n")
    found = [str(error) for error in validate_resource_slice(new, old=old)]
    assert found == [
        'spec.pool.name: Invalid value: "p": field is immutable',
        'spec.driver: Invalid value: "other.example.com": field is immutable',
        'spec.nodeName: Invalid value: "n": field is immutable',
    ]
    assert validate_resource_slice(old, old=old) == []
    unset = make(device(), nodeName=None, allNodes=True)
    assert [str(error) for error in validate_resource_slice(unset, old=old)] == [
        "spec.nodeName: Invalid value: null: field is immutable"
    ]


def test_older_versions_are_judged_as_v1() -> None:
    raw = make(device()) | {"apiVersion": "resource.k8s.io/v1beta1"}
    raw["spec"]["devices"] = [{"name": "gpu-0", "basic": {"attributes": {"a": {"version": "x"}}}}]
    assert errors(raw) == [
        'spec.devices[0].attributes[a].version: Invalid value: "x":'
        " must be a string compatible with semver.org spec 2.0.0"
    ]


@pytest.mark.parametrize(
    ("raw", "message"),
    [
        (make(device(taints="x")), "s.yaml: spec.devices[0].taints: must be a list, not 'x'"),
        (make(device(attributes={"a": {"int": True}})), "s.yaml: spec.devices[0].attributes[a].int: must be a whole"),
        (make(device(capacity={"m": {"value": "x"}})), "s.yaml: spec.devices[0].capacity[m].value: quantities must"),
        (make(device(taints=[{"timeAdded": "now"}])), "s.yaml: spec.devices[0].taints[0].timeAdded: must be a time"),
        (make(nodeSelector=[]), "s.yaml: spec.nodeSelector: must be an object"),
    ],
)
def test_what_cannot_be_read_is_an_input_error(raw: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError) as refused:
        validate_resource_slice(raw, source="s.yaml")
    assert str(refused.value).startswith(message)


@pytest.mark.parametrize(
    ("minor", "gates", "message"),
    [
        (33, {}, "Kubernetes 1.33 is not supported"),
        (37, {"Foo": True}, "Foo is not a feature gate that matters here"),
        (35, {"DRAListTypeAttributes": True}, "Kubernetes 1.35 has no feature gate DRAListTypeAttributes"),
    ],
)
def test_unknown_releases_and_gates(minor: int, gates: dict[str, bool], message: str) -> None:
    with pytest.raises(InputError, match=message):
        validate_resource_slice(make(), minor=minor, gates=gates)


def test_long_keys_are_shortened_in_paths() -> None:
    assert shortened("a" * 96, 96) == "a" * 96
    assert shortened("a" * 60 + "b" * 60, 96) == "a" * 47 + "..." + "b" * 46
