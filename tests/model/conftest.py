from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.cluster.availability import Unavailable, skip_or_fail
from tests.model.oracle import Oracle


@pytest.fixture(scope="session")
def oracle() -> Iterator[Oracle]:
    try:
        running = Oracle()
    except Unavailable as reason:
        skip_or_fail(reason)
    yield running
    running.close()
