"""The driver as it is shipped, on the real cluster, with hardware that does not exist.

The DaemonSet, the rights and the policy are those of `deploy/`, the image is built from the Dockerfile. The host's
side is a fake driver root with the NVML stand-in, device nodes and the sysfs of the same machine: only host paths
differ from a production node. The machine is a DGX A100 (80 GB) whose GPUs are registered in one fabric, so that every
example finds its devices: eight GPUs, two below each PCIe root.
"""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

from tests.cluster import image, manifests
from tests.cluster.apiserver import Json
from tests.cluster.node import Cluster
from tests.driver_root import DriverRootBuilder, FakeDriverRoot, FakeGpu
from tests.standin import Standin

DRIVER = "gpu.nvidia.com"
PROFILE = "dgx-a100-80gb"
CLUSTER_UUID = "6f1f7a3e-6d0c-4a43-9a0e-0c5a7b0f8f11"
_STATE_IN_CONTAINER = "/nvml-standin"


class GpuNode:
    """The cluster's node with fake GPUs and, after `deploy`, the driver's DaemonSet on it.

    Attributes:
        cluster: the real node.
        standin: the GPUs as NVML tells them.
        root: the driver's files and device nodes, as the host sees them.
        proc: a procfs of the daemon's own with the NVIDIA driver's files and the boot id, so that a reboot can be
        played.

    Args:
        present: False for a node that knows nothing of GPUs: `deploy` then changes only where the kubelet's root, the
            CDI directory and the host's files are.
    """

    def __init__(self, cluster: Cluster, *, present: bool = True) -> None:
        self.cluster = cluster
        self._present = present
        directory = cluster.directory / "hardware"
        self.standin = Standin.create(directory / "nvml", PROFILE, node_name=cluster.node_name)
        for gpu in self.standin.machine.gpus:
            self.standin.set_fabric(gpu.index, CLUSTER_UUID, 1)
        self.root: FakeDriverRoot = DriverRootBuilder(
            directory / "driver",
            driver_version=self.standin.driver_version,
            gpus=[
                FakeGpu(
                    minor=gpu.minor,
                    uuid=gpu.uuid,
                    pci_bus_id=gpu.pci_bus_id or "",
                    root_port=f"{gpu.pcie_root}/{(gpu.pcie_root or '')[3:]}:{gpu.minor:02x}.1",
                    numa_node=gpu.numa_node or 0,
                    card=gpu.minor,
                    render=128 + gpu.minor,
                )
                for gpu in self.standin.machine.gpus
            ],
            libnvidia_ml=self.standin.library,
            real_nodes=True,
            hook=None,  # the one from our image is used
        ).build()
        # On a host of systemd every mount is shared; here it may not be, and mount propagation asks for it.
        for flags in (["--bind", str(self.root.path)], ["--make-shared"]):
            subprocess.run(["mount", *flags, str(self.root.path)], check=True)
        self.proc = self.standin.proc
        self.new_boot_id("11111111-1111-4111-8111-111111111111")

    def new_boot_id(self, boot_id: str) -> None:
        """What the kernel would tell after a reboot."""
        path = self.proc / "sys/kernel/random/boot_id"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f"{boot_id}\n")

    def upgrade_driver(self, version: str) -> None:
        """Replace libraries and kernel module, as a package manager and a module reload do."""
        self.root.remove_driver_files()
        self.root.driver_version = version
        self.root.add_driver_files(self.standin.library)
        self.standin.set_driver(version)

    def take_out(self, minor: int) -> None:
        """Pull a GPU out of the running machine."""
        self._on_the_bus(minor).unlink()
        self.standin.detach(minor)

    def put_back(self, minor: int) -> None:
        """Plug it in again."""
        gpu = self.root.gpus[minor]
        self._on_the_bus(minor).symlink_to(f"../../../devices/{gpu.root_port}/{gpu.pci_bus_id}")
        self.standin.attach(minor)

    def _on_the_bus(self, minor: int) -> Path:
        return self.root.sysfs / "bus/pci/devices" / self.root.gpus[minor].pci_bus_id

    # --- the DaemonSet

    def objects(self, kustomization: Path = manifests.DEPLOY) -> list[Json]:
        """What `deploy/` renders to, with this node's host paths."""
        return [self._on_this_node(document) for document in manifests.rendered(self.cluster.api, kustomization)]

    def _on_this_node(self, document: Json) -> Json:
        if document["kind"] != "DaemonSet":
            return document
        text = json.dumps(document).replace("/var/lib/kubelet", str(self.cluster.kubelet_root))
        patched: Json = json.loads(text)
        pod = patched["spec"]["template"]["spec"]
        host_paths = {"cdi": self.cluster.cdi_dir, "driver-root": self.root.path}
        if self._present:
            host_paths["sys"] = self.root.sysfs
        for volume in pod["volumes"]:
            if volume["name"] in host_paths:
                volume["hostPath"]["path"] = str(host_paths[volume["name"]])
        if not self._present:
            return patched
        (container,) = pod["containers"]
        container["args"] += ["--driver-root=/driver-root", f"--host-driver-root={self.root.path}"]
        container["args"] += [
            f"--proc-root={_STATE_IN_CONTAINER}/proc",
            "--rediscover-seconds=2",
            "--reconcile-seconds=5",
        ]
        container["args"] += ["--log-level=debug"]
        _mount(pod, container, self.standin.directory)
        state = f"{_STATE_IN_CONTAINER}/{self.standin.state_file.name}"
        container["env"].append({"name": "NVML_STANDIN_STATE", "value": state})
        return patched

    def deploy(self, kustomization: Path = manifests.DEPLOY) -> None:
        """Import the image, apply `deploy/` and wait until the driver has registered and published."""
        self.cluster.import_image(image.archive())
        self.cluster.apply(self.objects(kustomization))
        self.wait_ready()

    def close(self) -> None:
        """Let go of the hardware; the cluster removes the rest."""
        self.standin.close()

    def wait_ready(self) -> Json:
        """Wait for exactly one Pod of the DaemonSet, ready, and for the slices; returns the Pod."""
        self.cluster.wait("the driver's Pod", lambda: len(self.pods()) == 1)
        (pod,) = self.pods()
        ready = self.cluster.wait_pod(pod["metadata"]["name"], namespace=manifests.NAMESPACE, ready=True)
        self.cluster.wait("the node's slices", lambda: len(self.devices()) > 0)
        return ready

    def pods(self) -> list[Json]:
        """The driver's Pods that are not being deleted."""
        pods = self.cluster.pods("app.kubernetes.io/name=dra-driver", namespace=manifests.NAMESPACE)
        return [pod for pod in pods if "deletionTimestamp" not in pod["metadata"]]

    def pid(self) -> int:
        """Pid of the daemon, as this machine sees it."""
        (pod,) = self.pods()
        return self.cluster.container_pid(pod["metadata"]["name"], namespace=manifests.NAMESPACE)

    def log(self) -> str:
        """What the daemon has logged since its last start."""
        (pod,) = self.pods()
        return self.cluster.pod_log(pod["metadata"]["name"], namespace=manifests.NAMESPACE)

    # --- what the driver leaves

    def slices(self) -> list[Json]:
        selector = f"fieldSelector=spec.driver={DRIVER},spec.nodeName={self.cluster.node_name}"
        return self.cluster.api.items(f"/apis/resource.k8s.io/v1/resourceslices?{selector}")

    def devices(self) -> dict[str, Json]:
        """Published devices by name."""
        return {device["name"]: device for item in self.slices() for device in item["spec"].get("devices", [])}

    def cdi_files(self) -> list[str]:
        """Specs of claims that containerd sees."""
        return sorted(path.name for path in self.cluster.cdi_dir.glob("*.json"))

    def cdi_specs(self) -> list[Json]:
        """Contents of those specs, in the order of their names."""
        return [json.loads((self.cluster.cdi_dir / name).read_text()) for name in self.cdi_files()]

    def records(self) -> list[Path]:
        """The driver's durable records of claims."""
        state = self.cluster.plugins_dir / DRIVER
        return sorted(path for path in state.rglob("*") if path.is_file() and path.suffix == ".json")

    def claims(self, namespace: str | None = None) -> list[Json]:
        """Claims of one namespace, or of all."""
        where = f"namespaces/{namespace}/" if namespace is not None else ""
        return self.cluster.api.items(f"/apis/resource.k8s.io/v1/{where}resourceclaims")

    def allocated(self, claim: Json, request: str | None = None) -> list[str]:
        """Names of the devices that the scheduler gave to a claim, or to one of its requests."""
        results = claim["status"]["allocation"]["devices"]["results"]
        return sorted(
            result["device"] for result in results if request is None or result["request"].split("/")[0] == request
        )

    def claims_of(self, pod: Json) -> dict[str, Json]:
        """The claims of a Pod by the names that its containers use."""
        namespace = pod["metadata"]["namespace"]
        generated = {
            status["name"]: status["resourceClaimName"] for status in pod["status"].get("resourceClaimStatuses", [])
        }
        objects = {claim["metadata"]["name"]: claim for claim in self.claims(namespace)}
        return {
            entry["name"]: objects[entry.get("resourceClaimName") or generated[entry["name"]]]
            for entry in pod["spec"].get("resourceClaims", [])
        }

    def devices_of(self, pod: Json, container: str) -> list[str]:
        """What a container must see, worked out from its Pod's claims and their allocation."""
        claims = self.claims_of(pod)
        (spec,) = (each for each in pod["spec"]["containers"] if each["name"] == container)
        entries = spec.get("resources", {}).get("claims", [])
        return sorted(
            {name for entry in entries for name in self.allocated(claims[entry["name"]], entry.get("request"))}
        )

    def nothing_is_left(self) -> bool:
        """Whether no claim, CDI spec and record is there."""
        return not (self.cdi_files() or self.records() or self.claims())


def _mount(pod: dict[str, Any], container: dict[str, Any], directory: Path) -> None:
    pod["volumes"].append({"name": "standin", "hostPath": {"path": str(directory), "type": "Directory"}})
    container["volumeMounts"].append({"name": "standin", "mountPath": _STATE_IN_CONTAINER})
