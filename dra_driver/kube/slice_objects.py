"""The ResourceSlices of a pool as whole objects, for printing and for files that stand in for a cluster."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from dra_driver.kube.slice_check import check_slices
from dra_driver.kube.slice_content import SliceContent
from dra_driver.kube.slice_plan import Pool, generate_name
from dra_driver.model import codec
from dra_driver.model.resource import ObjectMeta, ResourcePool, ResourceSlice, ResourceSliceSpec


def slice_objects(contents: Sequence[SliceContent], driver: str, node: str) -> list[dict[str, Any]]:
    """What a first publication would create; the server's random name suffix is replaced by a fixed one.

    Raises:
        InputError: the API server would refuse a slice; names every field.
    """
    pool = Pool(driver, node, {})
    objects = []
    for index, content in enumerate(contents):
        spec = ResourceSliceSpec(
            driver=driver,
            pool=ResourcePool(name=pool.name, generation=1, resource_slice_count=len(contents)),
            node_name=node,
            devices=content.devices,
            shared_counters=content.shared_counters,
        )
        name = generate_name(index, len(contents), pool) + "00000"
        objects.append(codec.encode(ResourceSlice(metadata=ObjectMeta(name=name), spec=spec)))
    check_slices([dict(item["spec"]) for item in objects], driver, node)
    return objects
