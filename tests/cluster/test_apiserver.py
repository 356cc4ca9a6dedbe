"""The API server fixture itself: what other areas rely on when they use it as their judge."""

from __future__ import annotations

import pytest

from tests.cluster.apiserver import ApiServer
from tests.cluster.programs import KUBERNETES_VERSION

pytestmark = pytest.mark.integration

SLICES = "/apis/resource.k8s.io/v1/resourceslices"


def test_is_the_pinned_kubernetes_release(apiserver: ApiServer) -> None:
    status, version = apiserver.get("/version")

    assert (status, version["gitVersion"]) == (200, f"v{KUBERNETES_VERSION}")


def test_objects_are_written_patched_and_deleted(apiserver: ApiServer) -> None:
    body = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "fixture-verbs"}}
    assert apiserver.post("/api/v1/namespaces", body)[0] == 201

    status, patched = apiserver.patch("/api/v1/namespaces/fixture-verbs", {"metadata": {"labels": {"a": "b"}}})
    assert (status, patched["metadata"]["labels"]["a"]) == (200, "b")
    assert apiserver.delete("/api/v1/namespaces/fixture-verbs")[0] == 200


def test_refuses_an_invalid_slice_with_field_paths(apiserver: ApiServer) -> None:
    spec = {"driver": "gpu.nvidia.com", "nodeName": "n", "pool": {"name": "n", "resourceSliceCount": 1}}
    broken = {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceSlice",
        "metadata": {"name": "broken"},
        "spec": spec | {"devices": [{"name": "GPU_0"}]},
    }
    status, answer = apiserver.post(SLICES, broken)

    assert status == 422
    assert [cause["field"] for cause in answer["details"]["causes"]] == ["spec.devices[0].name"]


def test_two_servers_with_different_versions_served_are_independent_and_survive_an_outage(apiserver: ApiServer) -> None:
    other = ApiServer(runtime_config={"resource.k8s.io/v1beta1": True})
    try:
        other.start()
        assert apiserver.get("/apis/resource.k8s.io/v1beta1")[0] == 404
        assert other.get("/apis/resource.k8s.io/v1beta1")[0] == 200
        body = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "kept"}}
        assert other.post("/api/v1/namespaces", body)[0] == 201

        other.stop()
        with pytest.raises(ConnectionRefusedError):
            other.get("/version")
        assert apiserver.get("/api/v1/namespaces/kept")[0] == 404

        other.start()
        assert other.get("/api/v1/namespaces/kept")[0] == 200
    finally:
        other.close()
