"""``python -m tests.cluster build|up|down``: the tests' cluster for a shell (``make cluster-up``, ``make
cluster-down``).

``up`` leaves a node running that outlives the command, in a fixed directory, and prints how to use it; ``down``
removes it.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from tests.cluster import manifests, processes, programs
from tests.cluster.availability import Unavailable
from tests.cluster.gpu_node import GpuNode
from tests.cluster.node import Cluster


def _directory() -> Path:
    return processes.base_directory() / "up"


def build() -> None:
    """Compile the programs, or say where they are."""
    for module in (programs.ETCD, programs.KUBERNETES, programs.CONTAINERD):
        print(f"{module.name}: {programs.compiled(module)}", flush=True)


def up(described: bool) -> None:
    """Start a cluster, with the driver if it shall be, and leave it running."""
    down()
    directory = _directory()
    processes.claim_ownership(directory)
    cluster = Cluster(directory=directory)
    try:
        cluster.start()
        if described:
            GpuNode(cluster, present=False).deploy(manifests.DESCRIBED)
    except BaseException:
        cluster.close()
        raise
    processes.disown(directory)
    print(f"export KUBECONFIG={cluster.kubeconfig} PATH={programs.compiled(programs.KUBERNETES)}:$PATH")
    print(f"# kubelet root {cluster.kubelet_root}, CDI specs {cluster.cdi_dir}, logs {directory}/logs")


def down() -> None:
    """End the cluster that ``up`` left; nothing happens when there is none."""
    directory = _directory()
    if directory.exists():
        processes.remove(directory)


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.cluster", description=__doc__)
    parser.add_argument("action", choices=("build", "up", "down"))
    parser.add_argument("--described", action="store_true", help="up: run the driver on a described DGX H100")
    options = parser.parse_args(arguments)
    try:
        if options.action == "build":
            build()
        elif options.action == "up":
            up(options.described)
        else:
            down()
    except (Unavailable, processes.StartFailed) as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
