"""The image's hook reaches the host, and a copy that can't be made costs only the copy."""

from __future__ import annotations

from pathlib import Path

import pytest

from dra_driver.node.cdi_hook import hook_path
from dra_driver.node.configuration import NodeConfiguration


def configuration(folder: Path, bundled: Path | None, explicit: str = "") -> NodeConfiguration:
    return NodeConfiguration(
        node_name="n",
        kubelet_plugins_dir=str(folder / "plugins"),
        bundled_cdi_hook=str(bundled or ""),
        nvidia_cdi_hook=explicit,
    )


@pytest.fixture
def bundled(tmp_path: Path) -> Path:
    program = tmp_path / "nvidia-cdi-hook"
    program.write_bytes(b"\x7fELF version one")
    return program


def test_the_bundled_program_is_copied_and_can_be_run(tmp_path: Path, bundled: Path) -> None:
    path = hook_path(configuration(tmp_path, bundled))
    assert path == str(tmp_path / "plugins/gpu.nvidia.com/nvidia-cdi-hook")
    assert Path(path).read_bytes() == bundled.read_bytes()
    assert Path(path).stat().st_mode & 0o777 == 0o755


def test_a_newer_program_replaces_the_old_file_and_the_same_one_does_not(tmp_path: Path, bundled: Path) -> None:
    target = Path(hook_path(configuration(tmp_path, bundled)) or "")
    first = target.stat().st_ino
    hook_path(configuration(tmp_path, bundled))
    assert target.stat().st_ino == first
    bundled.write_bytes(b"\x7fELF version two")
    hook_path(configuration(tmp_path, bundled))
    assert target.read_bytes() == b"\x7fELF version two"
    assert target.stat().st_ino != first, "a running hook keeps its file"
    assert [path.name for path in target.parent.iterdir()] == ["nvidia-cdi-hook"]


def test_a_configured_path_wins(tmp_path: Path, bundled: Path) -> None:
    assert hook_path(configuration(tmp_path, bundled, "/opt/hook")) == "/opt/hook"
    assert not (tmp_path / "plugins").exists()


@pytest.mark.parametrize("missing", [True, False], ids=["not-there", "not-configured"])
def test_without_a_bundled_program_it_is_searched(tmp_path: Path, missing: bool) -> None:
    assert hook_path(configuration(tmp_path, tmp_path / "none" if missing else None)) is None


def test_a_copy_that_cannot_be_made_is_told(tmp_path: Path, bundled: Path, caplog: pytest.LogCaptureFixture) -> None:
    (tmp_path / "plugins").write_text("a file")
    assert hook_path(configuration(tmp_path, bundled)) is None
    assert "can't be copied" in caplog.text
