"""A machine with stand-in GPUs for every test that asks for one."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from dra_driver.inventory.nvml import NvmlInventory
from tests.standin import Standin, compiler

MakeStandin = Callable[..., Standin]
MakeInventory = Callable[..., NvmlInventory]


def require_compiler() -> None:
    """Skip the test on a machine without C compiler; where CI is set it then fails for want of one."""
    if compiler() is None and not os.environ.get("CI"):
        pytest.skip("the NVML stand-in needs a C compiler")


@pytest.fixture
def make_standin(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[MakeStandin]:
    """Creates machines as ``Standin.create`` does; this process's NVML shows the one that was created last."""
    require_compiler()
    created: list[Standin] = []

    def make(profile: str = "dgx-h100", **options: Any) -> Standin:
        standin = Standin.create(tmp_path / f"machine-{len(created)}", profile, **options)
        monkeypatch.setenv("NVML_STANDIN_STATE", str(standin.state_file))
        created.append(standin)
        return standin

    yield make
    for standin in created:
        standin.heal()
        standin.close()


@pytest.fixture
def make_inventory() -> Iterator[MakeInventory]:
    """Creates inventories of stand-in machines; their sessions end with the test."""
    opened: list[NvmlInventory] = []

    def make(standin: Standin, **options: Any) -> NvmlInventory:
        inventory = NvmlInventory(standin.driver_root, standin.sysfs, standin.proc, **options)
        opened.append(inventory)
        return inventory

    yield make
    for inventory in opened:
        inventory.close()
