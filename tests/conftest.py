"""Session fixtures that several areas share (a real API server, a real one-node cluster), and hypothesis' patience.

Both are started on first use and once per test process; each test process has its own directory and ports. A machine
that can't run them skips the tests that ask for them, with the reason; with the environment variable CI set that is a
failure.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

from tests.cluster.apiserver import ApiServer, served
from tests.cluster.availability import Unavailable, skip_or_fail
from tests.cluster.node import Cluster

# A slow or busy machine is no failure: nothing is judged by time.
settings.register_profile("patient", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("patient")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """With several test processes (xdist's ``loadgroup``) a file stays in one, and so does everything that shares the
    cluster; that part is the longest and begins first."""
    cluster = Path(__file__).parent / "cluster"
    items.sort(key=lambda item: cluster not in item.path.parents)
    for item in items:
        item.add_marker(pytest.mark.xdist_group("cluster" if cluster in item.path.parents else str(item.path)))


@pytest.fixture(scope="session")
def apiserver() -> Iterator[ApiServer]:
    """etcd and kube-apiserver 1.37.2 with default gates; see `tests.cluster.apiserver.ApiServer` for its verbs.

    It is shared by the whole session: use own namespaces and node names. A test that needs other flags or gates, or
    wants to take the server away, starts its own ``ApiServer(...)``.
    """
    with served() as server:
        yield server


@pytest.fixture(scope="session")
def cluster() -> Iterator[Cluster]:
    """A real node (containerd, kubelet, scheduler, controllers) with default gates, Ready in about ten seconds.

    See `tests.cluster.node.Cluster`. Needs root. Shared by the session: leave it as you found it.
    """
    try:
        node = Cluster()
    except Unavailable as reason:
        skip_or_fail(reason)
    try:
        node.start()
        yield node
    finally:
        node.close()
