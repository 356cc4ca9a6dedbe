"""Commands set up the logging of their process, which here is the tests' process: each test gives it back."""

from __future__ import annotations

import logging
from collections.abc import Iterator

import pytest


@pytest.fixture(autouse=True)
def logging_of_the_tests() -> Iterator[None]:
    """Handlers and levels as before, whatever the command has set."""
    root, ours = logging.getLogger(), logging.getLogger("dra_driver")
    handlers, levels = root.handlers[:], (root.level, ours.level)
    yield
    root.handlers[:] = handlers
    root.setLevel(levels[0])
    ours.setLevel(levels[1])
