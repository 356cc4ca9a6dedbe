"""The project's own image, really built from the Dockerfile, on a machine that reaches no image registry.

The base images that the Dockerfile names are made from Debian packages with debootstrap (and, for the Go image, this
machine's Go toolchain) and committed under exactly those names; then buildah builds the Dockerfile unchanged. The
result is kept in the cache for as long as nothing that goes into it changes. buildah's own storage is kept, too, so
that after an edit only the last steps run again.
"""

from __future__ import annotations

import os
import platform
import re
import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path

import dra_driver
from tests.cluster import cache
from tests.cluster.availability import Unavailable, require_programs, require_root

_REPOSITORY = Path(__file__).parents[2]
_CERTIFICATES = Path("/etc/ssl/certs")
_MOST_IMAGES = 40
"""Every edit leaves two images of changed last steps in buildah's storage; above this number all steps' images go."""
NAME = f"dra-driver:{dra_driver.__version__}"
"""As the DaemonSet names it."""


def archive(name: str = NAME) -> Path:
    """Path of a docker archive with the image under ``name``; built when needed.

    Raises:
        Unavailable: a tool is missing, or a step failed; with the end of its output.
    """
    require_root()
    require_programs(["buildah", "debootstrap", "go"])
    dockerfile = _REPOSITORY / "Dockerfile"
    inputs = [dockerfile, _REPOSITORY / ".dockerignore", *(_REPOSITORY / path for path in _copied(dockerfile))]
    files = [file for path in inputs for file in ([path] if path.is_file() else cache.tree_files(path, ["**/*"]))]
    sources = [file for file in files if "__pycache__" not in file.parts]
    names = [str(file.relative_to(_REPOSITORY)) for file in sources]
    key = cache.content_key(*names, *sources, name)

    def build(directory: Path) -> None:
        for base in _bases(dockerfile):
            _make_base(base)
        full = f"docker.io/library/{name}"
        _buildah("build-using-dockerfile", "--pull-never", "--layers", *_settings(), "--tag", full, ".")
        _buildah("push", full, f"docker-archive:{directory}/image.tar:{full}")
        if len(_buildah("images", "--quiet").splitlines()) > _MOST_IMAGES:
            _buildah("rmi", "--prune", "--force")
        for older in cache.root().glob("image-*"):
            if older.is_dir() and older != directory:
                shutil.rmtree(older)

    return cache.built("image", key, build) / "image.tar"


def _copied(dockerfile: Path) -> list[str]:
    """What the Dockerfile copies from the working copy."""
    copied: set[str] = set()
    for line in dockerfile.read_text().splitlines():
        words = line.split()
        if words[:1] == ["COPY"] and not words[1].startswith("--from"):
            copied.update(words[1:-1])
    return sorted(copied)


def _bases(dockerfile: Path) -> list[str]:
    return sorted(set(re.findall(r"^FROM (\S+)", dockerfile.read_text(), re.MULTILINE)))


def _make_base(name: str) -> None:
    """Make sure that buildah's storage has an image called ``name``, made from Debian packages."""
    full = f"docker.io/library/{name}"
    if name in _buildah("images", "--format", "{{.Name}}:{{.Tag}}", "--filter", f"reference={full}"):
        return
    kind = name.partition(":")[0]
    packages = {
        "python": "python3,python3-venv,ca-certificates",
        "golang": "gcc,libc6-dev,ca-certificates",
    }
    if kind not in packages:
        raise Unavailable(f"there is no recipe for the base image {name}")
    root = cache.root() / f"debian-{kind}.partial"
    shutil.rmtree(root, ignore_errors=True)
    _run(["debootstrap", "--variant=minbase", f"--include={packages[kind]}", "bookworm", str(root)])
    shutil.rmtree(root / "var/cache/apt", ignore_errors=True)
    shutil.rmtree(root / "var/lib/apt/lists", ignore_errors=True)
    container = _buildah("from", "scratch").strip()
    _buildah("add", container, str(root), "/")
    if kind == "golang":
        _buildah("add", container, _go("GOROOT"), "/usr/local/go")
        _buildah("config", "--env", "PATH=/usr/local/go/bin:/usr/bin:/bin", "--env", "GOPATH=/go", container)
        _buildah("config", "--env", "GOTOOLCHAIN=local", "--env", "GOCACHE=/go/cache", container)
    _buildah("commit", "--rm", container, full)
    shutil.rmtree(root)


def _settings() -> Sequence[str]:
    """How this machine reaches its package registries (certificates, indexes), and what it already has."""
    volumes = {
        str(_CERTIFICATES): f"{_CERTIFICATES}:ro",
        _go("GOMODCACHE"): "/go/pkg/mod",
        _go("GOCACHE"): "/go/cache",
    }
    settings = [f"--volume={source}:{target}" for source, target in volumes.items() if Path(source).is_dir()]
    settings.append(f"--build-arg=GOPROXY={_go('GOPROXY')}")
    if index := os.environ.get("PIP_INDEX_URL"):
        settings.append(f"--build-arg=PIP_INDEX_URL={index}")
    return ["--network=host", *settings]


def _go(variable: str) -> str:
    return _run(["go", "env", variable]).strip()


def _buildah(command: str, *arguments: str) -> str:
    storage = cache.root() / "buildah"
    flags = [f"--root={storage}/root", f"--runroot={storage}/run", "--storage-driver=overlay"]
    return _run(["buildah", *flags, command, *arguments])


def _run(command: Sequence[str]) -> str:
    done = subprocess.run(
        command,
        cwd=_REPOSITORY,
        # chroot isolation: a build inside a container or a plain virtual machine has no rights for more
        env=os.environ | {"BUILDAH_ISOLATION": "chroot"},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
    )
    if done.returncode != 0:
        raise Unavailable(
            f"{' '.join(command[:8])} … failed on {platform.machine()}:\n{(done.stdout + done.stderr)[-4000:]}"
        )
    return done.stdout
