"""Reading claims."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from dra_driver.errors import InputError
from dra_driver.kube.claims import ClaimReader
from dra_driver.kube.client import ApiClient
from dra_driver.kube.errors import Forbidden, NotFound, Unavailable
from dra_driver.model.prepared import ClaimRef
from dra_driver.model.resource import ResourceClaim
from tests.kube.fake_apiserver import FakeApiServer, Fault


def claim(name: str, **status: Any) -> dict[str, Any]:
    return {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceClaim",
        "metadata": {"name": name, "namespace": "team", "uid": f"uid-{name}"},
        "spec": {"devices": {"requests": [{"name": "gpu", "exactly": {"deviceClassName": "gpu.example.com"}}]}},
        "status": status,
    }


def ref(name: str, uid: str | None = None) -> ClaimRef:
    return ClaimRef("team", name, uid or f"uid-{name}")


ALLOCATION = {"devices": {"results": [{"request": "gpu", "driver": "gpu.example.com", "pool": "n", "device": "gpu-0"}]}}


async def test_a_claim_is_read_whole_whatever_uid_was_asked_for(client: ApiClient, fake: FakeApiServer) -> None:
    fake.put("resourceclaims", claim("a", allocation=ALLOCATION))

    found = await ClaimReader(client).get(ref("a", "another-uid"))

    assert found.metadata.uid == "uid-a"
    assert found.status.allocation is not None
    assert found.status.allocation.devices.results[0].device == "gpu-0"


async def test_a_missing_claim_is_not_found(client: ApiClient) -> None:
    with pytest.raises(NotFound):
        await ClaimReader(client).get(ref("none"))


async def test_a_claim_that_cannot_be_understood_is_named(client: ApiClient, fake: FakeApiServer) -> None:
    broken = claim("a")
    broken["spec"]["devices"]["requests"] = "gpu"
    fake.put("resourceclaims", broken)

    with pytest.raises(InputError, match=r"ResourceClaim team/a: spec\.devices\.requests"):
        await ClaimReader(client).get(ref("a"))


async def test_many_claims_are_read_at_once_and_fail_alone(client: ApiClient, fake: FakeApiServer) -> None:
    for name in "abcd":
        fake.put("resourceclaims", claim(name))
    fake.faults.append(Fault(path="/b", status=403, body='{"reason": "Forbidden", "message": "no"}'))
    fake.faults.append(Fault("GET", times=5, delay=0.2))
    began = asyncio.get_running_loop().time()

    answers = await ClaimReader(client).get_many([ref(name) for name in "abcde"])

    assert asyncio.get_running_loop().time() - began < 0.2 * 4
    assert [type(answers[f"uid-{name}"]) for name in "abcde"] == [
        ResourceClaim,
        Forbidden,
        ResourceClaim,
        ResourceClaim,
        NotFound,
    ]


async def test_exists_means_the_same_uid(client: ApiClient, fake: FakeApiServer) -> None:
    fake.put("resourceclaims", claim("a"))
    reader = ClaimReader(client)

    assert [await reader.exists(r) for r in (ref("a"), ref("a", "old"), ref("b"))] == [True, False, False]


async def test_not_knowing_is_not_the_same_as_gone(client: ApiClient, fake: FakeApiServer) -> None:
    await fake.stop()

    with pytest.raises(Unavailable):
        await ClaimReader(client, timeout=0.1).exists(ref("a"))
