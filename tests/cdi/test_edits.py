"""Answers stay true: what changes on the node is seen by the next call, and a wrong answer is never given.

User pains 1 and 2 of NVIDIA's driver: a spec computed while device nodes or the driver were missing was served for five
minutes.
"""

from __future__ import annotations

import builtins
import errno
import os
import shutil
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from dra_driver.cdi.discovery import edits as discovery
from dra_driver.cdi.discovery.libraries import driver_libraries
from dra_driver.errors import EnvironmentFault
from tests.cdi.conftest import driver_edits, gpu_value
from tests.driver_root import FakeDriverRoot

Build = Callable[..., FakeDriverRoot]


@pytest.fixture
def searches(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The driver versions for which libraries were really searched."""
    seen: list[str] = []

    def counted(tree: object, version: str) -> object:
        seen.append(version)
        return driver_libraries(tree, version)  # type: ignore[arg-type]

    monkeypatch.setattr(discovery, "driver_libraries", counted)
    return seen


def test_unchanged_node_is_searched_once(fake: FakeDriverRoot, searches: list[str]) -> None:
    edits = driver_edits(fake)
    first = edits.common()
    assert edits.common() is first
    assert searches == ["580.95.05"]
    gpu = gpu_value(fake.gpus[0])
    assert edits.gpu(gpu) is edits.gpu(gpu)


def test_gpus_do_not_share_answers(fake: FakeDriverRoot) -> None:
    edits = driver_edits(fake)
    one, other = (edits.gpu(gpu_value(gpu)) for gpu in fake.gpus)
    assert one.device_nodes[0].path == "/dev/nvidia0"
    assert other.device_nodes[0].path == "/dev/nvidia1"


def test_upgraded_driver(fake: FakeDriverRoot) -> None:
    edits = driver_edits(fake)
    edits.common()
    fake.upgrade("590.10.01")
    paths = {mount.container_path for mount in edits.common().mounts}
    assert "/usr/lib/x86_64-linux-gnu/libcuda.so.590.10.01" in paths
    assert not any("580.95.05" in path for path in paths)


def test_libraries_newer_than_the_loaded_module(fake: FakeDriverRoot) -> None:
    edits = driver_edits(fake)
    edits.common()
    loaded = fake.driver_version
    fake.upgrade("590.10.01")
    fake.driver_version = loaded
    with pytest.raises(EnvironmentFault) as caught:
        edits.common()
    assert "the loaded NVIDIA driver is 580.95.05" in caught.value.message
    assert "are 590.10.01" in caught.value.message
    assert "reboot" in (caught.value.hint or "")


def test_driver_files_gone_and_back(fake: FakeDriverRoot) -> None:
    edits = driver_edits(fake, host_path="/run/nvidia/driver")
    before = edits.common()
    shutil.move(fake.library_directory, fake.path / "away")
    with pytest.raises(EnvironmentFault, match=r"no libcuda\.so\.580\.95\.05 under the driver root /run/nvidia/driver"):
        edits.common()
    shutil.move(fake.path / "away", fake.library_directory)
    assert edits.common() == before


def test_driver_that_does_not_answer(fake: FakeDriverRoot) -> None:
    edits = driver_edits(fake)
    edits.common()
    fake.driver_version = ""
    for call in (edits.common, lambda: edits.gpu(gpu_value(fake.gpus[0]))):
        with pytest.raises(EnvironmentFault, match="does not answer"):
            call()


def test_gpu_node_vanishes_and_returns(fake: FakeDriverRoot) -> None:
    edits = driver_edits(fake, host_path="/run/nvidia/driver")
    gpu = gpu_value(fake.gpus[0])
    before = edits.gpu(gpu)
    fake.remove_node("/dev/nvidia0")
    with pytest.raises(EnvironmentFault) as caught:
        edits.gpu(gpu)
    assert "gpu-0" in caught.value.message
    assert gpu.uuid in caught.value.message
    assert "/run/nvidia/driver/dev/nvidia0" in caught.value.message
    assert "nvidia-modprobe -c 0" in (caught.value.hint or "")
    assert caught.value.retryable
    # The other GPU is not concerned.
    assert edits.gpu(gpu_value(fake.gpus[1])).device_nodes
    fake.add_node("/dev/nvidia0", 195, 0)
    assert edits.gpu(gpu) == before


def test_fresh_node_before_its_device_nodes_exist(build: Build) -> None:
    """Pain 1: the driver's files are there, its nodes not yet; the answer comes as soon as they are."""
    fake = build(gpus=1)
    for node in ("nvidia0", "nvidiactl", "nvidia-uvm", "nvidia-uvm-tools", "nvidia-modeset"):
        fake.remove_node(f"/dev/{node}")
    edits = driver_edits(fake)
    with pytest.raises(EnvironmentFault, match="/dev/nvidiactl, /dev/nvidia-uvm"):
        edits.common()
    with pytest.raises(EnvironmentFault, match="/dev/nvidia0"):
        edits.gpu(gpu_value(fake.gpus[0]))
    fake.add_control_nodes()
    fake.add_node("/dev/nvidia0", 195, 0)
    assert len(edits.common().device_nodes) == 4
    assert edits.gpu(gpu_value(fake.gpus[0])).device_nodes[0].path == "/dev/nvidia0"


@pytest.mark.parametrize("node", ["/dev/nvidiactl", "/dev/nvidia-uvm"])
def test_required_control_node_vanishes(fake: FakeDriverRoot, node: str) -> None:
    edits = driver_edits(fake)
    edits.common()
    fake.remove_node(node)
    with pytest.raises(EnvironmentFault, match=f"device nodes are missing: {node}$|device nodes are missing: {node} "):
        edits.common()


def test_optional_control_node_comes_and_goes(fake: FakeDriverRoot) -> None:
    edits = driver_edits(fake)
    edits.common()
    fake.remove_node("/dev/nvidia-modeset")
    assert "/dev/nvidia-modeset" not in [node.path for node in edits.common().device_nodes]
    fake.add_node("/dev/nvidia-modeset", 195, 254)
    assert "/dev/nvidia-modeset" in [node.path for node in edits.common().device_nodes]


def test_a_file_in_a_nodes_place_is_no_node(fake: FakeDriverRoot) -> None:
    fake.remove_node("/dev/nvidia0")
    (fake.dev_root / "dev/nvidia0").write_text("")
    with pytest.raises(EnvironmentFault, match="no character device"):
        driver_edits(fake).gpu(gpu_value(fake.gpus[0]))


def test_node_with_another_number_or_owner(fake: FakeDriverRoot) -> None:
    """/dev/nvidia-uvm has a dynamic major number: it may change when the module is loaded again."""
    edits = driver_edits(fake)
    edits.common()
    fake.remove_node("/dev/nvidia-uvm")
    fake.add_node("/dev/nvidia-uvm", 507, 0, mode=0o660, gid=1234)
    common = edits.common()
    (node,) = (node for node in common.device_nodes if node.path == "/dev/nvidia-uvm")
    assert (node.major, node.file_mode, node.gid) == (507, 0o660, 1234)
    assert common.additional_gids == (1234,)


def test_drm_module_loaded_later(build: Build) -> None:
    fake = build(drm=False)
    edits = driver_edits(fake)
    gpu = gpu_value(fake.gpus[0])
    assert len(edits.gpu(gpu).device_nodes) == 1
    (fake.sysfs / "bus/pci/devices" / fake.gpus[0].pci_bus_id / "drm/card0").mkdir(parents=True)
    fake.add_node("/dev/dri/card0", 226, 0)
    assert [node.path for node in edits.gpu(gpu).device_nodes] == ["/dev/nvidia0", "/dev/dri/card0"]


def test_render_node_that_comes_after_the_card(build: Build) -> None:
    """The module makes its nodes one by one; a look in between must not be kept."""
    fake = build(drm=False)
    edits = driver_edits(fake)
    gpu = gpu_value(fake.gpus[0])
    drm = fake.sysfs / "bus/pci/devices" / fake.gpus[0].pci_bus_id / "drm"
    for name, minor in (("card0", 0), ("renderD128", 128)):
        (drm / name).mkdir(parents=True)
        fake.add_node(f"/dev/dri/{name}", 226, minor)
        assert edits.gpu(gpu).device_nodes[-1].path == f"/dev/dri/{name}"
    (drm / "card0").rmdir()
    assert [node.path for node in edits.gpu(gpu).device_nodes] == ["/dev/nvidia0", "/dev/dri/renderD128"]


def test_swapped_toolkit(build: Build) -> None:
    """Pain 2: the hook program of a spec must exist now, not five minutes ago."""
    fake = build(hook="usr/local/nvidia/toolkit/nvidia-cdi-hook")
    edits = driver_edits(fake)
    gpu = gpu_value(fake.gpus[0])
    assert edits.common().hooks[0].path == "/usr/local/nvidia/toolkit/nvidia-cdi-hook"
    assert edits.gpu(gpu).hooks[0].path == "/usr/local/nvidia/toolkit/nvidia-cdi-hook"
    assert edits.warnings == ()
    (fake.path / "usr/local/nvidia/toolkit/nvidia-cdi-hook").unlink()
    assert edits.common().hooks == ()
    assert edits.gpu(gpu).hooks == ()
    assert len(edits.warnings) == 1
    fake.add_program("nvidia-ctk")
    assert edits.common().hooks[0].path == "/usr/bin/nvidia-ctk"
    assert edits.gpu(gpu).hooks[0].path == "/usr/bin/nvidia-ctk"


@pytest.mark.parametrize(
    "change",
    [
        pytest.param(lambda fake: fake.add_file("etc/vulkan/icd.d/nvidia_icd.json"), id="configuration of higher rank"),
        pytest.param(lambda fake: (fake.path / "run/nvidia-persistenced/socket").unlink(), id="daemon stopped"),
        pytest.param(lambda fake: (fake.library_directory / "libcuda.so").unlink(), id="link removed"),
        pytest.param(lambda fake: (fake.path / "usr/bin/nvidia-smi").unlink(), id="program removed"),
        pytest.param(
            lambda fake: (fake.sysfs / "module/firmware_class/parameters/path").write_text("/opt/fw"),
            id="firmware path set",
        ),
    ],
)
def test_any_change_leads_to_a_new_search(
    fake: FakeDriverRoot, searches: list[str], change: Callable[[FakeDriverRoot], object]
) -> None:
    edits = driver_edits(fake)
    edits.common()
    change(fake)
    edits.common()
    edits.common()
    assert len(searches) == 2


def test_what_was_found_while_files_were_changing_is_not_kept(fake: FakeDriverRoot, searches: list[str]) -> None:
    """A package manager at work: two changes within one tick of the file system's clock look like one."""
    edits = driver_edits(fake, now_ns=lambda: os.stat(fake.library_directory).st_mtime_ns + 1)
    edits.common()
    library = fake.library_directory / f"libnvidia-new.so.{fake.driver_version}"
    times = os.stat(fake.library_directory)
    shutil.copy(fake.library_directory / "libcuda.so", library)
    os.utime(fake.library_directory, ns=(times.st_atime_ns, times.st_mtime_ns))
    assert str(library)[len(str(fake.path)) :] in {mount.container_path for mount in edits.common().mounts}
    assert len(searches) == 2


def test_half_of_an_installation_is_never_answered(fake: FakeDriverRoot, monkeypatch: pytest.MonkeyPatch) -> None:
    """The package manager puts libcuda in place while the search is under way that did not see it."""
    libcuda = fake.library_directory / f"libcuda.so.{fake.driver_version}"
    aside = fake.path / "aside"
    libcuda.rename(aside)
    searches = []

    def interrupted(tree: object, version: str) -> object:
        searches.append(version)
        found = driver_libraries(tree, version)  # type: ignore[arg-type]
        if aside.exists():
            aside.rename(libcuda)
        return found

    monkeypatch.setattr(discovery, "driver_libraries", interrupted)
    paths = {mount.container_path for mount in driver_edits(fake).common().mounts}
    assert str(libcuda)[len(str(fake.path)) :] in paths
    assert len(searches) == 2


def test_files_that_change_all_the_time_are_told(fake: FakeDriverRoot, monkeypatch: pytest.MonkeyPatch) -> None:
    def disturbed(tree: object, version: str) -> object:
        found = driver_libraries(tree, version)  # type: ignore[arg-type]
        times = os.stat(fake.library_directory)
        os.utime(fake.library_directory, ns=(times.st_atime_ns, times.st_mtime_ns + 1_000_000))
        return found

    monkeypatch.setattr(discovery, "driver_libraries", disturbed)
    edits = driver_edits(fake)
    with pytest.raises(EnvironmentFault, match=r"are being changed \(wait until the driver's installation"):
        edits.common()
    monkeypatch.undo()
    assert edits.common().mounts


@pytest.mark.parametrize("call", ["listdir", "open"])
def test_what_can_not_be_looked_at_is_not_missing(
    fake: FakeDriverRoot, monkeypatch: pytest.MonkeyPatch, call: str
) -> None:
    """Without a file descriptor left, a search would find a driver with parts missing."""

    def refused(*arguments: object, **options: object) -> object:
        raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))

    edits = driver_edits(fake)
    with monkeypatch.context() as patched:
        patched.setattr(*((os, "listdir") if call == "listdir" else (builtins, "open")), refused)
        with pytest.raises(EnvironmentFault, match=r"cannot look at /.*: Too many open files"):
            edits.common()
    answer = edits.common()
    assert any("libcuda.so" in mount.container_path for mount in answer.mounts)
    with monkeypatch.context() as patched:  # nor is what is known still true when it can't be asked about
        patched.setattr(builtins, "open", refused)
        assert edits.kept((), time.monotonic()) is None
    assert edits.kept((), time.monotonic()) is not None


def test_cached_answers_are_immutable(fake: FakeDriverRoot) -> None:
    edits = driver_edits(fake)
    common = edits.common()
    with pytest.raises(AttributeError):
        common.env = ()  # type: ignore[misc]
    extended = common + edits.gpu(gpu_value(fake.gpus[0]))
    assert extended.device_nodes != common.device_nodes
    assert edits.common() is common


def test_the_real_clock_keeps_answers_of_a_quiet_root(fake: FakeDriverRoot, searches: list[str]) -> None:
    for path, _, _ in os.walk(fake.path):
        os.utime(path, (1_700_000_000, 1_700_000_000))
    edits = driver_edits(fake, now_ns=time.time_ns)
    edits.common()
    edits.common()
    assert len(searches) == 1


def test_root_directory_itself_missing(tmp_path: Path, fake: FakeDriverRoot) -> None:
    fake.path = fake.dev_root = tmp_path / "not-there"
    with pytest.raises(EnvironmentFault, match="driver files are missing"):
        driver_edits(fake, host_path="/run/nvidia/driver").common()
