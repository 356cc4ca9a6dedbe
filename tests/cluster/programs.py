"""The upstream programs: compiled from their published Go modules, versions pinned by `tools/*/go.mod` and `go.sum`.

A cold build of all three modules takes about eleven minutes on two cores, a build with Go's own cache warm 20 seconds,
and a finished build is found in the cache at once. Kubernetes gets its version through the linker, as its release
scripts do: an API server that believes itself to be v0.0.0 answers differently where features depend on the version.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path

from tests.cluster import cache
from tests.cluster.availability import Unavailable

KUBERNETES_VERSION = "1.37.2"
_TOOLS = Path(__file__).parent / "tools"
_VERSION_PACKAGES = ("k8s.io/component-base/version", "k8s.io/client-go/pkg/version")


@dataclass(frozen=True, slots=True)
class GoModule:
    """One module below `tools/` and what is compiled from it."""

    name: str
    packages: tuple[str, ...]
    ldflags: str = "-s -w"
    tags: str = ""
    output: str = ""
    """File name of the single program when it must differ from the package's last element; empty: one per package."""

    def key(self) -> str:
        directory = _TOOLS / self.name
        return cache.content_key(
            directory / "go.mod", directory / "go.sum", *self.packages, self.ldflags, self.tags, self.output
        )


def _kubernetes_ldflags() -> str:
    major, minor, _ = KUBERNETES_VERSION.split(".")
    values = {"gitVersion": f"v{KUBERNETES_VERSION}", "gitMajor": major, "gitMinor": minor}
    return "-s -w " + " ".join(f"-X {package}.{k}={v}" for package in _VERSION_PACKAGES for k, v in values.items())


KUBERNETES = GoModule(
    name="kubernetes",
    packages=tuple(
        f"k8s.io/kubernetes/cmd/{program}"
        for program in ("kube-apiserver", "kube-controller-manager", "kube-scheduler", "kubelet", "kubectl")
    ),
    ldflags=_kubernetes_ldflags(),
)
ETCD = GoModule(name="etcd", packages=("go.etcd.io/etcd/server/v3",), output="etcd")
CONTAINERD = GoModule(
    name="containerd",
    packages=tuple(
        f"github.com/containerd/containerd/v2/cmd/{program}"
        for program in ("containerd", "ctr", "containerd-shim-runc-v2")
    ),
    tags="no_btrfs no_zfs no_devmapper",
)


def compiled(module: GoModule) -> Path:
    """The directory with the programs of ``module``; compiles them when the cache does not have them.

    Raises:
        Unavailable: there is no Go toolchain, or the build failed (with the end of its output).
    """

    def build(directory: Path) -> None:
        if shutil.which("go") is None:
            raise Unavailable(f"no Go toolchain on PATH to compile {module.name}")
        output = str(directory / module.output) if module.output else f"{directory}/"
        command = ["go", "build", "-mod=readonly", "-ldflags", module.ldflags, "-o", output]
        command += ["-tags", module.tags] if module.tags else []
        environment = os.environ | {"GOFLAGS": "-buildvcs=false"}
        done = subprocess.run(
            [*command, *module.packages],
            cwd=_TOOLS / module.name,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        if done.returncode != 0:
            raise Unavailable(f"compiling {module.name} failed:\n{done.stdout[-3000:]}")

    return cache.built(f"programs-{module.name}", module.key(), build)


def program(name: str) -> Path:
    """Path of one upstream program, e.g. ``kube-apiserver``; compiled when needed."""
    for module in (KUBERNETES, ETCD, CONTAINERD):
        names = (module.output,) if module.output else tuple(package.rsplit("/", 1)[1] for package in module.packages)
        if name in names:
            return compiled(module) / name
    raise KeyError(f"{name} is not one of the cluster's programs")
