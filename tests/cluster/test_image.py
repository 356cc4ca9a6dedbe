"""The image: what is in it, what is not, and that its commands need no rights."""

from __future__ import annotations

import io
import json
import re
import tarfile
from dataclasses import dataclass
from typing import Any

import pytest

import dra_driver
from tests.cluster import image
from tests.cluster.availability import Unavailable, skip_or_fail
from tests.cluster.node import Cluster

pytestmark = pytest.mark.integration


@dataclass(frozen=True, slots=True)
class Contents:
    """The image's configuration, and the path of every file in it."""

    configuration: dict[str, Any]
    files: frozenset[str]


@pytest.fixture(scope="module")
def contents() -> Contents:
    try:
        archive = image.archive()
    except Unavailable as reason:
        skip_or_fail(reason)
    with tarfile.open(archive) as tar:

        def read(name: str) -> bytes:
            member = tar.extractfile(name)
            assert member is not None
            return member.read()

        (manifest,) = json.loads(read("manifest.json"))
        assert manifest["RepoTags"] == [f"docker.io/library/{image.NAME}"]
        files: set[str] = set()
        for layer in manifest["Layers"]:
            with tarfile.open(fileobj=io.BytesIO(read(layer))) as inner:
                files |= {member.name.removeprefix("./") for member in inner if not member.isdir()}
        return Contents(json.loads(read(manifest["Config"]))["config"], frozenset(files))


def test_runs_the_program_as_an_ordinary_user(contents: Contents) -> None:
    assert contents.configuration["Entrypoint"] == ["dra-driver"]
    assert contents.configuration["User"] == "65532:65532"
    assert any(entry.startswith("PATH=/opt/dra-driver/bin:") for entry in contents.configuration["Env"])


@pytest.mark.parametrize(
    "path", ["opt/dra-driver/bin/dra-driver", "opt/dra-driver/bin/kubectl-dra", "usr/bin/nvidia-cdi-hook"]
)
def test_has_what_it_needs(contents: Contents, path: str) -> None:
    assert path in contents.files


@pytest.mark.parametrize(
    "unwanted",
    [
        "^usr/bin/gcc",
        "^usr/local/go/",
        "/site-packages/(pip|setuptools)/",
        "^root/.cache/",
        "^src/",
    ],
)
def test_has_no_build_tools_or_leftovers(contents: Contents, unwanted: str) -> None:
    assert [path for path in contents.files if re.search(unwanted, path)] == []


def test_has_the_data_files_of_the_package(contents: Contents) -> None:
    package = "opt/dra-driver/lib/python3.11/site-packages/dra_driver/"
    assert [path for path in contents.files if path.startswith(package) and path.endswith((".json", ".yaml"))] != []


def test_commands_run_without_any_rights(cluster: Cluster) -> None:
    try:
        cluster.import_image(image.archive())
    except Unavailable as reason:
        skip_or_fail(reason)
    security = {
        "runAsNonRoot": True,
        "readOnlyRootFilesystem": True,
        "allowPrivilegeEscalation": False,
        "capabilities": {"drop": ["ALL"]},
    }
    commands = {"version": ["--version"], "profiles": ["profiles"]}
    cluster.apply(
        {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {"name": "commands"},
            "spec": {
                "restartPolicy": "Never",
                "containers": [
                    {"name": name, "image": image.NAME, "args": arguments, "securityContext": security}
                    for name, arguments in commands.items()
                ],
            },
        }
    )
    cluster.wait_pod("commands", phase="Succeeded")
    assert cluster.pod_log("commands", container="version") == f"dra-driver {dra_driver.__version__}"
    assert "dgx-h100" in cluster.pod_log("commands", container="profiles")
    cluster.delete_pod("commands")
