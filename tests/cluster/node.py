"""The full one-node cluster: API server, controller-manager, scheduler, containerd and kubelet as processes of this
machine.

Everything lives in the run's directory: the kubelet's root, the CDI directory that containerd reads, Pod logs and
containerd's own data, so that several clusters and a cluster of the machine's owner don't meet. What differs from a
production node, and why, stands beside each setting below.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import yaml

from tests.cluster import busybox, containers
from tests.cluster.apiserver import ApiServer, Json
from tests.cluster.availability import Unavailable, require_programs, require_root
from tests.cluster.network import Network
from tests.cluster.processes import Port, Process, base_directory, new_run_directory, remove, wait_until
from tests.cluster.programs import CONTAINERD, compiled, program

SANDBOX_IMAGE = "docker.io/local/pause:1"
BUSYBOX_IMAGES = ("docker.io/local/busybox:1", "docker.io/library/busybox:1.37")
"""The second is what `examples/` name, so that they run here exactly as written."""
_CNI_PLUGINS = Path("/usr/lib/cni")


class Cluster:
    """A real node; see `ApiServer` (attribute ``api``) for reading and writing objects.

    Args:
        node_name: the Node object's name.
        directory: the run's directory; a new one by default, removed by `close`.
        kubelet_root: the kubelet's ``--root-dir``; below ``directory`` by default.
        runtime_config, feature_gates: of the API server; the gates are also given to the other components.

    Attributes:
        cdi_dir: the one directory where containerd looks for CDI specs.
        plugins_dir, registry_dir: where the kubelet expects plugin data and registration sockets.
        pod_resources_socket: the kubelet's PodResources service.
    """

    def __init__(
        self,
        *,
        node_name: str = "node-a",
        directory: Path | None = None,
        kubelet_root: Path | None = None,
        runtime_config: Mapping[str, bool] | None = None,
        feature_gates: Mapping[str, bool] | None = None,
    ) -> None:
        require_root()
        require_programs(["runc", "busybox", "openssl", "ip"])
        if not (_CNI_PLUGINS / "ptp").exists():
            raise Unavailable(f"no CNI plugins in {_CNI_PLUGINS} (Debian: apt-get install containernetworking-plugins)")
        self.node_name = node_name
        self.directory = directory if directory is not None else new_run_directory()
        self.kubelet_root = kubelet_root if kubelet_root is not None else self.directory / "kubelet"
        self.plugins_dir = self.kubelet_root / "plugins"
        self.registry_dir = self.kubelet_root / "plugins_registry"
        self.pod_resources_socket = self.kubelet_root / "pod-resources" / "kubelet.sock"
        self.cdi_dir = self.directory / "cdi"
        self.pod_logs = self.directory / "podlogs"
        self._imported: set[Path] = set()
        self._port = Port()
        self._network = Network(self.directory, base_directory() / "ports")
        self.api = ApiServer(
            directory=self.directory,
            address=self._network.api_address,
            port=443,
            service_range=self._network.service_range,
            runtime_config=runtime_config,
            feature_gates=feature_gates,
            service_accounts=True,
        )
        self.kubeconfig = self.api.kubeconfig
        gates = [f"--feature-gates={name}={str(on).lower()}" for name, on in (feature_gates or {}).items()]
        self._issue_certificates()
        keys = self.api.pki.directory
        self.controller_manager = self._process(
            "kube-controller-manager",
            f"--kubeconfig={keys}/kube-controller-manager.kubeconfig",
            f"--service-account-private-key-file={keys}/sa.key",
            f"--root-ca-file={keys}/ca.crt",
            "--use-service-account-credentials",
            "--leader-elect=false",
            "--secure-port=0",
            *gates,
        )
        self.scheduler = self._process(
            "kube-scheduler",
            f"--kubeconfig={keys}/kube-scheduler.kubeconfig",
            "--leader-elect=false",
            "--secure-port=0",
            *gates,
        )
        self._socket = self.directory / "run" / "containerd.sock"
        self.containerd = self._process("containerd", "--config", f"{self.directory}/containerd.toml")
        self.kubelet = self._process(
            "kubelet",
            f"--config={self.directory}/kubelet.yaml",
            f"--kubeconfig={keys}/kubelet.kubeconfig",
            f"--hostname-override={node_name}",
            f"--root-dir={self.kubelet_root}",
            "--v=2",
            *gates,
        )

    def _process(self, name: str, *flags: str) -> Process:
        # containerd finds its shim, and the kubelet the mount programs, on PATH
        path = f"{compiled(CONTAINERD)}:{os.environ.get('PATH', '')}:/usr/sbin:/sbin"
        return Process(self.directory, name, [str(program(name)), *flags], env=os.environ | {"PATH": path})

    def _issue_certificates(self) -> None:
        pki, node = self.api.pki, self.node_name
        pki.issue("kubelet", f"/O=system:nodes/CN=system:node:{node}", f"IP:127.0.0.1,DNS:{node}")
        for component in ("kube-controller-manager", "kube-scheduler"):
            pki.issue(component, f"/CN=system:{component}", f"DNS:{component}")
        for name in ("kubelet", "kube-controller-manager", "kube-scheduler"):
            pki.kubeconfig(name, self.api.url)

    def start(self) -> None:
        """Start everything; returns when the node is Ready and Pods can be created in namespace default."""
        for needed in (self.cdi_dir, self.kubelet_root, self.pod_logs, self.directory / "cni"):
            needed.mkdir(parents=True, exist_ok=True)
        containers.create_cgroups(self.directory)
        self._write_configuration()
        self.containerd.start()
        self.api.start()
        self.controller_manager.start()
        self.scheduler.start()
        wait_until("containerd's socket", self._socket.exists, needs=[self.containerd])
        archive = self.directory / "busybox.tar"
        busybox.write_image(archive, [SANDBOX_IMAGE, *BUSYBOX_IMAGES])
        self.import_image(archive)
        self.start_kubelet()
        account = "/api/v1/namespaces/default/serviceaccounts/default"
        wait_until("the default ServiceAccount", lambda: self.api.get(account)[0] == 200)

    def close(self) -> None:
        """End every process, container and mount of the cluster and remove its directory."""
        self.kubelet.kill()
        for process in (self.scheduler, self.controller_manager, self.containerd):
            process.kill()
        remove(self.directory)
        self._port.release()
        self._network.release()
        self.api.close()
        if self.kubelet_root.exists():
            containers.unmount_below(self.kubelet_root)
            shutil.rmtree(self.kubelet_root, ignore_errors=True)

    # --- the node's parts, taken away and brought back

    def start_kubelet(self) -> None:
        """Start the kubelet and wait until it reports the node Ready."""
        before = self._last_heartbeat()
        self.kubelet.start()
        wait_until(
            f"node {self.node_name} to be Ready",
            lambda: self._ready() and self._last_heartbeat() != before,
            needs=[self.kubelet, self.containerd],
        )

    def stop_kubelet(self, signum: signal.Signals = signal.SIGTERM) -> None:
        self.kubelet.stop(first=signum)

    def restart_kubelet(self) -> None:
        """Restart as an upgrade does: containers keep running, the kubelet wipes the node's slices when it is back."""
        self.stop_kubelet()
        self.start_kubelet()

    def stop_apiserver(self) -> None:
        self.api.stop()

    def start_apiserver(self) -> None:
        self.api.start()

    def _node_condition(self) -> Json:
        status, node = self.api.get(f"/api/v1/nodes/{self.node_name}")
        conditions = node.get("status", {}).get("conditions", []) if status == 200 else []
        ready: list[Json] = [condition for condition in conditions if condition["type"] == "Ready"]
        return ready[0] if ready else {}

    def _ready(self) -> bool:
        status, node = self.api.get(f"/api/v1/nodes/{self.node_name}")
        tainted = [t for t in node.get("spec", {}).get("taints", []) if t["key"].startswith("node.kubernetes.io/")]
        return status == 200 and not tainted and self._node_condition().get("status") == "True"

    def _last_heartbeat(self) -> object:
        return self._node_condition().get("lastHeartbeatTime")

    # --- images and containers

    def import_image(self, archive: Path) -> None:
        """Give an OCI or docker archive to containerd, under the names written in it; once per archive."""
        if archive not in self._imported:
            self.ctr("images", "import", str(archive))
            self._imported.add(archive)

    def ctr(self, *arguments: str) -> str:
        """Run containerd's own client in the kubelet's namespace; returns its standard output."""
        done = subprocess.run(
            [str(program("ctr")), "--address", str(self._socket), "--namespace", "k8s.io", *arguments],
            capture_output=True,
            text=True,
            stdin=subprocess.DEVNULL,
        )
        if done.returncode != 0:
            raise AssertionError(f"ctr {' '.join(arguments)}: {done.stderr}{done.stdout}")
        return done.stdout

    def container_id(self, pod: str, *, namespace: str = "default", container: str | None = None) -> str:
        """containerd's id of one container of a Pod, the first by default."""
        statuses = self.pod(pod, namespace=namespace)["status"].get("containerStatuses", [])
        for status in statuses:
            if container in (None, status["name"]):
                identity: str = status["containerID"]
                return identity.removeprefix("containerd://")
        raise AssertionError(f"Pod {namespace}/{pod} has no container {container or ''}: {statuses}")

    def container_pid(self, pod: str, *, namespace: str = "default", container: str | None = None) -> int:
        """Pid, as this machine sees it, of a container's first process."""
        wanted = self.container_id(pod, namespace=namespace, container=container)
        for line in self.ctr("tasks", "list").splitlines():
            if line.startswith(wanted):
                return int(line.split()[1])
        raise AssertionError(f"container {wanted} of Pod {namespace}/{pod} does not run")

    def exec(
        self, pod: str, *command: str, namespace: str = "default", container: str | None = None, check: bool = True
    ) -> str:
        """Run a command in a container, past the kubelet; returns its output (both streams, also when it fails).

        Raises:
            AssertionError: it ended with another code than 0 and ``check`` is set.
        """
        identity = self.container_id(pod, namespace=namespace, container=container)
        flags = ["--address", str(self._socket), "--namespace", "k8s.io"]
        done = subprocess.run(
            [str(program("ctr")), *flags, "tasks", "exec", "--exec-id", os.urandom(8).hex(), identity, *command],
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            stdin=subprocess.DEVNULL,
            env=os.environ | {"CONTAINERD_SUPPRESS_DEPRECATION_WARNINGS": "1"},
        )
        if check and done.returncode != 0:
            raise AssertionError(f"{' '.join(command)} in {namespace}/{pod}: {done.stdout}")
        return done.stdout

    # --- objects

    def kubectl(self, *arguments: str, stdin: str | None = None, check: bool = True) -> str:
        return self.api.kubectl(*arguments, stdin=stdin, check=check)

    def apply(self, manifest: Path | str | Json | Sequence[Json], *, namespace: str | None = None) -> None:
        """``kubectl apply`` a file or directory (a directory with a kustomization as such), YAML text, or objects.

        ``namespace`` is for objects that name none; it must not contradict those that do.
        """
        where = ["--namespace", namespace] if namespace is not None else []
        if isinstance(manifest, Path):
            kind = "--kustomize" if (manifest / "kustomization.yaml").exists() else "--filename"
            self.kubectl(*where, "apply", kind, str(manifest))
            return
        if isinstance(manifest, str):
            text = manifest
        else:
            objects = [manifest] if isinstance(manifest, dict) else list(manifest)
            text = yaml.safe_dump_all(objects)
        self.kubectl(*where, "apply", "--filename", "-", stdin=text)

    def pod(self, name: str, *, namespace: str = "default") -> Json:
        status, body = self.api.get(f"/api/v1/namespaces/{namespace}/pods/{name}")
        assert status == 200, f"Pod {namespace}/{name}: {status} {body.get('message')}"
        return body

    def pods(self, selector: str, *, namespace: str = "default") -> list[Json]:
        return self.api.items(f"/api/v1/namespaces/{namespace}/pods?labelSelector={selector}")

    def wait_pod(
        self,
        name: str,
        *,
        namespace: str = "default",
        phase: str = "Running",
        ready: bool = False,
        timeout: float = 180,
    ) -> Json:
        """Wait for the Pod's phase (and with ``ready`` for its Ready condition); returns the Pod.

        Raises:
            StartFailed: not in time, with the Pod's conditions and events in the message.
        """

        def reached() -> bool:
            current = self.pod(name, namespace=namespace)["status"]
            if current.get("phase") != phase:
                return False
            conditions = {c["type"]: c["status"] for c in current.get("conditions", [])}
            return not ready or conditions.get("Ready") == "True"

        wait_until(
            f"Pod {namespace}/{name} to be {phase}",
            reached,
            timeout=timeout,
            interval=0.1,
            needs=[self.kubelet],
            detail=lambda: self.describe(name, namespace=namespace),
        )
        return self.pod(name, namespace=namespace)

    def wait_gone(self, path: str, *, timeout: float = 180) -> None:
        """Wait until the object at the API path answers 404."""
        wait_until(f"{path} to be gone", lambda: self.api.get(path)[0] == 404, timeout=timeout, interval=0.1)

    def wait(self, what: str, ready: Callable[[], bool], *, timeout: float = 120) -> None:
        """Wait for anything else that a test can ask, e.g. for a file or a slice."""
        wait_until(what, ready, timeout=timeout, interval=0.1)

    def delete_pod(self, name: str, *, namespace: str = "default", force: bool = False) -> None:
        """Delete a Pod (grace period 1 s) and wait until it is gone; ``force`` does not wait for the kubelet."""
        flags = ["--grace-period=0", "--force"] if force else ["--grace-period=1"]
        self.kubectl("--namespace", namespace, "delete", "pod", name, *flags, "--wait=true")

    def events(self, namespace: str, name: str) -> list[str]:
        """``REASON: message`` of the events on the named object, oldest first."""
        selector = f"fieldSelector=involvedObject.name={name}"
        events = self.api.items(f"/api/v1/namespaces/{namespace}/events?{selector}")
        events.sort(key=lambda event: str(event["metadata"]["creationTimestamp"]))
        return [f"{event['reason']}: {event.get('message', '')}" for event in events]

    def describe(self, name: str, *, namespace: str = "default") -> str:
        """What a person would look at: phase, conditions, container states, events."""
        status = self.pod(name, namespace=namespace)["status"]
        parts: list[Any] = [status.get("phase"), status.get("conditions"), status.get("containerStatuses")]
        return "\n".join([*(json.dumps(part) for part in parts), *self.events(namespace, name)])

    def pod_log(self, name: str, *, namespace: str = "default", container: str | None = None) -> str:
        """A container's output since its last start, read from the kubelet's log directory."""
        pod = self.pod(name, namespace=namespace)
        chosen = container or pod["spec"]["containers"][0]["name"]
        directory = self.pod_logs / f"{namespace}_{name}_{pod['metadata']['uid']}" / chosen
        files = sorted(directory.glob("*.log"), key=lambda path: int(path.stem))
        if not files:
            return ""
        lines = files[-1].read_text(errors="replace").splitlines()
        return "\n".join(line.split(" ", 3)[3] for line in lines if line.count(" ") >= 3)

    # --- configuration files

    def _write_configuration(self) -> None:
        directory = self.directory
        (directory / "cni" / "10-pods.conflist").write_text(self._network.conflist(directory))
        (directory / "containerd.toml").write_text(_CONTAINERD.format(directory=directory, sandbox=SANDBOX_IMAGE))
        settings = {
            "apiVersion": "kubelet.config.k8s.io/v1beta1",
            "kind": "KubeletConfiguration",
            "authentication": {
                "anonymous": {"enabled": False},
                "webhook": {"enabled": True},
                "x509": {"clientCAFile": str(self.api.pki.ca)},
            },
            "authorization": {"mode": "Webhook"},
            "containerRuntimeEndpoint": f"unix://{self._socket}",
            "cgroupDriver": "cgroupfs",  # there may be no systemd
            "cgroupRoot": f"/{containers.cgroup_name(directory)}",  # so that what is left can be told apart
            "failCgroupV1": False,  # refused by default since 1.35
            "failSwapOn": False,
            "address": "127.0.0.1",
            "port": self._port.number,
            "readOnlyPort": 0,
            "healthzPort": 0,
            "evictionHard": {"nodefs.available": "1%", "imagefs.available": "1%", "memory.available": "10Mi"},
            "enforceNodeAllocatable": [],
            "podLogsDir": str(self.pod_logs),
            "maxPods": 200,
            "syncFrequency": "2s",  # also how soon a Pod is tried again whose claim could not be prepared
            "crashLoopBackOff": {"maxContainerRestartPeriod": "1s"},  # tests kill the driver and wait for it
            "clusterDNS": ["10.201.0.10"],  # nobody answers; without it every Pod gets a warning event
        }
        (directory / "kubelet.yaml").write_text(yaml.safe_dump(settings))


# restrict_oom_score_adj: the machine may lack CAP_SYS_RESOURCE. NRI and the /opt plugin have machine-wide paths: off.
_CONTAINERD = """\
version = 3
root = "{directory}/containerd/root"
state = "{directory}/containerd/state"
disabled_plugins = ["io.containerd.internal.v1.opt", "io.containerd.nri.v1.nri"]

[grpc]
address = "{directory}/run/containerd.sock"

[ttrpc]
address = "{directory}/run/containerd.sock.ttrpc"

[plugins.'io.containerd.cri.v1.images']
snapshotter = "overlayfs"

[plugins.'io.containerd.cri.v1.images'.pinned_images]
sandbox = "{sandbox}"

[plugins.'io.containerd.cri.v1.runtime']
enable_cdi = true
cdi_spec_dirs = ["{directory}/cdi"]
restrict_oom_score_adj = true

[plugins.'io.containerd.cri.v1.runtime'.cni]
bin_dirs = ["/usr/lib/cni"]
conf_dir = "{directory}/cni"

[plugins.'io.containerd.cri.v1.runtime'.containerd.runtimes.runc]
runtime_type = "io.containerd.runc.v2"

[plugins.'io.containerd.cri.v1.runtime'.containerd.runtimes.runc.options]
SystemdCgroup = false
"""
