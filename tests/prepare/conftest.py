"""The node that the tests of this folder work on."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.prepare.node import Node


@pytest.fixture
async def node(tmp_path: Path) -> AsyncIterator[Node]:
    made = Node(tmp_path)
    await made.service.start()
    yield made
    await made.service.close()
