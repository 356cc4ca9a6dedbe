from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dra_driver.errors import InputError
from dra_driver.model import codec, resource
from dra_driver.model.json_shape import KINDS
from dra_driver.model.quantity import Quantity
from dra_driver.model.resource import DeviceAttribute, ResourceClaim, ResourceSlice
from tests.model.values import values_of

SLICE: dict[str, Any] = {
    "apiVersion": "resource.k8s.io/v1",
    "kind": "ResourceSlice",
    "metadata": {
        "name": "node1-gpu",
        "generation": 2,
        "ownerReferences": [{"apiVersion": "v1", "kind": "Node", "name": "node1", "uid": "u-1", "controller": True}],
    },
    "spec": {
        "driver": "gpu.nvidia.com",
        "pool": {"name": "node1", "generation": 0, "resourceSliceCount": 1},
        "nodeName": "node1",
        "devices": [
            {
                "name": "gpu-0",
                "attributes": {
                    "type": {"string": "gpu"},
                    "index": {"int": 0},
                    "eccEnabled": {"bool": False},
                    "driverVersion": {"version": "580.65.6"},
                    "numa": {"ints": [0, 1]},
                },
                "capacity": {
                    "memory": {
                        "value": "80Gi",
                        "requestPolicy": {
                            "default": "1Gi",
                            "validRange": {"min": "1Gi", "max": "80Gi", "step": "1Gi"},
                        },
                    }
                },
                "consumesCounters": [{"counterSet": "gpu-0", "counters": {"memory": {"value": "80Gi"}}}],
                "taints": [{"key": "gpu.nvidia.com/xid", "effect": "NoSchedule"}],
                "allowMultipleAllocations": False,
            }
        ],
    },
}
CLAIM: dict[str, Any] = {
    "apiVersion": "resource.k8s.io/v1",
    "kind": "ResourceClaim",
    "metadata": {"name": "c", "namespace": "default", "uid": "u-2"},
    "spec": {
        "devices": {
            "requests": [
                {
                    "name": "a",
                    "exactly": {"deviceClassName": "gpu.nvidia.com", "allocationMode": "ExactCount", "count": 2},
                },
                {"name": "b", "exactly": {"deviceClassName": "gpu.nvidia.com", "allocationMode": "All"}},
            ],
            "constraints": [{"requests": ["a"], "matchAttribute": "resource.kubernetes.io/pcieRoot"}],
            "config": [{"opaque": {"driver": "gpu.nvidia.com", "parameters": {"kind": "GpuConfig", "x": [None]}}}],
        }
    },
    "status": {
        "allocation": {
            "devices": {
                "results": [
                    {
                        "request": "a",
                        "driver": "gpu.nvidia.com",
                        "pool": "node1",
                        "device": "gpu-0",
                        "shareID": "s",
                        "consumedCapacity": {"memory": "1Gi"},
                    }
                ]
            },
            "nodeSelector": {"nodeSelectorTerms": [{"matchFields": []}]},
        },
        "reservedFor": [{"resource": "pods", "name": "p", "uid": "u-3"}],
    },
}


@pytest.mark.parametrize("raw", [SLICE, CLAIM], ids=["slice", "claim"])
def test_what_the_api_server_sends_comes_back_unchanged(raw: dict[str, Any]) -> None:
    assert codec.encode(codec.decode_any(raw, strict=True)) == raw


def test_a_slice_is_typed() -> None:
    (device,) = codec.decode(ResourceSlice, SLICE).spec.devices
    assert device.attributes["index"] == DeviceAttribute("int", 0)
    assert device.attributes["numa"] == DeviceAttribute("ints", (0, 1))
    assert device.capacity["memory"].value == Quantity.parse("81920Mi")
    assert device.allow_multiple_allocations is False
    assert device.binds_to_node is None


def test_defaults_of_the_api_server_are_filled_in() -> None:
    raw = {
        "metadata": {},
        "spec": {
            "devices": {
                "requests": [
                    {"name": "a", "exactly": {"deviceClassName": "c", "count": 0, "tolerations": [{"operator": ""}]}},
                    {"name": "b", "exactly": {"deviceClassName": "c", "allocationMode": "All"}},
                ]
            }
        },
    }
    first, second = codec.decode(ResourceClaim, raw).spec.devices.requests
    assert first.exactly is not None
    assert second.exactly is not None
    assert (first.exactly.allocation_mode, first.exactly.count) == ("ExactCount", 1)
    assert first.exactly.tolerations[0].operator == "Equal"
    assert (second.exactly.allocation_mode, second.exactly.count) == ("All", 0)


def test_an_empty_selector_differs_from_none() -> None:
    raw = {"metadata": {"name": "r"}, "spec": {"taint": {"key": "k", "effect": "None"}, "deviceSelector": {}}}
    everything = codec.decode(resource.DeviceTaintRule, raw)
    assert everything.spec.device_selector == resource.DeviceTaintSelector()
    assert codec.encode(everything)["spec"] == raw["spec"]


def test_members_of_a_newer_api_are_ignored_unless_strict() -> None:
    raw = json.loads(json.dumps(CLAIM))
    raw["spec"]["devices"]["request"] = []
    raw["status"]["allocation"]["devices"]["results"][0]["shareId"] = "x"
    raw["metadata"]["managedFields"] = [{"manager": "kubectl"}]
    assert codec.decode(ResourceClaim, raw) == codec.decode(ResourceClaim, CLAIM)
    with pytest.raises(InputError) as refused:
        codec.decode(ResourceClaim, raw, source="claim.yaml", strict=True)
    assert str(refused.value) == (
        "claim.yaml: spec.devices.request: the API has no such field; also unknown:"
        " status.allocation.devices.results[0].shareId (did you mean requests?)"
    )


def test_an_attribute_of_a_newer_kind_stays_unknown() -> None:
    device = codec.decode(resource.Device, {"name": "d", "attributes": {"ratio": {"float": 0.5}}})
    assert device.attributes["ratio"].kind == "unknown"


def attributes(value: Any) -> list[Any]:
    return [{"name": "d", "attributes": {"a/b": value}}]


@pytest.mark.parametrize(
    ("outer", "inner", "value", "message"),
    [
        ("spec", "driver", None, "spec.driver: is missing"),
        ("spec", "driver", 3, "spec.driver: must be text, not a number"),
        ("spec", "nodeName", ["x"], "spec.nodeName: must be text, not a list"),
        ("spec", "devices", {}, "spec.devices: must be a list, not an object"),
        ("spec", "devices", [None], "spec.devices[0]: must be an object, not null"),
        (
            "spec",
            "devices",
            attributes({"int": "1"}),
            "spec.devices[0].attributes[a/b].int: must be a whole number, not text",
        ),
        (
            "spec",
            "devices",
            attributes({"ints": [1, True]}),
            "spec.devices[0].attributes[a/b].ints[1]: must be a whole number, not a boolean",
        ),
        (
            "spec",
            "devices",
            attributes({"int": 1 << 63}),
            "spec.devices[0].attributes[a/b].int: 9223372036854775808 does not fit into 64 bits",
        ),
        (
            "spec",
            "devices",
            [{"name": "d", "capacity": {"m": {"value": "1ki"}}}],
            'spec.devices[0].capacity[m].value: unable to parse quantity\'s suffix (got "1ki"',
        ),
        ("metadata", "labels", {"a": 1}, "metadata.labels[a]: must be text, not a number"),
        ("kind", None, "Pod", "kind: expected ResourceSlice, got 'Pod'"),
        ("apiVersion", None, "v1", "apiVersion: 'v1' is not a version of ResourceSlice"),
        ("apiVersion", None, ["v1"], "apiVersion: ['v1'] is not a version of ResourceSlice"),
        ("metadata", None, None, "metadata: is missing"),
    ],
)
def test_wrong_shapes_name_the_place(outer: str, inner: str | None, value: Any, message: str) -> None:
    raw = json.loads(json.dumps(SLICE))
    if inner is None:
        raw[outer] = value
    else:
        raw[outer][inner] = value
    with pytest.raises(InputError) as refused:
        codec.decode(ResourceSlice, raw, source="s.json")
    assert str(refused.value).startswith(f"s.json: {message}")


def test_an_object_of_another_kind() -> None:
    with pytest.raises(InputError, match="kind 'Pod' is none of ResourceSlice, ResourceClaim"):
        codec.decode_any({"apiVersion": "v1", "kind": "Pod"})


@pytest.mark.parametrize("kind", KINDS.values(), ids=KINDS)
def test_every_value_survives_the_round_trip(kind: type) -> None:
    @settings(deadline=None, max_examples=60)
    @given(value=values_of(kind))
    def round_trip(value: Any) -> None:
        raw = json.loads(json.dumps(codec.encode(value)))
        again = codec.decode_any(raw, strict=True)
        assert again == value
        assert codec.encode(again) == raw

    round_trip()


def test_v1beta1_slice_reads_as_v1() -> None:
    beta = json.loads(json.dumps(SLICE))
    beta["apiVersion"] = "resource.k8s.io/v1beta1"
    beta["spec"]["allNodes"] = False
    beta["spec"]["devices"] = [{"name": device.pop("name"), "basic": device} for device in beta["spec"]["devices"]]
    assert codec.decode_any(beta, strict=True) == codec.decode_any(SLICE)


def test_v1beta1_claim_reads_as_v1() -> None:
    beta = json.loads(json.dumps(CLAIM))
    beta["apiVersion"] = "resource.k8s.io/v1beta1"
    for request in beta["spec"]["devices"]["requests"]:
        request |= request.pop("exactly")
    template = {
        "apiVersion": "resource.k8s.io/v1beta1",
        "kind": "ResourceClaimTemplate",
        "metadata": {"name": "t"},
        "spec": {"spec": beta["spec"]},
    }
    assert codec.decode_any(beta, strict=True) == codec.decode_any(CLAIM)
    assert codec.decode_any(template, strict=True).spec.spec == codec.decode_any(CLAIM).spec


def test_v1beta1_first_available_has_no_exactly() -> None:
    beta = {
        "apiVersion": "resource.k8s.io/v1beta1",
        "kind": "ResourceClaim",
        "metadata": {},
        "spec": {
            "devices": {
                "requests": [
                    {"name": "r", "deviceClassName": "", "firstAvailable": [{"name": "s", "deviceClassName": "c"}]}
                ]
            }
        },
    }
    (request,) = codec.decode_any(beta).spec.devices.requests
    assert request.exactly is None
    assert [sub.name for sub in request.first_available] == ["s"]


def test_v1beta2_is_v1() -> None:
    assert codec.decode_any(CLAIM | {"apiVersion": "resource.k8s.io/v1beta2"}) == codec.decode_any(CLAIM)


@settings(max_examples=300, deadline=None)
@given(
    raw=st.fixed_dictionaries(
        {},
        optional={
            "apiVersion": st.sampled_from(["resource.k8s.io/v1", "resource.k8s.io/v1beta1", 3, None]),
            "kind": st.sampled_from([*KINDS, None, 3, []]),
            "metadata": st.sampled_from([{}, [], None, {"name": 3}]),
            "spec": st.recursive(
                st.none() | st.booleans() | st.integers() | st.text(),
                lambda inner: (
                    st.lists(inner)
                    | st.dictionaries(st.sampled_from(["devices", "requests", "spec", "basic", "pool", "name"]), inner)
                ),
            ),
        },
    )
)
def test_nothing_but_input_error_comes_out_of_rubbish(raw: Any) -> None:
    try:
        codec.decode_any(raw, strict=True)
    except InputError as error:
        assert str(error)  # noqa: PT017 - either outcome is right
