"""Fixtures of this area: the shipped driver on the shared cluster."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.cluster.availability import Unavailable, skip_or_fail
from tests.cluster.gpu_node import GpuNode
from tests.cluster.node import Cluster


@pytest.fixture(scope="session")
def gpu_node(cluster: Cluster) -> Iterator[GpuNode]:
    """The shared cluster with the driver's DaemonSet running on eight fake GPUs."""
    node = GpuNode(cluster)
    try:
        node.deploy()
    except Unavailable as reason:
        skip_or_fail(reason)
    yield node
    node.close()
