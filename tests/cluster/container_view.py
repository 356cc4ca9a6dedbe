"""What one running container really has of the node's GPUs, asked from inside it.

A device node proves little: the file may be there and the access refused, or the other way round. So every GPU's node
is opened. One's own reaches the kernel, which has no NVIDIA driver here: ENXIO. A node for another GPU, which the
container makes for itself, is refused by the device control group before that: EPERM.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import Any

from tests.cluster.apiserver import Json
from tests.cluster.gpu_node import GpuNode
from tests.driver_root.builder import NVIDIA_MAJOR

EPERM = "Operation not permitted"
ENXIO = "No such device or address"

_SCRIPT = """
for minor in {minors}; do
  if [ -e /dev/nvidia$minor ]; then
    echo "own $minor $(cat /dev/nvidia$minor 2>&1 >/dev/null)"
  else
    mknod /tmp/made-by-hand c {major} $minor
    echo "other $minor $(cat /tmp/made-by-hand 2>&1 >/dev/null)"
    rm /tmp/made-by-hand
  fi
done
find /dev -type c -exec stat -c 'node %n %t:%T' {{}} ';'
env | sed 's/^/env /'
cut -d ' ' -f 2 /proc/self/mounts | sed 's/^/mount /'
"""


@dataclass(frozen=True, slots=True)
class ContainerView:
    """One look into a container.

    Attributes:
        own: error text of opening each GPU node that the container has, by device name.
        other: error text of opening a self-made node of every other GPU, by device name.
        nodes: major and minor number of every character device below /dev, by path.
        environment: its variables.
        mounts: its mount points.
    """

    own: dict[str, str]
    other: dict[str, str]
    nodes: dict[str, tuple[int, ...]]
    environment: dict[str, str]
    mounts: frozenset[str]

    @classmethod
    def of(cls, node: GpuNode, pod: Json, container: str) -> ContainerView:
        metadata = pod["metadata"]
        script = _SCRIPT.format(minors=" ".join(str(gpu.minor) for gpu in node.root.gpus), major=NVIDIA_MAJOR)
        # Started anew, so that the shell has the container's environment and not a login's.
        output = node.cluster.exec(
            metadata["name"], "sh", "-c", script, namespace=metadata["namespace"], container=container
        )
        found: dict[str, list[list[str]]] = {"own": [], "other": [], "node": [], "env": [], "mount": []}
        for line in output.splitlines():
            kind, _, rest = line.partition(" ")
            if kind in found:
                found[kind].append(rest.split(" ", 1) if kind in ("own", "other", "node") else [rest])
        return cls(
            own={f"gpu-{minor}": said for minor, said in found["own"]},
            other={f"gpu-{minor}": said for minor, said in found["other"]},
            nodes={path: tuple(int(part, 16) for part in numbers.split(":")) for path, numbers in found["node"]},
            environment=dict(text.partition("=")[::2] for (text,) in found["env"]),
            mounts=frozenset(text for (text,) in found["mount"]),
        )


def assert_sees_exactly(node: GpuNode, pod: Json, container: str, devices: list[str]) -> None:
    """The container has these devices and their files, usable, and can't reach any other GPU.

    Raises:
        AssertionError: with what it has instead.
    """
    view = ContainerView.of(node, pod, container)
    assert sorted(view.own) == devices
    assert {name: said for name, said in view.own.items() if ENXIO not in said} == {}
    assert len(view.own) + len(view.other) == len(node.root.gpus)
    assert {name: said for name, said in view.other.items() if EPERM not in said} == {}
    assert "/dev/nvidiactl" in view.nodes
    libraries = f"/{node.root.layout.value}"
    assert f"{libraries}/libcuda.so.{node.standin.driver_version}" in view.mounts
    assert "/usr/bin/nvidia-smi" in view.mounts


def assert_has_what_the_spec_says(node: GpuNode, pod: Json, container: str, spec: Json, devices: list[str]) -> None:
    """Environment, device nodes and mounts of a CDI spec (its common edits, and those of ``devices``) are there."""
    view = ContainerView.of(node, pod, container)
    edits: list[dict[str, Any]] = [spec.get("containerEdits", {})]
    edits += [device["containerEdits"] for device in spec["devices"] if device["name"].endswith(tuple(devices))]
    assert len(edits) == len(devices) + 1
    for edit in edits:
        for variable in edit.get("env", []):
            name, _, value = variable.partition("=")
            assert view.environment.get(name) == value
        for device in edit.get("deviceNodes", []):
            source = os.stat(device.get("hostPath", device["path"])).st_rdev
            assert view.nodes.get(device["path"]) == (os.major(source), os.minor(source))
        for mount in edit.get("mounts", []):
            assert mount["containerPath"] in view.mounts
