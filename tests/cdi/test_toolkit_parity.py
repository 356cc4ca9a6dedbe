"""Our edits equal those of ``nvidia-ctk cdi generate`` (1.20.2), run on the same driver root and NVML stand-in.

The differences that we want are listed in `KNOWN`, each with its reason. Each has a test of its own that shows that
nvidia-ctk still differs, so that the list does not outlive its reasons.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest

from dra_driver.cdi.edits import DriverEdits
from dra_driver.cdi.spec import (
    CLASS,
    VENDOR,
    CdiDevice,
    ContainerEdits,
    Hook,
    Spec,
    as_json,
    from_json,
    minimum_version,
)
from dra_driver.cdi.validate import parse
from dra_driver.inventory.driver_root import DriverRoot
from dra_driver.inventory.hardware import Gpu
from tests.cdi.programs import toolkit
from tests.cdi.test_ldcache import LDCONFIG
from tests.cluster.availability import Unavailable, require_programs, require_root, skip_or_fail
from tests.driver_root import DriverRootBuilder, FakeDriverRoot, FakeGpu, Layout
from tests.standin import Standin

pytestmark = pytest.mark.integration

KNOWN = {
    "links below /dev/dri/by-path": "nvidia-ctk leaves the dev root's own path in front, where no container looks",
    "absolute links": "nvidia-ctk follows them out of the driver root, and so misses Debian's alternatives",
    "PATH": "nvidia-ctk searches the driver root along its own process's PATH",
}

HOOK = "/usr/bin/nvidia-cdi-hook"

# Mounts over the one directory of /sys that nvidia-ctk reads without any root of its own.
IN_NAMESPACE = """
set -e
mount -t tmpfs parity /sys/bus/pci/devices
for device in "$SYSFS"/bus/pci/devices/*; do
    cp -rL "$device" /sys/bus/pci/devices/
done
exec "$@"
"""


@dataclass(frozen=True, slots=True)
class Machine:
    """A driver root and the GPUs that NVML shows there."""

    fake: FakeDriverRoot
    gpus: tuple[Gpu, ...]
    env: dict[str, str]

    def root(self, **more: Any) -> DriverRoot:
        return DriverRoot(self.fake.path, host_path=self.fake.path, **({"dev_root": self.fake.dev_root} | more))

    def ours(self, root: DriverRoot | None = None, hook: str = HOOK) -> Spec:
        """The spec that our edits make, one device per GPU."""
        edits = DriverEdits(
            root or self.root(),
            lambda: self.fake.driver_version,
            hook_path=hook,
            sysfs=str(self.fake.sysfs),
            required_nodes=(),
        )
        devices = sorted(
            (CdiDevice(name=gpu.uuid, edits=edits.gpu(gpu)) for gpu in self.gpus), key=lambda device: device.name
        )
        return Spec(kind=f"{VENDOR}/{CLASS}", devices=tuple(devices), common=edits.common())

    def theirs(
        self, *options: str, path: str = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
    ) -> tuple[Spec, str]:
        """nvidia-ctk's spec, and the version it declares."""
        command = [str(toolkit() / "nvidia-ctk"), "--quiet", "cdi", "generate", "--mode", "nvml", "--format", "json"]
        command += ["--driver-root", str(self.fake.path), "--vendor", VENDOR, "--class", CLASS]
        command += ["--device-name-strategy", "uuid", "--no-all-device"]
        # A stand-in of libnvidia-sandboxutils.so.1 would have to be complete: the toolkit aborts on a missing symbol.
        command += ["--feature-flag", "disable-nvsandboxutils", "--nvidia-cdi-hook-path", HOOK, *options]
        environment = {name: value for name, value in os.environ.items() if not name.startswith("NVIDIA_")}
        environment |= self.env | {"SYSFS": str(self.fake.sysfs), "PATH": path}
        done = subprocess.run(
            [str(shutil.which("unshare")), "-m", "sh", "-c", IN_NAMESPACE, "sh", *command],
            env=environment,
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        raw = json.loads(done.stdout)
        return from_json(raw), raw["cdiVersion"]


@pytest.fixture
def machine(tmp_path: Path) -> Callable[..., Machine]:
    try:
        require_root()
        require_programs(["unshare", "mount", "cc"])
        toolkit()
    except Unavailable as reason:
        skip_or_fail(reason)

    def build(*, gpus: int = 2, drm: bool = True, profile: str = "dgx-h100", **options: Any) -> Machine:
        standin = Standin.create(tmp_path / "gpus", profile=profile, count=gpus)
        values = standin.machine.gpus
        fake = DriverRootBuilder(
            tmp_path / "driver",
            gpus=[FakeGpu.of(gpu, drm=drm) for gpu in values],
            driver_version=standin.driver_version,
            libnvidia_ml=standin.library,
            real_nodes=True,
            **options,
        ).build()
        return Machine(fake, values, {"NVML_STANDIN_STATE": standin.env["NVML_STANDIN_STATE"]})

    return build


def without_dev_root(spec: Spec, dev_root: Path) -> Spec:
    """``spec`` with the dev root's path taken from links below /dev/dri/by-path (`KNOWN`)."""
    wrong, right = f"::{dev_root}/dev/dri/by-path/", "::/dev/dri/by-path/"

    def corrected(hook: Hook) -> Hook:
        return replace(hook, args=tuple(argument.replace(wrong, right) for argument in hook.args))

    def corrected_edits(edits: ContainerEdits) -> ContainerEdits:
        return replace(edits, hooks=tuple(map(corrected, edits.hooks)))

    devices = tuple(replace(device, edits=corrected_edits(device.edits)) for device in spec.devices)
    return replace(spec, devices=devices)


def assert_same(ours: Spec, theirs: Spec) -> None:
    """Equal, part by part, so that a failure shows which part differs."""
    assert [device.name for device in ours.devices] == [device.name for device in theirs.devices]
    pairs = [(ours.common, theirs.common)]
    pairs += [(mine.edits, other.edits) for mine, other in zip(ours.devices, theirs.devices, strict=True)]
    for mine, other in pairs:
        assert mine.env == other.env
        assert mine.device_nodes == other.device_nodes
        assert mine.mounts == other.mounts
        assert mine.hooks == other.hooks
        assert mine.additional_gids == other.additional_gids
    assert ours == theirs


@pytest.mark.parametrize("drm", [True, False], ids=["DRM nodes", "no DRM nodes"])
@pytest.mark.parametrize("graphics", [True, False], ids=["graphics", "no graphics files"])
@pytest.mark.parametrize("layout", Layout)
def test_same_edits(machine: Callable[..., Machine], layout: Layout, graphics: bool, drm: bool) -> None:
    built = machine(layout=layout, graphics=graphics, drm=drm)
    theirs, version = built.theirs()
    ours = built.ours()
    assert_same(ours, without_dev_root(theirs, built.fake.dev_root))
    assert minimum_version(ours) == version == ("0.7.0" if drm else "0.5.0")


@pytest.mark.parametrize("profile", ["t4", "gb200-nvl72"])
def test_other_machines(machine: Callable[..., Machine], profile: str) -> None:
    built = machine(profile=profile, gpus=1)
    theirs, _ = built.theirs()
    assert_same(built.ours(), without_dev_root(theirs, built.fake.dev_root))


def test_hooks_by_nvidia_ctk(machine: Callable[..., Machine]) -> None:
    built = machine(gpus=1, drm=False)
    theirs, _ = built.theirs("--nvidia-cdi-hook-path", "/opt/bin/nvidia-ctk")
    assert_same(built.ours(hook="/opt/bin/nvidia-ctk"), theirs)


def test_paths_as_the_host_sees_them(machine: Callable[..., Machine], tmp_path: Path) -> None:
    """The toolkit rewrites a finished spec; ours is made with the host's paths."""
    built = machine()
    theirs, _ = built.theirs()
    (tmp_path / "theirs.json").write_text(json.dumps(as_json(without_dev_root(theirs, built.fake.dev_root))))
    command = [str(toolkit() / "nvidia-ctk"), "--quiet", "cdi", "transform", "root", "--relative-to", "host"]
    command += ["--from", str(built.fake.path), "--to", "/run/nvidia/driver"]
    command += ["--input", str(tmp_path / "theirs.json"), "--output", str(tmp_path / "moved.json")]
    subprocess.run(command, check=True, capture_output=True)
    moved = parse((tmp_path / "moved.json").read_bytes(), "moved.json")
    root = DriverRoot(built.fake.path, host_path="/run/nvidia/driver", dev_root=built.fake.dev_root)
    assert_same(built.ours(root), moved)


def test_device_nodes_under_another_root(machine: Callable[..., Machine], tmp_path: Path) -> None:
    built = machine()
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    (built.fake.path / "dev").rename(elsewhere / "dev")
    built.fake.dev_root = elsewhere
    theirs, _ = built.theirs("--dev-root", str(elsewhere))
    assert_same(built.ours(), without_dev_root(theirs, elsewhere))


def test_nodes_with_groups_and_modes(machine: Callable[..., Machine]) -> None:
    built = machine(gpus=1, drm=False)
    for node, mode, gid in (("nvidiactl", 0o660, 77), ("nvidia-modeset", 0o666, 78), ("nvidia0", 0o640, 79)):
        (built.fake.dev_root / "dev" / node).chmod(mode)
        os.chown(built.fake.dev_root / "dev" / node, 0, gid)
    (built.fake.dev_root / "dev/nvidia-uvm-tools").unlink()
    theirs, version = built.theirs()
    assert_same(built.ours(), theirs)
    assert version == "0.7.0"


@pytest.mark.skipif(LDCONFIG is None, reason="no ldconfig on this machine")
def test_libraries_found_by_the_loaders_cache(machine: Callable[..., Machine]) -> None:
    built = machine(gpus=1, drm=False)
    (built.fake.path / "opt").mkdir()
    built.fake.library_directory.rename(built.fake.path / "opt/nvidia")
    (built.fake.path / "etc/ld.so.conf").write_text("/opt/nvidia\n")
    subprocess.run([str(LDCONFIG), "-r", str(built.fake.path)], check=True, capture_output=True)
    theirs, _ = built.theirs()
    ours = built.ours()
    assert_same(ours, theirs)
    assert ours.common.env[0] == "NVIDIA_CTK_LIBCUDA_DIR=/opt/nvidia"


def test_files_in_several_places(machine: Callable[..., Machine]) -> None:
    """The first of several copies wins, in the same order."""
    built = machine(gpus=1, drm=False)
    fake, version = built.fake, built.fake.driver_version
    for path in (
        "etc/vulkan/icd.d/nvidia_icd.json",
        "etc/glvnd/egl_vendor.d/10_nvidia.json",
        "usr/local/share/egl/egl_external_platform.d/15_nvidia_gbm.json",
        "vulkan/icd.d/nvidia_layers.json",
        "usr/share/OpenCL/vendors/nvidia.icd",
        f"lib/firmware/updates/nvidia/{version}/gsp_ga10x.bin",
        f"lib/firmware/{os.uname().release}/nvidia/{version}/gsp_tu10x.bin",
        f"usr/lib/xorg/modules/drivers/libglxserver_nvidia.so.{version}",
        f"usr/lib/x86_64-linux-gnu/nvidia/current/libnvidia-extra.so.{version}",
        "usr/lib/x86_64-linux-gnu/nvidia/current/libnvidia-nvvm70.so.5",
        f"usr/lib/x86_64-linux-gnu/libnvidia-nonsense.so.{version}",  # no ELF file
        f"usr/lib/x86_64-linux-gnu/plain.so.{version}",
    ):
        fake.add_file(path)
    fake.add_program("nvidia-smi", directory="usr/local/bin")
    fake.add_program("nvidia-imex", directory="usr/sbin").chmod(0o644)
    shutil.copy(
        fake.library_directory / f"libcuda.so.{version}",
        fake.path / f"usr/lib/x86_64-linux-gnu/nvidia/current/libnvidia-extra.so.{version}",
    )
    (fake.path / "usr/lib/x86_64-linux-gnu/nvidia/current/libcuda.so").symlink_to("libcuda.so.1")
    (fake.library_directory / "libnvidia-cfg.so.1").unlink()
    (fake.library_directory / f"libnvidia-dangling.so.{version}").symlink_to("nowhere")
    (fake.library_directory / f"libnvidia-linked.so.{version}").symlink_to(f"libcuda.so.{version}")
    (fake.library_directory / f"libnvidia-directory.so.{version}").mkdir()
    (fake.path / "run/nvidia-fabricmanager/socket").unlink()
    theirs, _ = built.theirs()
    assert_same(built.ours(), theirs)


# ---- the differences, each shown


def test_by_path_links_differ(machine: Callable[..., Machine]) -> None:
    built = machine(gpus=1)
    theirs, _ = built.theirs()
    arguments = theirs.devices[0].edits.hooks[0].args
    assert any(f"::{built.fake.dev_root}/dev/dri/by-path/" in argument for argument in arguments), KNOWN
    assert any("::/dev/dri/by-path/" in argument for argument in built.ours().devices[0].edits.hooks[0].args)


def test_absolute_links_differ(machine: Callable[..., Machine]) -> None:
    built = machine(gpus=1, drm=False)
    real = built.fake.add_program("nvidia-smi", directory="usr/lib/nvidia/current")
    (built.fake.path / "usr/bin/nvidia-smi").unlink()
    (built.fake.path / "usr/bin/nvidia-smi").symlink_to("/usr/lib/nvidia/current/nvidia-smi")
    theirs, _ = built.theirs()
    ours = built.ours()
    (smi,) = (mount for mount in ours.common.mounts if mount.container_path == "/usr/bin/nvidia-smi")
    assert smi.host_path == str(real)
    rest = tuple(mount for mount in ours.common.mounts if mount != smi)
    assert_same(replace(ours, common=replace(ours.common, mounts=rest)), theirs)


def test_path_of_the_process_differs(machine: Callable[..., Machine]) -> None:
    built = machine(gpus=1, drm=False)
    built.fake.add_program("nvidia-smi", directory="opt/odd")
    theirs, _ = built.theirs(path="/opt/odd:/usr/sbin:/usr/bin:/sbin:/bin")
    found = {mount.container_path for mount in theirs.common.mounts}
    assert "/opt/odd/nvidia-smi" in found
    assert "/usr/bin/nvidia-smi" in {mount.container_path for mount in built.ours().common.mounts}
