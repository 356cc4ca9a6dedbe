"""PCI addresses and facts from sysfs trees as machines of several kinds have them."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dra_driver.errors import EnvironmentFault, InputError
from dra_driver.inventory import pci
from tests.standin.kernel import add_pci_device


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        pytest.param("00000000:1B:00.0", "0000:1b:00.0", id="nvml"),
        pytest.param("0000:1b:00.0", "0000:1b:00.0", id="kernel"),
        pytest.param("0009:01:00.0", "0009:01:00.0", id="grace"),
        pytest.param("00010000:E1:00.0", "10000:e1:00.0", id="vmd-domain"),
        pytest.param("65:00.0", "0000:65:00.0", id="without-domain"),
        pytest.param("0123:45:1e.7", "0123:45:1e.7", id="function"),
    ],
)
def test_bus_id_is_written_as_the_kernel_does(text: str, expected: str) -> None:
    assert pci.normalise_bus_id(text) == expected


@pytest.mark.parametrize(
    "text", ["", "0000:1b:00", "0000:1b:00.8", "0000:1b:20.0", "GPU-0", "0000:1b:00.0 x", "0:1b:00.0", "1b:00:00.0.0"]
)
def test_impossible_bus_id_is_refused(text: str) -> None:
    with pytest.raises(InputError, match="not a PCI address"):
        pci.normalise_bus_id(text)


@given(
    domain=st.integers(0, 0xFFFFFFFF), bus=st.integers(0, 255), device=st.integers(0, 31), function=st.integers(0, 7)
)
def test_every_nvml_form_becomes_the_kernel_form(domain: int, bus: int, device: int, function: int) -> None:
    kernel_form = f"{domain:04x}:{bus:02x}:{device:02x}.{function}"
    assert pci.normalise_bus_id(f"{domain:08X}:{bus:02X}:{device:02X}.{function}") == kernel_form
    assert pci.normalise_bus_id(kernel_form) == kernel_form


@pytest.mark.parametrize(
    ("root", "between", "bus_id"),
    [
        pytest.param("pci0000:00", (), "0000:00:05.0", id="vm-directly-on-the-root"),
        pytest.param("pci0000:15", ("0000:15:01.0",), "0000:1b:00.0", id="behind-a-root-port"),
        pytest.param(
            "pci0000:37",
            ("0000:37:01.0", "0000:38:00.0", "0000:39:02.0"),
            "0000:3b:00.0",
            id="behind-a-switch",
        ),
        pytest.param("pci0009:00", ("0009:00:00.0",), "0009:01:00.0", id="grace-domain"),
        pytest.param("pci10000:e0", ("10000:e0:01.0",), "10000:e1:00.0", id="vmd-domain"),
    ],
)
def test_pcie_root_is_the_root_complex(tmp_path: Path, root: str, between: tuple[str, ...], bus_id: str) -> None:
    add_pci_device(tmp_path, bus_id, root=root, between=between)
    assert pci.pcie_root(bus_id, tmp_path) == root


def test_gpus_of_several_roots_are_told_apart_and_switch_mates_are_not(tmp_path: Path) -> None:
    switch = ("0000:15:01.0", "0000:16:00.0")
    add_pci_device(tmp_path, "0000:19:00.0", root="pci0000:15", between=(*switch, "0000:17:00.0"))
    add_pci_device(tmp_path, "0000:1a:00.0", root="pci0000:15", between=(*switch, "0000:17:01.0"))
    add_pci_device(tmp_path, "0000:9b:00.0", root="pci0000:97", between=("0000:97:01.0",))
    roots = [pci.pcie_root(bus_id, tmp_path) for bus_id in ("0000:19:00.0", "0000:1a:00.0", "0000:9b:00.0")]
    assert roots == ["pci0000:15", "pci0000:15", "pci0000:97"]


def test_absolute_links_of_a_captured_tree_are_understood(tmp_path: Path) -> None:
    devices = tmp_path / "bus/pci/devices"
    devices.mkdir(parents=True)
    (devices / "0000:1b:00.0").symlink_to("/sys/devices/pci0000:15/0000:15:01.0/0000:1b:00.0")
    assert pci.pcie_root("0000:1b:00.0", tmp_path) == "pci0000:15"


@pytest.mark.parametrize(
    "target",
    [
        pytest.param("../../../devices/platform/0000:1b:00.0", id="not-below-a-root"),
        pytest.param("../../../devices/pci0000:15/0000:15:01.0", id="ends-elsewhere"),
        pytest.param("../../elsewhere/0000:1b:00.0", id="outside-devices"),
        pytest.param("../../../devices/pci0000:15", id="the-root-itself"),
    ],
)
def test_a_strange_link_is_an_error_that_shows_it(tmp_path: Path, target: str) -> None:
    devices = tmp_path / "bus/pci/devices"
    devices.mkdir(parents=True)
    (devices / "0000:1b:00.0").symlink_to(target)
    with pytest.raises(EnvironmentFault, match=r"0000:1b:00\.0") as caught:
        pci.pcie_root("0000:1b:00.0", tmp_path)
    assert target in str(caught.value)


@pytest.mark.parametrize("read", [pci.pcie_root, pci.numa_node], ids=["pcieRoot", "numaNode"])
def test_missing_device_is_an_error_that_names_the_file(tmp_path: Path, read: object) -> None:
    with pytest.raises(EnvironmentFault, match=r"0000:1b:00\.0.*bus/pci/devices.*No such file"):
        read("0000:1b:00.0", tmp_path)  # type: ignore[operator]


@pytest.mark.parametrize(("written", "expected"), [(0, 0), (3, 3), (1023, 1023), (-1, None)])
def test_numa_node(tmp_path: Path, written: int, expected: int | None) -> None:
    add_pci_device(tmp_path, "0000:1b:00.0", root="pci0000:15", numa_node=written)
    assert pci.numa_node("0000:1b:00.0", tmp_path) == expected


def test_numa_node_beyond_the_kernels_limit_is_refused(tmp_path: Path) -> None:
    add_pci_device(tmp_path, "0000:1b:00.0", root="pci0000:15", numa_node=1024)
    with pytest.raises(EnvironmentFault, match="1024"):
        pci.numa_node("0000:1b:00.0", tmp_path)


def test_numa_node_that_is_no_number_is_refused(tmp_path: Path) -> None:
    folder = add_pci_device(tmp_path, "0000:1b:00.0", root="pci0000:15")
    (folder / "numa_node").write_text("none\n")
    with pytest.raises(EnvironmentFault, match="holds no number"):
        pci.numa_node("0000:1b:00.0", tmp_path)


def _node(sysfs: Path, node: int, distances: str, cpulist: str | None, socket: int | None) -> None:
    folder = sysfs / f"devices/system/node/node{node}"
    folder.mkdir(parents=True)
    (folder / "distance").write_text(distances + "\n")
    if cpulist is None:
        return
    (folder / "cpulist").write_text(cpulist + "\n")
    cpu = pci.first_cpu(cpulist)
    if cpu is not None and socket is not None:
        topology = sysfs / f"devices/system/cpu/cpu{cpu}/topology"
        topology.mkdir(parents=True)
        (topology / "physical_package_id").write_text(f"{socket}\n")


def test_near_nodes_are_those_of_the_socket(tmp_path: Path) -> None:
    # AMD NPS4 on two sockets: nodes 0-3 and 4-7
    for node in range(8):
        row = " ".join("10" if other == node else "12" if other // 4 == node // 4 else "32" for other in range(8))
        _node(tmp_path, node, row, f"{node * 16}-{node * 16 + 15}", node // 4)
    assert pci.near_numa_nodes(5, tmp_path) == (5, 4, 6, 7)


def test_a_node_of_another_socket_is_not_near_even_at_the_least_distance(tmp_path: Path) -> None:
    _node(tmp_path, 0, "10 21", "0-47", 0)
    _node(tmp_path, 1, "21 10", "48-95", 1)
    assert pci.near_numa_nodes(0, tmp_path) == (0,)


def test_a_memory_node_without_cpus_counts_as_near(tmp_path: Path) -> None:
    _node(tmp_path, 0, "10 17", "0-47", 0)
    _node(tmp_path, 1, "17 10", "", None)
    assert pci.near_numa_nodes(0, tmp_path) == (0, 1)


@pytest.mark.parametrize("row", ["", "10", "ten twelve", "10 12"], ids=["empty", "alone", "unreadable", "too-short"])
def test_without_usable_distances_only_the_node_itself_is_near(tmp_path: Path, row: str) -> None:
    _node(tmp_path, 2 if row == "10 12" else 0, row, "0-3", 0)
    node = 2 if row == "10 12" else 0
    assert pci.near_numa_nodes(node, tmp_path) == (node,)
    assert pci.near_numa_nodes(7, tmp_path) == (7,)


def test_cpu_numa_node(tmp_path: Path) -> None:
    folder = tmp_path / "devices/system/cpu/cpu17"
    folder.mkdir(parents=True)
    (folder / "node1").symlink_to("../../node/node1")
    (folder / "nodeless").mkdir()
    assert pci.cpu_numa_node(17, tmp_path) == 1
    assert pci.cpu_numa_node(18, tmp_path) is None


@pytest.mark.parametrize(
    ("cpulist", "expected"), [("0-23,96-119", 0), ("48,4-7", 4), ("", None), ("\n", None), ("x", None)]
)
def test_first_cpu(cpulist: str, expected: int | None) -> None:
    assert pci.first_cpu(cpulist) == expected


def test_nvidia_devices_are_found_on_the_bus(tmp_path: Path) -> None:
    add_pci_device(tmp_path, "0000:3b:00.0", root="pci0000:3a")
    add_pci_device(tmp_path, "0000:1b:00.0", root="pci0000:15", device_class="0x030000")
    add_pci_device(tmp_path, "0000:1b:00.1", root="pci0000:15", device_class="0x040300")  # its audio function
    add_pci_device(tmp_path, "0000:05:00.0", root="pci0000:15", device_class="0x068000")  # an NVSwitch
    add_pci_device(tmp_path, "0000:03:00.0", root="pci0000:00", vendor="0x1a03")
    assert pci.nvidia_devices(tmp_path) == ("0000:1b:00.0", "0000:3b:00.0")
    assert pci.nvidia_devices(tmp_path / "nowhere") == ()
