"""What is found under a driver root, with expected values written out; test_toolkit_parity asks nvidia-ctk."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from dra_driver.cdi.discovery.nodes import CONTROL_NODES
from dra_driver.cdi.edits import DriverEdits
from dra_driver.cdi.spec import ContainerEdits, DeviceNode, Hook, Mount
from dra_driver.errors import EnvironmentFault
from dra_driver.inventory.driver_root import DriverRoot
from tests.cdi.conftest import driver_edits, gpu_value
from tests.cdi.test_ldcache import LDCONFIG
from tests.driver_root import FakeDriverRoot, Layout
from tests.driver_root.contents import CONFIGURATION, FIRMWARE, LIBRARIES, PROGRAMS, SOCKETS

READ_ONLY = ("ro", "nosuid", "nodev", "rbind", "rprivate")
Build = Callable[..., FakeDriverRoot]


def hook_names(edits: ContainerEdits) -> list[str]:
    return [hook.args[1] for hook in edits.hooks]


def by_container_path(edits: ContainerEdits) -> dict[str, Mount]:
    result = {mount.container_path: mount for mount in edits.mounts}
    assert len(result) == len(edits.mounts), "two mounts at one place"
    return result


def links(hook: Hook) -> dict[str, str]:
    """Link path -> target of a create-symlinks hook."""
    pairs = [argument.split("::") for argument in hook.args if "::" in argument]
    return {path: target for target, path in pairs}


@pytest.mark.parametrize("layout", Layout)
def test_everything_installed_is_mounted(build: Build, layout: Layout) -> None:
    fake = build(layout=layout)
    version = fake.driver_version
    mounts = by_container_path(driver_edits(fake).common())
    drivers, extensions = layout.xorg
    directory = f"/{layout.library_directory}"
    places = {"lib": directory, "xorg-drivers": f"/{drivers}", "xorg-extensions": f"/{extensions}"}
    expected = {
        f"{places.get(library.place, f'{directory}/{library.place}')}/{library.name.format(v=version)}"
        for library in LIBRARIES
    }
    expected |= {f"/usr/bin/{name}" for name in PROGRAMS}
    expected |= {f"/lib/firmware/nvidia/{version}/{name}" for name in FIRMWARE}
    expected |= {f"/{name}" for name in (*CONFIGURATION, *SOCKETS)}
    icd = "nvidia_icd.json" if layout is Layout.DEBIAN else "nvidia_icd.x86_64.json"
    vulkan = {f"/etc/vulkan/icd.d/{icd}", "/etc/vulkan/implicit_layer.d/nvidia_layers.json"}
    assert set(mounts) == expected | vulkan | {"/var/run/nvidia-container-devices/void"}
    for path in expected - {f"/{name}" for name in SOCKETS}:
        assert mounts[path] == Mount(host_path=path, container_path=path, options=READ_ONLY)
    assert mounts["/run/nvidia-persistenced/socket"].options == ("nosuid", "nodev", "rbind", "rprivate", "noexec")
    # Loaders look for Vulkan's descriptions in /etc whatever the distribution.
    assert mounts[f"/etc/vulkan/icd.d/{icd}"].host_path == f"/usr/share/vulkan/icd.d/{icd}"
    assert mounts["/var/run/nvidia-container-devices/void"] == Mount(
        host_path="/dev/null",
        container_path="/var/run/nvidia-container-devices/void",
        options=("ro", "nosuid", "nodev", "bind"),
    )


def test_mounts_and_nodes_are_sorted_by_depth_then_path(fake: FakeDriverRoot) -> None:
    common = driver_edits(fake).common()
    mounted = [mount.container_path for mount in common.mounts]
    assert mounted == sorted(mounted, key=lambda path: (path.count("/"), path))
    nodes = [node.path for node in common.device_nodes]
    assert nodes == ["/dev/nvidia-modeset", "/dev/nvidia-uvm", "/dev/nvidia-uvm-tools", "/dev/nvidiactl"]
    assert sorted(CONTROL_NODES) == nodes


def test_environment(fake: FakeDriverRoot) -> None:
    assert driver_edits(fake).common().env == (
        "NVIDIA_CTK_LIBCUDA_DIR=/usr/lib/x86_64-linux-gnu",
        "NVIDIA_VISIBLE_DEVICES=void",
    )


def test_hooks_in_the_toolkits_order(fake: FakeDriverRoot) -> None:
    edits = driver_edits(fake)
    common = edits.common()
    assert hook_names(common) == [
        "create-symlinks",
        "create-symlinks",
        "enable-cuda-compat",
        "update-ldcache",
        "disable-device-node-modification",
        "update-application-profile",
    ]
    assert {(hook.hook_name, hook.path, hook.env) for hook in common.hooks} == {
        ("createContainer", "/usr/bin/nvidia-cdi-hook", ("NVIDIA_CTK_DEBUG=false",))
    }
    assert all(hook.args[0] == "nvidia-cdi-hook" for hook in common.hooks)
    directory = "/usr/lib/x86_64-linux-gnu"
    assert links(common.hooks[0]) == {
        f"{directory}/gbm/nvidia-drm_gbm.so": "../libnvidia-allocator.so.1",
        f"{directory}/libnvidia-vulkan-producer.so": "libnvidia-vulkan-producer.so.580.95.05",
        f"{directory}/nvidia/xorg/libglxserver_nvidia.so": "libglxserver_nvidia.so.580.95.05",
    }
    libraries = links(common.hooks[1])
    assert libraries[f"{directory}/libcuda.so.1"] == "libcuda.so.580.95.05"
    assert libraries[f"{directory}/libcuda.so"] == "libcuda.so.1"
    assert libraries[f"{directory}/libGLX_indirect.so.0"] == "libGLX_nvidia.so.580.95.05"
    assert libraries[f"{directory}/libnvidia-opticalflow.so"] == "libnvidia-opticalflow.so.1"
    assert f"{directory}/libnvidia-fbc.so" not in libraries, "the driver root has no such link"
    assert f"{directory}/libnvidia-glcore.so.580.95.05" not in libraries, "its SONAME is the file's name"
    assert common.hooks[2].args[2:] == ("--host-driver-version=580.95.05",)
    assert common.hooks[3].args[2:] == ("--folder", directory, "--folder", f"{directory}/vdpau")


def test_one_gpu(fake: FakeDriverRoot) -> None:
    gpu = fake.gpus[1]
    edits = driver_edits(fake, host_path="/run/nvidia/driver", hook_path="/opt/nvidia-cdi-hook").gpu(gpu_value(gpu))
    host = "/run/nvidia/driver"
    assert edits == ContainerEdits(
        device_nodes=(
            DeviceNode(
                path="/dev/nvidia1",
                host_path=f"{host}/dev/nvidia1",
                major=195,
                minor=1,
                file_mode=0o666,
                permissions="rwm",
            ),
            DeviceNode(
                path="/dev/dri/card1",
                host_path=f"{host}/dev/dri/card1",
                major=226,
                minor=1,
                file_mode=0o660,
                permissions="rwm",
                gid=44,
            ),
            DeviceNode(
                path="/dev/dri/renderD129",
                host_path=f"{host}/dev/dri/renderD129",
                major=226,
                minor=129,
                file_mode=0o660,
                permissions="rwm",
                gid=105,
            ),
        ),
        hooks=(
            Hook(
                hook_name="createContainer",
                path="/opt/nvidia-cdi-hook",
                args=(
                    "nvidia-cdi-hook",
                    "create-symlinks",
                    "--link",
                    "../card1::/dev/dri/by-path/pci-0000:1b:00.0-card",
                    "--link",
                    "../renderD129::/dev/dri/by-path/pci-0000:1b:00.0-render",
                ),
                env=("NVIDIA_CTK_DEBUG=false",),
            ),
            Hook(
                hook_name="createRuntime",
                path="/opt/nvidia-cdi-hook",
                args=("nvidia-cdi-hook", "apply-cuda-memory-limits", "--driver-root", host, "--gpu-id", gpu.uuid),
                env=("NVIDIA_CTK_DEBUG=false",),
            ),
        ),
        additional_gids=(44, 105),
    )


@pytest.mark.parametrize(
    ("mode", "gid", "groups"),
    [(0o660, 44, (44,)), (0o666, 44, ()), (0o664, 44, (44,)), (0o660, 0, ())],
    ids=["group only", "open to all", "readable by all", "group root"],
)
def test_groups_are_given_when_a_node_is_not_open_to_all(
    build: Build, mode: int, gid: int, groups: tuple[int, ...]
) -> None:
    fake = build(drm=False)
    fake.remove_node("/dev/nvidia0")
    fake.add_node("/dev/nvidia0", 195, 0, mode=mode, gid=gid)
    assert driver_edits(fake).gpu(gpu_value(fake.gpus[0])).additional_gids == groups


def test_gpu_without_drm_or_bus_id(build: Build) -> None:
    fake = build(drm=False)
    value = gpu_value(fake.gpus[0])
    edits = driver_edits(fake)
    assert [node.path for node in edits.gpu(value).device_nodes] == ["/dev/nvidia0"]
    assert edits.gpu(value).hooks[0].args[1] == "apply-cuda-memory-limits"


def test_by_path_links_to_other_nodes_are_left_out(fake: FakeDriverRoot) -> None:
    link = fake.dev_root / "dev/dri/by-path" / f"pci-{fake.gpus[0].pci_bus_id}-card"
    link.unlink()
    link.symlink_to("../card1")
    hook = driver_edits(fake).gpu(gpu_value(fake.gpus[0])).hooks[0]
    assert list(links(hook)) == [f"/dev/dri/by-path/pci-{fake.gpus[0].pci_bus_id}-render"]


def test_drm_nodes_listed_by_sysfs_but_absent_are_left_out(fake: FakeDriverRoot) -> None:
    fake.remove_node("/dev/dri/renderD128")
    edits = driver_edits(fake).gpu(gpu_value(fake.gpus[0]))
    assert [node.path for node in edits.device_nodes] == ["/dev/nvidia0", "/dev/dri/card0"]


@pytest.mark.parametrize(
    ("host_path", "prefix"),
    [
        ("/", ""),
        ("/run/nvidia/driver", "/run/nvidia/driver"),
        ("/home/kubernetes/bin/nvidia", "/home/kubernetes/bin/nvidia"),
    ],
)
def test_host_paths_are_those_of_the_runtime(fake: FakeDriverRoot, host_path: str, prefix: str) -> None:
    common = driver_edits(fake, host_path=host_path).common()
    for mount in common.mounts:
        if mount.host_path != "/dev/null":
            assert mount.host_path.startswith(f"{prefix}/")
            assert str(fake.path) not in mount.host_path
    library = "/usr/lib/x86_64-linux-gnu/libcuda.so.580.95.05"
    assert by_container_path(common)[library].host_path == f"{prefix}{library}"
    assert common.device_nodes[0].host_path == (f"{prefix}/dev/nvidia-modeset" if prefix else "")


def test_container_paths_of_resolved_links(build: Build) -> None:
    """Debian proper: libraries lie in nvidia/current, beside them the loader finds links through /etc/alternatives."""
    fake = build(gpus=1, graphics=False)
    current = fake.library_directory / "nvidia/current"
    current.mkdir(exist_ok=True)
    (fake.path / "etc/alternatives").mkdir(parents=True)
    for file in sorted(fake.library_directory.glob("libcuda.so*")):
        file.rename(current / file.name)
    (fake.path / "etc/alternatives/libcuda").symlink_to("/usr/lib/x86_64-linux-gnu/nvidia/current/libcuda.so.1")
    (fake.library_directory / "libcuda.so.1").symlink_to("/etc/alternatives/libcuda")
    common = driver_edits(fake).common()
    assert "/usr/lib/x86_64-linux-gnu/nvidia/current/libcuda.so.580.95.05" in by_container_path(common)
    assert common.env[0] == (
        "NVIDIA_CTK_LIBCUDA_DIR=/usr/lib/x86_64-linux-gnu:/usr/lib/x86_64-linux-gnu/nvidia/current"
    )


def test_programs_through_absolute_links(build: Build) -> None:
    fake = build()
    real = fake.add_program("nvidia-smi.real", directory="usr/lib/nvidia")
    (fake.path / "usr/bin/nvidia-smi").unlink()
    (fake.path / "usr/bin/nvidia-smi").symlink_to("/usr/lib/nvidia/nvidia-smi.real")
    mount = by_container_path(driver_edits(fake, host_path="/run/nvidia/driver").common())["/usr/bin/nvidia-smi"]
    assert real.exists()
    assert mount.host_path == "/run/nvidia/driver/usr/lib/nvidia/nvidia-smi.real"


def test_programs_that_are_not_executable_are_left_out(fake: FakeDriverRoot) -> None:
    (fake.path / "usr/bin/nvidia-imex").chmod(0o644)
    assert "/usr/bin/nvidia-imex" not in by_container_path(driver_edits(fake).common())


def test_compute_only_installation(build: Build) -> None:
    fake = build(graphics=False)
    for directory in ("nvidia", "vdpau", "gbm"):
        shutil.rmtree(fake.library_directory / directory)
    for stem in ("libnvidia-egl*", "libnvidia-vulkan-producer*", "libnvidia-allocator*", "libGLX*"):
        for file in fake.library_directory.glob(stem):
            file.unlink()
    common = driver_edits(fake).common()
    assert hook_names(common)[0:2] == ["create-symlinks", "enable-cuda-compat"]
    assert not any("/etc/" in path or "/usr/share/" in path for path in by_container_path(common))


def test_custom_firmware_directory_and_kernel_release(fake: FakeDriverRoot) -> None:
    version = fake.driver_version
    (fake.sysfs / "module/firmware_class/parameters/path").write_text("/opt/firmware\n")
    fake.add_file(f"opt/firmware/nvidia/{version}/gsp_ga10x.bin")
    fake.add_file(f"lib/firmware/6.1.0-test/nvidia/{version}/gsp_tu10x.bin")
    mounts = by_container_path(driver_edits(fake, kernel_release="6.1.0-test").common())
    assert f"/opt/firmware/nvidia/{version}/gsp_ga10x.bin" in mounts
    assert f"/lib/firmware/6.1.0-test/nvidia/{version}/gsp_tu10x.bin" in mounts


@pytest.mark.skipif(LDCONFIG is None, reason="no ldconfig on this machine")
def test_libraries_in_an_unusual_directory_are_found_by_the_loaders_cache(build: Build) -> None:
    fake = build()
    (fake.path / "opt").mkdir()
    fake.library_directory.rename(fake.path / "opt/nvidia")
    (fake.path / "etc/ld.so.conf").write_text("/opt/nvidia\n")
    subprocess.run([str(LDCONFIG), "-r", str(fake.path)], check=True, capture_output=True)
    common = driver_edits(fake).common()
    assert common.env[0] == "NVIDIA_CTK_LIBCUDA_DIR=/opt/nvidia"
    assert "/opt/nvidia/libcuda.so.580.95.05" in by_container_path(common)


def test_gke_layout(tmp_path: Path, build: Build) -> None:
    """Libraries in lib64, programs in bin, Vulkan's description directly under the root, nodes in the host's /dev."""
    fake = build(layout=Layout.RHEL, graphics=False, hook=None)
    gke = tmp_path / "gke"
    gke.mkdir()
    fake.library_directory.rename(gke / "lib64")
    (fake.path / "usr/bin").rename(gke / "bin")
    (gke / "vulkan/icd.d").mkdir(parents=True)
    (gke / "vulkan/icd.d/nvidia_icd.json").write_text("{}")
    root = DriverRoot(gke, host_path="/home/kubernetes/bin/nvidia", dev_root=fake.dev_root, host_dev_root="/")
    common = DriverEdits(root, lambda: fake.driver_version, sysfs=str(fake.sysfs), lstat=fake.lstat).common()
    mounts = by_container_path(common)
    assert mounts["/lib64/libcuda.so.580.95.05"].host_path == "/home/kubernetes/bin/nvidia/lib64/libcuda.so.580.95.05"
    assert mounts["/etc/vulkan/icd.d/nvidia_icd.json"].host_path == (
        "/home/kubernetes/bin/nvidia/vulkan/icd.d/nvidia_icd.json"
    )
    assert {node.host_path for node in common.device_nodes} == {""}


# ---- the hook program


def test_hook_under_the_driver_root_has_its_host_path(fake: FakeDriverRoot) -> None:
    common = driver_edits(fake, host_path="/run/nvidia/driver").common()
    assert common.hooks[0].path == "/run/nvidia/driver/usr/bin/nvidia-cdi-hook"


@pytest.mark.parametrize("place", ["usr/bin/nvidia-cdi-hook", "usr/local/nvidia/toolkit/nvidia-cdi-hook"])
def test_hook_of_the_host(tmp_path: Path, build: Build, place: str) -> None:
    """The host is mounted at one place, and the driver's root lies in it, as with the GPU operator."""
    fake = build(hook=None)
    host = tmp_path / "driver-root"
    (host / "run/nvidia").mkdir(parents=True)
    fake.path.rename(host / "run/nvidia/driver")
    fake.path = fake.dev_root = host / "run/nvidia/driver"
    program = host / place
    program.parent.mkdir(parents=True)
    program.write_text("")
    program.chmod(0o755)
    edits = driver_edits(fake, host_path="/run/nvidia/driver", required_nodes=(), lstat=lambda path: Path(path).lstat())
    assert edits.common().hooks[0].path == f"/{place}"
    assert edits.warnings == ()


def test_nvidia_ctk_is_the_second_choice(build: Build) -> None:
    fake = build(hook="usr/bin/nvidia-ctk")
    common = driver_edits(fake).common()
    assert {hook.path for hook in common.hooks} == {"/usr/bin/nvidia-ctk"}
    assert common.hooks[-1].args == ("nvidia-ctk", "hook", "update-application-profile")
    fake.add_program("nvidia-cdi-hook", directory="usr/local/nvidia/toolkit")
    assert {hook.path for hook in driver_edits(fake).common().hooks} == {"/usr/local/nvidia/toolkit/nvidia-cdi-hook"}


def test_configured_hook_and_ldconfig(fake: FakeDriverRoot) -> None:
    fake.add_program("my-hook", directory="opt")
    common = driver_edits(fake, hook_path="/opt/my-hook", ldconfig_path="/sbin/ldconfig.real").common()
    assert common.hooks[3].path == "/opt/my-hook"
    assert common.hooks[3].args[:4] == ("my-hook", "update-ldcache", "--ldconfig-path", "/sbin/ldconfig.real")


def test_configured_hook_that_is_not_there(fake: FakeDriverRoot) -> None:
    with pytest.raises(EnvironmentFault, match=r"/opt/missing does not exist on the host"):
        driver_edits(fake, hook_path="/opt/missing").common()


def test_without_hook_program_the_links_are_mounts(build: Build) -> None:
    fake = build(hook=None)
    edits = driver_edits(fake)
    common = edits.common()
    assert common.hooks == ()
    assert edits.gpu(gpu_value(fake.gpus[0])).hooks == ()
    mounts = by_container_path(common)
    directory = "/usr/lib/x86_64-linux-gnu"
    for link, file in {
        "libcuda.so.1": "libcuda.so.580.95.05",
        "libcuda.so": "libcuda.so.580.95.05",
        "libnvidia-ml.so.1": "libnvidia-ml.so.580.95.05",
        "libnvidia-fbc.so.1": "libnvidia-fbc.so.580.95.05",
        "libnvidia-egl-gbm.so.1": "libnvidia-egl-gbm.so.1.1.2",
        "gbm/nvidia-drm_gbm.so": "libnvidia-allocator.so.580.95.05",
        "vdpau/libvdpau_nvidia.so.1": "vdpau/libvdpau_nvidia.so.580.95.05",
        "nvidia/xorg/libglxserver_nvidia.so": "nvidia/xorg/libglxserver_nvidia.so.580.95.05",
    }.items():
        assert mounts[f"{directory}/{link}"] == Mount(
            host_path=f"{directory}/{file}", container_path=f"{directory}/{link}", options=READ_ONLY
        )
    (warning,) = edits.warnings
    assert "no nvidia-cdi-hook or nvidia-ctk" in warning
    assert "install the NVIDIA Container Toolkit" in warning


def test_without_hook_program_sonames_are_given_even_when_the_root_lacks_their_links(build: Build) -> None:
    fake = build(hook=None)
    (fake.library_directory / "libcuda.so.1").unlink()
    mounts = by_container_path(driver_edits(fake).common())
    assert mounts["/usr/lib/x86_64-linux-gnu/libcuda.so.1"].host_path.endswith("libcuda.so.580.95.05")
