"""Device nodes for everybody: who may not make them gets the fake driver root's description of them."""

from __future__ import annotations

import functools

import pytest

from dra_driver.cdi.edits import DriverEdits
from dra_driver.node import hardware
from tests.gpu_machine import GpuMachine


@pytest.fixture(autouse=True)
def device_nodes(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    if "machine" in request.fixturenames:
        machine: GpuMachine = request.getfixturevalue("machine")
        monkeypatch.setattr(hardware, "DriverEdits", functools.partial(DriverEdits, lstat=machine.root.lstat))
