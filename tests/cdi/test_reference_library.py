"""The CDI reference library (Go) and ours agree: on what is valid, on versions, and on what we write."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator

import pytest
from hypothesis import given, settings

from dra_driver.cdi.described import DescribedEdits
from dra_driver.cdi.files import SpecDirectory
from dra_driver.cdi.render import render
from dra_driver.cdi.spec import (
    CLASS,
    VENDOR,
    CdiDevice,
    Spec,
    as_json,
    claim_spec_name,
    device_name,
    minimum_version,
    qualified_name,
)
from dra_driver.inventory.hardware import Gpu
from tests.cdi import strategies
from tests.cdi.conftest import driver_edits, gpu_value
from tests.cdi.corpus import CASES, Case
from tests.cdi.programs import Reference
from tests.cluster.availability import Unavailable, skip_or_fail
from tests.driver_root import FakeDriverRoot

pytestmark = pytest.mark.integration

UID = "7c6ff4b4-1f1b-4e53-9f5d-5e1f0f4a3a11"


@pytest.fixture(scope="module")
def reference() -> Iterator[Reference]:
    try:
        running = Reference()
    except Unavailable as reason:
        skip_or_fail(reason)
    with running:
        yield running


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_same_verdict_or_a_documented_one(reference: Reference, case: Case) -> None:
    answer = reference.ask("load", files={"case.json": case.content})
    loads = "case.json" not in answer.get("errors", {}) and bool(answer.get("devices"))
    assert loads == (case.valid or case.accepted_by_reference is not None), answer
    if case.valid:
        assert answer["devices"], "a file without errors has devices"


def test_we_refuse_whatever_the_library_refuses() -> None:
    """The documented differences all go one way."""
    assert not [case.name for case in CASES if case.valid and case.accepted_by_reference]


def test_every_device_of_a_random_spec_is_loaded(reference: Reference) -> None:
    @settings(max_examples=100, database=None)
    @given(strategies.specs)
    def check(spec: Spec) -> None:
        content = render(spec.kind, spec.devices, spec.common, spec.annotations).decode()
        answer = reference.ask("load", files={"case.json": content})
        assert answer == {"devices": sorted(f"{spec.kind}={device.name}" for device in spec.devices)}
        assert reference.ask("minimum", spec=as_json(spec)) == {"version": minimum_version(spec)}

    check()


def test_a_claims_spec_resolves_and_is_injected(
    reference: Reference, tmp_path_factory: pytest.TempPathFactory, build: Callable[..., FakeDriverRoot]
) -> None:
    fake = build(gpus=2)
    edits = driver_edits(fake, host_path="/run/nvidia/driver")
    devices = [
        CdiDevice(name=device_name(UID, f"gpu-{gpu.minor}"), edits=edits.gpu(gpu_value(gpu))) for gpu in fake.gpus
    ]
    directory = SpecDirectory(tmp_path_factory.mktemp("cdi"))
    directory.write(claim_spec_name(UID), render(f"{VENDOR}/{CLASS}", devices, edits.common()))
    # With type and major number a node need not exist where the library runs; ours are complete but for the type,
    # which the library takes from the host. So the wanted nodes are checked in the file that it accepted.
    answer = reference.ask("load", files={claim_spec_name(UID): (directory.read(claim_spec_name(UID)) or b"").decode()})
    assert answer == {"devices": [qualified_name(VENDOR, CLASS, device.name) for device in devices]}


def test_injection_of_a_described_machine(reference: Reference, tmp_path_factory: pytest.TempPathFactory) -> None:
    source = DescribedEdits("profile:dgx-h100")
    gpus = [Gpu(index=n, minor=n, uuid=f"GPU-{n}", name="NVIDIA H100") for n in range(2)]
    devices = [CdiDevice(name=device_name(UID, f"gpu-{gpu.minor}"), edits=source.gpu(gpu)) for gpu in gpus]
    directory = SpecDirectory(tmp_path_factory.mktemp("cdi"))
    directory.write(claim_spec_name(UID), render(f"{VENDOR}/{CLASS}", devices, source.common()))
    answer = reference.ask(
        "inject",
        dirs=[str(directory.path)],
        devices=[qualified_name(VENDOR, CLASS, device.name) for device in devices],
        config={"ociVersion": "1.0.2"},
    )
    assert answer["config"]["process"]["env"] == [
        "DRA_DRIVER_DESCRIBED_MACHINE=profile:dgx-h100",
        "NVIDIA_VISIBLE_DEVICES=void",
        "DRA_DRIVER_DESCRIBED_GPU_0=GPU-0",
        "DRA_DRIVER_DESCRIBED_GPU_0_NAME=NVIDIA H100",
        "DRA_DRIVER_DESCRIBED_GPU_1=GPU-1",
        "DRA_DRIVER_DESCRIBED_GPU_1_NAME=NVIDIA H100",
    ]


def test_two_claims_never_share_a_device(reference: Reference) -> None:
    """The library drops a device that two files of one directory define; claim UIDs keep ours apart."""
    source = DescribedEdits("profile:dgx-h100")
    gpu = Gpu(index=0, minor=0, uuid="GPU-0", name="NVIDIA H100")
    files = {
        claim_spec_name(uid): render(
            f"{VENDOR}/{CLASS}", [CdiDevice(name=device_name(uid, "gpu-0"), edits=source.gpu(gpu))], source.common()
        ).decode()
        for uid in ("uid-1", "uid-2")
    }
    answer = reference.ask("load", files=files)
    assert answer == {"devices": [f"{VENDOR}/{CLASS}=uid-1-gpu-0", f"{VENDOR}/{CLASS}=uid-2-gpu-0"]}
    doubled = reference.ask(
        "load", files={"a.json": files[claim_spec_name("uid-1")], "b.json": files[claim_spec_name("uid-1")]}
    )
    assert not doubled.get("devices")


def test_temporary_files_are_not_loaded(reference: Reference) -> None:
    content = json.dumps({"half": "a file"})
    assert reference.ask("load", files={".dra-driver-1.tmp": content, "k8s.tmp": content}) == {}
