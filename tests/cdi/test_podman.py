"""A container engine reads our spec: podman with runc, and NVIDIA's real hook program, on a root without DRM nodes.

Debian's podman 4.3 reads CDI specs up to 0.5.0, so a spec whose version is higher than needed would fail here.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from dra_driver.cdi.edits import DriverEdits
from dra_driver.cdi.files import SpecDirectory
from dra_driver.cdi.render import render
from dra_driver.cdi.spec import CLASS, VENDOR, CdiDevice, claim_spec_name, device_name, qualified_name
from dra_driver.inventory.driver_root import DriverRoot
from tests.cdi.conftest import gpu_value
from tests.cdi.programs import toolkit
from tests.cluster.availability import Unavailable, require_programs, require_root, skip_or_fail
from tests.driver_root import DriverRootBuilder, FakeDriverRoot

pytestmark = pytest.mark.integration

RUNTIME_DIRECTORY = Path("/var/run/cdi")

Run = Callable[[FakeDriverRoot, Path | None, str], str]


@pytest.fixture
def run(tmp_path: Path) -> Iterator[Run]:
    """Runs a shell script in a container that gets GPU 0 of a driver root; returns its output."""
    try:
        require_root()
        require_programs(["podman", "runc", "busybox"])
    except Unavailable as reason:
        skip_or_fail(reason)
    directory = SpecDirectory(RUNTIME_DIRECTORY)
    directory.prepare()
    uid = str(uuid.uuid4())

    def in_container(fake: FakeDriverRoot, hook: Path | None, script: str) -> str:
        edits = DriverEdits(
            DriverRoot(fake.path, host_path=fake.path, dev_root=fake.path),
            lambda: fake.driver_version,
            hook_path=None if hook is None else str(hook),
            sysfs=str(fake.sysfs),
        )
        device = CdiDevice(name=device_name(uid, "gpu-0"), edits=edits.gpu(gpu_value(fake.gpus[0])))
        directory.write(claim_spec_name(uid), render(f"{VENDOR}/{CLASS}", [device], edits.common()))
        command = [str(shutil.which("podman")), "--runtime", str(shutil.which("runc")), "run", "--rm"]
        # No network plugins needed, and no limits raised beyond what this process may raise.
        command += ["--network=none", "--ulimit", "nofile=1024:1024", "--ulimit", "nproc=1024:1024"]
        command += ["--device", qualified_name(VENDOR, CLASS, device.name)]
        command += ["--cap-add=MKNOD", "--rootfs", str(rootfs(tmp_path)), "sh", "-c", script]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
        return done.stdout

    yield in_container
    directory.remove(claim_spec_name(uid))


def rootfs(directory: Path) -> Path:
    """A file system with busybox and nothing else."""
    result = directory / "rootfs"
    (result / "bin").mkdir(parents=True)
    for name in ("etc", "tmp", "proc", "dev", "sys", "usr/lib/x86_64-linux-gnu", "lib64"):
        (result / name).mkdir(parents=True)
    busybox = shutil.copy(str(shutil.which("busybox")), result / "bin/busybox")
    for name in ("sh", "ls", "cat", "env", "readlink", "mknod", "stat", "grep", "strings"):
        os.link(busybox, result / "bin" / name)
    return result


def driver(tmp_path: Path) -> FakeDriverRoot:
    return DriverRootBuilder(tmp_path / "driver", gpus=2, drm=False, real_nodes=True, hook=None).build()


NODES = """
for node in nvidia0 nvidia1 nvidiactl nvidia-uvm; do [ -c /dev/$node ] && echo "node $node"; done
(: < /dev/nvidia0) 2>&1
mknod /tmp/nvidia1 c 195 1 && (: < /tmp/nvidia1) 2>&1
env
ls /usr/lib/x86_64-linux-gnu
"""


def assert_isolated(output: str) -> None:
    """The claimed GPU may be opened (there is no driver behind it: ENXIO), the other one may not (EPERM)."""
    lines = output.splitlines()
    assert "node nvidia0" in lines
    assert "node nvidiactl" in lines
    assert "node nvidia-uvm" in lines
    assert "node nvidia1" not in lines
    assert any("/dev/nvidia0" in line and "No such device or address" in line for line in lines), output
    assert any("/tmp/nvidia1" in line and "Operation not permitted" in line for line in lines), output
    assert "NVIDIA_VISIBLE_DEVICES=void" in lines
    assert "libcuda.so.580.95.05" in lines


def test_with_nvidias_hook(run: Run, tmp_path: Path) -> None:
    try:
        hook = toolkit() / "nvidia-cdi-hook"
    except Unavailable as reason:
        skip_or_fail(reason)
    links = (
        "echo link $(readlink /usr/lib/x86_64-linux-gnu/libcuda.so.1); strings /etc/ld.so.cache | grep libnvidia-fbc"
    )
    output = run(driver(tmp_path), hook, NODES + links)
    assert_isolated(output)
    # Links from create-symlinks, and the linker's cache from update-ldcache.
    assert "\nlink libcuda.so.580.95.05\n" in output
    assert "/usr/lib/x86_64-linux-gnu/libnvidia-fbc.so.1" in output


def test_without_hook(run: Run, tmp_path: Path) -> None:
    output = run(driver(tmp_path), None, NODES + "stat -c '%F %n' /usr/lib/x86_64-linux-gnu/libcuda.so.1")
    assert_isolated(output)
    assert "regular file /usr/lib/x86_64-linux-gnu/libcuda.so.1" in output
