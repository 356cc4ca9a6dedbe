"""The one-node cluster itself: Pods run, reach the API server, can be watched from outside, and leave nothing
behind."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.cluster import containers, processes
from tests.cluster.node import Cluster

pytestmark = pytest.mark.integration


def sleeper(name: str, command: str = "sleep 1000000") -> dict[str, object]:
    container = {"name": "main", "image": "busybox:1.37", "command": ["sh", "-c", command]}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name},
        "spec": {"containers": [container], "terminationGracePeriodSeconds": 1},
    }


def test_a_pod_runs_logs_and_reaches_the_api_server_at_its_service_address(cluster: Cluster) -> None:
    say = 'nc -w 3 "$KUBERNETES_SERVICE_HOST" "$KUBERNETES_SERVICE_PORT" </dev/null && echo reached; sleep 1000000'
    cluster.apply(sleeper("reach", say))
    cluster.wait_pod("reach")

    cluster.wait("the Pod's output", lambda: cluster.pod_log("reach") != "")
    assert cluster.pod_log("reach") == "reached"
    assert cluster.exec("reach", "hostname") == "reach\n"
    assert Path(f"/proc/{cluster.container_pid('reach')}").exists()

    cluster.delete_pod("reach")
    assert cluster.api.get("/api/v1/namespaces/default/pods/reach")[0] == 404


def test_containers_survive_a_kubelet_restart(cluster: Cluster) -> None:
    cluster.apply(sleeper("survivor"))
    cluster.wait_pod("survivor")
    before = cluster.container_pid("survivor")

    cluster.restart_kubelet()

    cluster.wait_pod("survivor", ready=True)
    assert cluster.container_pid("survivor") == before
    cluster.delete_pod("survivor")


def test_a_run_whose_owner_was_killed_is_swept_up() -> None:
    code = (
        "from tests.cluster.node import Cluster; from tests.cluster.test_node import sleeper\n"
        "c = Cluster(node_name='orphan'); c.start(); c.apply(sleeper('left')); c.wait_pod('left')\n"
        "print(c.directory, c.kubelet.pid, c.container_pid('left'), flush=True); input()"
    )
    owner = subprocess.Popen([sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert owner.stdout is not None
    directory, kubelet, inside = owner.stdout.readline().split()
    owner.send_signal(signal.SIGKILL)
    owner.communicate()
    assert processes.start_time(int(kubelet)) is not None

    processes.sweep()

    assert not Path(directory).exists()
    assert processes.start_time(int(kubelet)) is None
    assert processes.start_time(int(inside)) is None
    assert not [group for group in containers.cgroups(Path(directory)) if group.exists()]
    assert directory not in Path("/proc/self/mounts").read_text()
    assert os.path.basename(directory) not in os.listdir(processes.base_directory())
