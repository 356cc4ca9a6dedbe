"""A driver root per test, with stand-in files for device nodes so that no rights are needed."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from dra_driver.cdi.edits import DriverEdits
from dra_driver.inventory.driver_root import DriverRoot
from dra_driver.inventory.hardware import Gpu
from tests.driver_root import DriverRootBuilder, FakeDriverRoot, FakeGpu


def a_second_later() -> int:
    """A clock for which everything just built is old, so that answers are kept."""
    return time.time_ns() + 1_000_000_000


def gpu_value(fake: FakeGpu) -> Gpu:
    """The GPU as the inventory would describe it."""
    return Gpu(
        index=fake.minor, minor=fake.minor, uuid=fake.uuid, name="NVIDIA H100 80GB HBM3", pci_bus_id=fake.pci_bus_id
    )


def driver_edits(fake: FakeDriverRoot, *, host_path: str = "/", **options: Any) -> DriverEdits:
    """The edits of ``fake``, which the host sees at ``host_path``."""
    root = DriverRoot(fake.path, host_path=host_path, dev_root=fake.dev_root)
    given: dict[str, Any] = {"sysfs": str(fake.sysfs), "lstat": fake.lstat, "now_ns": a_second_later}
    return DriverEdits(root, lambda: fake.driver_version, **(given | options))


@pytest.fixture
def build(tmp_path: Path) -> Callable[..., FakeDriverRoot]:
    """Builds a driver root without real device nodes; options as for `DriverRootBuilder`."""
    return lambda **options: DriverRootBuilder(tmp_path / "driver", **({"real_nodes": False} | options)).build()


@pytest.fixture
def fake(build: Callable[..., FakeDriverRoot]) -> FakeDriverRoot:
    """Two GPUs with DRM nodes, Debian's layout."""
    return build(gpus=2)
