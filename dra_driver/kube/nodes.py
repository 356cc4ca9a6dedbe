"""The Node object as the owner of what the driver creates, so that it goes when the Node goes."""

from __future__ import annotations

import asyncio
from typing import Any

from dra_driver.errors import EnvironmentFault
from dra_driver.kube.client import ApiClient
from dra_driver.kube.errors import NotFound
from dra_driver.kube.resources import NODES


class NodeOwner:
    """The ``ownerReferences`` entry for one Node, looked up by a plain GET (no list or watch permission is needed).

    A Node that was deleted and registered again has another UID; everything owned by the old one is garbage. Callers
    therefore name the age that they accept.
    """

    def __init__(self, client: ApiClient, name: str) -> None:
        self.name = name
        self._client = client
        self._uid = ""
        self._read_at = float("-inf")

    async def reference(self, *, max_age: float) -> dict[str, Any]:
        """The entry, from a lookup at most ``max_age`` seconds old.

        Raises:
            EnvironmentFault: there is no such Node yet, or the API server cannot be asked.
        """
        now = asyncio.get_running_loop().time()
        if now - self._read_at > max_age:
            try:
                node = await self._client.get(NODES, self.name)
            except NotFound as error:
                self._read_at = float("-inf")
                raise EnvironmentFault(
                    f'node "{self.name}" does not exist',
                    hint="the kubelet has not registered it yet, or --node-name differs from the kubelet's node name",
                ) from error
            self._uid, self._read_at = str(node["metadata"]["uid"]), now
        return {"apiVersion": "v1", "kind": "Node", "name": self.name, "uid": self._uid, "controller": True}
