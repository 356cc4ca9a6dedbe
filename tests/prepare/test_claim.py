"""What an allocated claim asks of us."""

from __future__ import annotations

from typing import Any

import pytest

from dra_driver.errors import EnvironmentFault, InputError
from dra_driver.model.resource import DeviceRequestAllocationResult, ResourceClaim
from dra_driver.prepare.claim import AllocatedClaim, base_request, read_allocation, says_not_found
from tests.prepare.node import DRIVER, POOL, NotFound, claim, ref, result


def read(item: ResourceClaim, uid: str = "uid-c") -> AllocatedClaim:
    return read_allocation(ref("c", uid), item, driver=DRIVER, pool=POOL)


DEVICES: dict[str, tuple[list[DeviceRequestAllocationResult], list[tuple[Any, ...]]]] = {
    "one device": ([result()], [("gpu-0", None, ("gpu",), False)]),
    "two devices of one request": (
        [result("gpu-1"), result("gpu-0")],
        [("gpu-1", None, ("gpu",), False), ("gpu-0", None, ("gpu",), False)],
    ),
    "results of other drivers are ignored, in whatever pool": (
        [result(driver="net.example", pool="elsewhere", device="nic"), result()],
        [("gpu-0", None, ("gpu",), False)],
    ),
    "only other drivers": ([result(driver="net.example")], []),
    "subrequest is answered by its base name": ([result(request="gpu/big")], [("gpu-0", None, ("gpu",), False)]),
    "the same entry twice is one": ([result(), result()], [("gpu-0", None, ("gpu",), False)]),
    "one device for two requests": (
        [result(request="a"), result(request="b/x"), result(request="a")],
        [("gpu-0", None, ("a", "b"), False)],
    ),
    "two subrequests of one request": (
        [result(request="a/x"), result(request="a/y")],
        [("gpu-0", None, ("a",), False)],
    ),
    "admin access": ([result(admin_access=True)], [("gpu-0", None, ("gpu",), True)]),
    "observed and used is used": (
        [result(request="watch", admin_access=True), result()],
        [("gpu-0", None, ("watch", "gpu"), False)],
    ),
    "shares are different devices": (
        [result(share_id="s1"), result(share_id="s2"), result(share_id="s1", request="b")],
        [("gpu-0", "s1", ("gpu", "b"), False), ("gpu-0", "s2", ("gpu",), False)],
    ),
    "a share and an observer of the whole": (
        [result(share_id="s1"), result(request="watch", admin_access=True)],
        [("gpu-0", "s1", ("gpu",), False), ("gpu-0", None, ("watch",), True)],
    ),
}


@pytest.mark.parametrize(("results", "expected"), DEVICES.values(), ids=DEVICES)
def test_devices(results: list[DeviceRequestAllocationResult], expected: list[tuple[Any, ...]]) -> None:
    found = read(claim("c", *results))
    assert [(d.device, d.share_id, d.requests, d.admin_access) for d in found.devices] == expected
    assert all(device.pool == POOL for device in found.devices)


REFUSED: dict[str, tuple[ResourceClaim, type[Exception], str]] = {
    "replaced": (
        claim("c", uid="other"),
        EnvironmentFault,
        "ResourceClaim default/c got replaced: the kubelet asks for UID uid-c, the API server has UID other",
    ),
    "not allocated": (
        claim("c", allocated=False),
        EnvironmentFault,
        "ResourceClaim default/c (UID uid-c) is not allocated",
    ),
    "not reserved": (
        claim("c", reserved=False),
        EnvironmentFault,
        "ResourceClaim default/c (UID uid-c) is allocated but reserved for nobody",
    ),
    "another node's pool": (
        claim("c", result("gpu-0"), result("gpu-7", pool="node-b", request="r/s")),
        EnvironmentFault,
        "ResourceClaim default/c: request r/s: device gpu-7 is in pool 'node-b', but this node has only pool 'node-a'",
    ),
    "no device name": (
        claim("c", result(), result("")),
        InputError,
        "ResourceClaim default/c: status.allocation.devices.results[1]: request and device must not be empty",
    ),
    "whole and share": (
        claim("c", result(), result(share_id="s1")),
        InputError,
        "ResourceClaim default/c: status.allocation.devices.results[1]: device gpu-0 is allocated both as a whole and"
        " as a share",
    ),
}


@pytest.mark.parametrize(("item", "kind", "text"), REFUSED.values(), ids=REFUSED)
def test_refused(item: ResourceClaim, kind: type[Exception], text: str) -> None:
    with pytest.raises(kind) as caught:
        read(item)
    assert str(caught.value).startswith(text)
    assert type(caught.value) is kind


@pytest.mark.parametrize(("request_name", "base"), [("gpu", "gpu"), ("gpu/a", "gpu")])
def test_base_request(request_name: str, base: str) -> None:
    assert base_request(request_name) == base


def test_not_found_is_told_from_other_answers() -> None:
    assert says_not_found(NotFound("gone"))
    assert not says_not_found(EnvironmentFault("connection refused"))
