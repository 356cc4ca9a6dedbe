"""What is installed: everything that the commands read, as a wheel and in the image."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
import tomllib
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
CACHES = shutil.ignore_patterns("__pycache__")


def copied_for_the_wheel() -> list[str]:
    """Files and folders that the Dockerfile copies into the stage that builds the wheel."""
    stage = re.search(r"^FROM \S+ AS build\n(.*?)^FROM ", (ROOT / "Dockerfile").read_text(), re.DOTALL | re.MULTILINE)
    assert stage is not None
    return [
        name
        for line in re.findall(r"^COPY (?!--)(.*)$", stage[1], re.MULTILINE)
        for name in line.split()[:-1]
        if not name.endswith(".lock")
    ]


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> set[str]:
    """Names in the wheel that is built of what the Dockerfile copies."""
    folder = tmp_path_factory.mktemp("wheel")
    source = folder / "source"
    source.mkdir()
    for name in copied_for_the_wheel():
        if (ROOT / name).is_dir():
            shutil.copytree(ROOT / name, source / name, ignore=CACHES)
        else:
            shutil.copy(ROOT / name, source / name)
    command = [sys.executable, "-c", "from setuptools.build_meta import build_wheel; build_wheel('..')"]
    subprocess.run(command, cwd=source, check=True, capture_output=True)
    (built,) = folder.glob("*.whl")
    with zipfile.ZipFile(built) as archive:
        return set(archive.namelist())


def test_the_build_context_has_what_the_image_copies() -> None:
    kept = {line[1:] for line in (ROOT / ".dockerignore").read_text().splitlines() if line.startswith("!")}
    lines = re.findall(r"^COPY (?!--)(.*)$", (ROOT / "Dockerfile").read_text(), re.MULTILINE)
    copied = {name for line in lines for name in line.split()[:-1]}
    assert {name for name in copied if not any(name == each or name.startswith(f"{each}/") for each in kept)} == set()


def test_every_module_and_its_data_are_in_the_wheel(wheel: set[str]) -> None:
    wanted = {
        str(path.relative_to(ROOT))
        for path in (ROOT / "dra_driver").rglob("*")
        if (path.is_file() and path.suffix in {".py", ".pyi", ".json", ".typed"}) or path.name == "py.typed"
    }
    assert {name for name in wheel if name.startswith("dra_driver/")} == wanted


def test_the_examples_are_where_the_demo_looks_for_them(wheel: set[str]) -> None:
    installed = {name.rpartition("/")[2] for name in wheel if ".data/data/share/dra-driver/examples/" in name}
    assert installed == {path.name for path in (ROOT / "examples").glob("*.yaml")}


def test_programs(wheel: set[str]) -> None:
    scripts = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["scripts"]
    assert scripts == dict.fromkeys(("dra-driver", "kubectl-dra"), "dra_driver.cli.main:main")
    assert any(name.endswith(".dist-info/entry_points.txt") for name in wheel)


@pytest.mark.parametrize("lock", ["requirements.lock", "requirements-dev.lock"])
def test_lock_files_pin_what_the_project_asks_for(lock: str) -> None:
    from packaging.requirements import Requirement
    from packaging.utils import canonicalize_name

    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    extra = project["optional-dependencies"]["dev"] if "dev" in lock else []
    pins = dict(re.findall(r"^([\w.-]+)==(\S+)", (ROOT / lock).read_text(), re.MULTILINE))
    pinned = {canonicalize_name(name): version for name, version in pins.items()}
    for text in (*project["dependencies"], *extra):
        wanted = Requirement(text)
        assert wanted.specifier.contains(pinned[canonicalize_name(wanted.name)]), text
