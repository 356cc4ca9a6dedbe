"""The values: versions, names, and the way to JSON and back."""

from __future__ import annotations

import re

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dra_driver.cdi.spec import (
    CdiDevice,
    ContainerEdits,
    DeviceNode,
    IntelRdt,
    Mount,
    NetDevice,
    Spec,
    as_json,
    claim_spec_name,
    device_name,
    from_json,
    mangled,
    minimum_version,
    qualified_name,
)
from tests.cdi import strategies

PLAIN = ContainerEdits(env=("A=b",))


def spec(edits: ContainerEdits = PLAIN, *, kind: str = "example.com/gpu", name: str = "a", **more: object) -> Spec:
    return Spec(kind=kind, devices=(CdiDevice(name=name, edits=edits),), **more)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("value", "version"),
    [
        pytest.param(spec(), "0.3.0", id="nothing special"),
        pytest.param(
            spec(ContainerEdits(mounts=(Mount(host_path="/a", container_path="/b"),))), "0.3.0", id="bind mount"
        ),
        pytest.param(
            spec(ContainerEdits(mounts=(Mount(host_path="/a", container_path="/b", type="bind"),))),
            "0.4.0",
            id="mount type",
        ),
        pytest.param(
            spec(ContainerEdits(device_nodes=(DeviceNode(path="/dev/a"),))), "0.3.0", id="node at the same path"
        ),
        pytest.param(
            spec(ContainerEdits(device_nodes=(DeviceNode(path="/dev/a", host_path="/x"),))), "0.5.0", id="host path"
        ),
        pytest.param(spec(name="0"), "0.5.0", id="device name begins with a digit"),
        pytest.param(
            Spec(
                kind="example.com/gpu",
                devices=(CdiDevice(name="a", edits=PLAIN), CdiDevice(name="1", edits=PLAIN)),
            ),
            "0.5.0",
            id="second device name begins with a digit",
        ),
        pytest.param(spec(kind="example.com/gpu.coherent"), "0.6.0", id="dotted class"),
        pytest.param(spec(annotations=(("a", "b"),)), "0.6.0", id="annotations of the spec"),
        pytest.param(
            Spec(kind="example.com/gpu", devices=(CdiDevice(name="a", edits=PLAIN, annotations=(("a", "b"),)),)),
            "0.6.0",
            id="annotations of a device",
        ),
        pytest.param(spec(ContainerEdits(additional_gids=(44,))), "0.7.0", id="groups"),
        pytest.param(spec(common=ContainerEdits(additional_gids=(44,))), "0.7.0", id="groups in the common part"),
        pytest.param(spec(ContainerEdits(intel_rdt=IntelRdt())), "0.7.0", id="RDT"),
        pytest.param(spec(ContainerEdits(intel_rdt=IntelRdt(schemata=("L3:0=f",)))), "1.1.0", id="RDT schemata"),
        pytest.param(spec(ContainerEdits(intel_rdt=IntelRdt(enable_monitoring=True))), "1.1.0", id="RDT monitoring"),
        pytest.param(
            spec(common=ContainerEdits(net_devices=(NetDevice(host_interface_name="a", name="b"),))),
            "1.1.0",
            id="network interface",
        ),
    ],
)
def test_minimum_version(value: Spec, version: str) -> None:
    assert minimum_version(value) == version
    assert as_json(value)["cdiVersion"] == version


def test_names_of_a_claim_are_those_of_nvidias_driver() -> None:
    uid = "7c6ff4b4-1f1b-4e53-9f5d-5e1f0f4a3a11"
    assert device_name(uid, "gpu-0") == f"{uid}-gpu-0"
    assert claim_spec_name(uid) == f"k8s.gpu.nvidia.com-claim_{uid}.json"
    assert qualified_name("k8s.gpu.nvidia.com", "claim", f"{uid}-gpu-0") == f"k8s.gpu.nvidia.com/claim={uid}-gpu-0"


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("gpu-0-mig-1g.5gb-0", "gpu-0-mig-1g.5gb-0"),
        ("1g.5gb+me", "1g.5gb_2bme"),
        ("1g.5gb_2bme", "1g.5gb_5f2bme"),
        ("a+", "a_2b"),
        ("a-", "a_2d"),
        ("0:1", "0:1"),
        ("a/b=c", "a_2fb_3dc"),
        ("ü", "_c3_bc"),
    ],
)
def test_mangled(name: str, expected: str) -> None:
    assert mangled(name) == expected


@given(st.text(min_size=1, max_size=8), st.text(min_size=1, max_size=8))
def test_mangled_names_are_legal_and_stay_different(one: str, other: str) -> None:
    legal = re.compile(r"[A-Za-z0-9]([A-Za-z0-9_.:-]*[A-Za-z0-9])?")
    assert legal.fullmatch(device_name("uid", one))
    assert (mangled(one) == mangled(other)) == (one == other)


@settings(max_examples=25)
@given(strategies.specs)
def test_json_and_back(value: Spec) -> None:
    assert from_json(as_json(value)) == value


def test_zero_and_empty_are_left_out() -> None:
    edits = ContainerEdits(
        device_nodes=(DeviceNode(path="/dev/nvidia0", major=195, minor=0, file_mode=0o666, permissions="rwm"),),
        mounts=(Mount(host_path="/a", container_path="/b"),),
    )
    assert as_json(spec(edits))["devices"][0]["containerEdits"] == {
        "deviceNodes": [{"path": "/dev/nvidia0", "major": 195, "fileMode": 438, "permissions": "rwm"}],
        "mounts": [{"hostPath": "/a", "containerPath": "/b"}],
    }


def test_sum_of_edits_keeps_order_and_merges_groups() -> None:
    one = ContainerEdits(env=("A=1",), additional_gids=(105, 44))
    other = ContainerEdits(env=("B=2",), additional_gids=(44,), intel_rdt=IntelRdt(clos_id="gold"))
    assert one + other == ContainerEdits(
        env=("A=1", "B=2"), additional_gids=(44, 105), intel_rdt=IntelRdt(clos_id="gold")
    )
    assert one + ContainerEdits() is one
    assert ContainerEdits() + one is one
