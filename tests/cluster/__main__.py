"""``python -m tests.cluster build|up|down``: the tests' cluster for a shell (``make cluster-up``, ``make
cluster-down``).

``up`` leaves a node running that outlives the command, in a fixed directory, and prints how to use it; ``down``
removes it.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from tests.cluster import processes, programs
from tests.cluster.availability import Unavailable
from tests.cluster.node import Cluster


def _directory() -> Path:
    return processes.base_directory() / "up"


def build() -> None:
    """Compile the programs, or say where they are."""
    for module in (programs.ETCD, programs.KUBERNETES, programs.CONTAINERD):
        print(f"{module.name}: {programs.compiled(module)}", flush=True)


def up() -> None:
    """Start a cluster and leave it running."""
    down()
    directory = _directory()
    processes.claim_ownership(directory)
    cluster = Cluster(directory=directory)
    try:
        cluster.start()
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
    actions = {"build": build, "up": up, "down": down}
    parser.add_argument("action", choices=sorted(actions))
    try:
        actions[parser.parse_args(arguments).action]()
    except (Unavailable, processes.StartFailed) as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
