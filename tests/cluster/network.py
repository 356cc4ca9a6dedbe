"""The cluster's addresses: a service address on which the API server really listens, and a Pod subnet.

There is no kube-proxy. The API server's service address (`10.201.N.1`) is put on the loopback device and the server
binds its port 443 there, so Pods reach the API at the address that the kubelet tells them, with manifests as shipped.
Pods get addresses of `10.202.N.0/24` through the ptp CNI plugin. N differs between clusters of this machine.
"""

from __future__ import annotations

import fcntl
import json
import subprocess
from pathlib import Path
from typing import IO

_NETWORK_NAMESPACES = Path("/run/netns")


class Network:
    """One reserved N; it belongs to the run ``directory`` until `release`."""

    def __init__(self, directory: Path, locks: Path) -> None:
        locks.mkdir(parents=True, exist_ok=True)
        for number in range(1, 255):
            handle = (locks / f"network-{number}").open("w")
            if _locked(handle) and not _on_loopback(f"10.201.{number}.1"):
                break
            handle.close()
        else:
            raise RuntimeError("all 254 networks for test clusters are in use")
        self._handle = handle
        self.service_range = f"10.201.{number}.0/24"
        self.pod_range = f"10.202.{number}.0/24"
        self.api_address = f"10.201.{number}.1"
        (directory / "network").write_text(self.api_address)
        _ip("address", "add", f"{self.api_address}/32", "dev", "lo")

    def release(self) -> None:
        self._handle.close()

    def conflist(self, directory: Path) -> str:
        """The CNI configuration for containerd."""
        addresses = {
            "type": "host-local",
            "subnet": self.pod_range,
            "routes": [{"dst": "0.0.0.0/0"}],
            "dataDir": f"{directory}/cni-addresses",
        }
        plugin = {"type": "ptp", "ipMasq": False, "ipam": addresses}
        return json.dumps({"cniVersion": "1.0.0", "name": "pods", "plugins": [plugin]})


def remove_all(directory: Path) -> None:
    """Take the run's service address and its Pods' network namespaces away; needs containerd's state directory."""
    marker = directory / "network"
    if marker.exists() and _on_loopback(marker.read_text()):
        _ip("address", "del", f"{marker.read_text()}/32", "dev", "lo")
    bundles = directory / "containerd" / "state" / "io.containerd.runtime.v2.task" / "k8s.io"
    for configuration in bundles.glob("*/config.json"):
        namespaces = json.loads(configuration.read_text()).get("linux", {}).get("namespaces", [])
        for namespace in namespaces:
            path = Path(namespace.get("path", ""))
            if namespace["type"] == "network" and path.name.startswith("cni-"):
                mounted = _NETWORK_NAMESPACES / path.name
                subprocess.run(["umount", "--lazy", str(mounted)], check=False, capture_output=True)
                mounted.unlink(missing_ok=True)


def _locked(handle: IO[str]) -> bool:
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _on_loopback(address: str) -> bool:
    return f" {address}/" in _ip("-oneline", "address", "show", "dev", "lo")


def _ip(*arguments: str) -> str:
    return subprocess.run(["ip", *arguments], check=True, capture_output=True, text=True).stdout
