"""Every file of `examples/` runs as it is, and each container sees exactly the GPUs that its claim says.

Exactly: the environment, the mounted driver files and the device nodes are those of the allocated GPUs; opening a node
of one's own GPU reaches the (missing) kernel driver, ENXIO; a node of another GPU, made by hand, is refused by the
device control group, EPERM.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.cluster import manifests
from tests.cluster.apiserver import Json
from tests.cluster.gpu_node import GpuNode
from tests.driver_root.builder import NVIDIA_MAJOR

pytestmark = pytest.mark.integration

OPEN_REFUSED = "Operation not permitted"
OPEN_REACHES_THE_DRIVER = "No such device or address"


class Container:
    """What one running container has."""

    def __init__(self, node: GpuNode, pod: Json, name: str) -> None:
        self._node, self._name = node, name
        self._pod, self._namespace = pod["metadata"]["name"], pod["metadata"]["namespace"]

    def run(self, command: str) -> str:
        shell = ("sh", "-c", command)
        return self._node.cluster.exec(
            self._pod, *shell, namespace=self._namespace, container=self._name, check=False
        ).strip()

    def gpu_nodes(self) -> list[str]:
        """GPU device nodes as device names (``gpu-3``)."""
        listed = self.run("cd /dev && ls -d nvidia[0-9]* 2>/dev/null").split()
        return sorted(name.replace("nvidia", "gpu-") for name in listed)

    def open(self, path: str) -> str:
        """Error text of opening the node for reading."""
        return self.run(f"cat {path} 2>&1 >/dev/null")

    def open_made_by_hand(self, minor: int) -> str:
        """Error text of opening a node for GPU ``minor`` that the container makes for itself."""
        path = f"/tmp/by-hand-{minor}"
        return self.run(f"rm -f {path}; mknod {path} c {NVIDIA_MAJOR} {minor} && cat {path} 2>&1 >/dev/null")


def assert_has_exactly(container: Container, devices: list[str], node: GpuNode) -> None:
    """The container has these devices, usable, with the driver's files; and no other GPU."""
    assert container.gpu_nodes() == devices
    for gpu in node.root.gpus:
        name = f"gpu-{gpu.minor}"
        if name in devices:
            assert OPEN_REACHES_THE_DRIVER in container.open(f"/dev/nvidia{gpu.minor}"), name
        else:
            assert OPEN_REFUSED in container.open_made_by_hand(gpu.minor), name
    assert OPEN_REACHES_THE_DRIVER in container.open("/dev/nvidiactl")
    version = node.standin.driver_version
    library = f"{node.root.layout.value}/libcuda.so.{version}"
    assert container.run(f"ls /{library}") == f"/{library}"
    assert f"/{library} " in container.run("cat /proc/self/mounts")
    assert container.run("ls /usr/bin/nvidia-smi") == "/usr/bin/nvidia-smi"


@pytest.fixture
def example(gpu_node: GpuNode, request: pytest.FixtureRequest) -> Iterator[GpuNode]:
    """The example named by the test's parameter, applied; removed afterwards, leaving nothing."""
    path = manifests.EXAMPLES / f"{request.param}.yaml"
    gpu_node.cluster.apply(path)
    yield gpu_node
    gpu_node.cluster.kubectl("delete", "--filename", str(path), "--wait=true")
    gpu_node.cluster.wait("nothing of the example to be left", gpu_node.nothing_is_left)


@pytest.mark.parametrize("example", ["one-gpu"], indirect=True)
def test_one_gpu(example: GpuNode) -> None:
    pod = example.cluster.wait_pod("one-gpu")
    (claim,) = example.claims()
    (device,) = example.allocated(claim)

    assert_has_exactly(Container(example, pod, "main"), [device], example)
