"""Hypothesis strategies for raw ResourceSlices that are right in most places and wrong in a few."""

from __future__ import annotations

import copy
from typing import Any

from hypothesis import strategies as st

Json = Any


def _mostly(good: st.SearchStrategy[Json], *bad: Json) -> st.SearchStrategy[Json]:
    return st.one_of(good, good, good, st.sampled_from(bad)) if bad else good


def _object(
    required: dict[str, st.SearchStrategy[Json]], optional: dict[str, st.SearchStrategy[Json]]
) -> st.SearchStrategy[Json]:
    return st.fixed_dictionaries(required, optional=optional)


LONG_LABEL = "a" * 64
TEXTS = ("", "A", "-a", "a.b", "a_b", "a b", "<&>", "é\n", LONG_LABEL, "a/b", "a/b/c", "/", "x" * 254)
labels = _mostly(st.sampled_from(["a", "b", "gpu-0", "123-abc"]), *TEXTS)
subdomains = _mostly(st.sampled_from(["a", "node1.example.com"]), *TEXTS)
label_keys = _mostly(st.sampled_from(["a", "example.com/A_b", "A.b"]), *TEXTS, "example.com/", "-/a", LONG_LABEL + "/a")
label_values = _mostly(st.sampled_from(["", "a", "A_b.c"]), *TEXTS)
qualified = _mostly(
    st.sampled_from(["memory", "gpu.nvidia.com/memory", "_x", "GPU.example.com/a"]),
    *(*TEXTS, "9a", "a" * 33, "a/", "/a", LONG_LABEL + "/a", "a/" + "b" * 130),
)
quantities = _mostly(
    st.sampled_from(["1", "2", "4Gi", "8Gi", "80Gi", "100"]),
    *("0", "-1", "500m", "1500m", "1n", "1e20", "10E", "16Ei", "-1Pi", "18446744073709551616", None, 3, 1.5),
)
booleans = st.sampled_from([True, True, False, None])
strings = _mostly(st.sampled_from(["a", ""]), "x" * 64, "x" * 65, "é" * 33)
versions = _mostly(st.just("1.2.3"), "1.2", "01.2.3", "", "1.0.0-" + "a" * 60, "1.2.3-x+y", "<1>")


def _requirement(key: st.SearchStrategy[Json]) -> st.SearchStrategy[Json]:
    operators = _mostly(st.sampled_from(["In", "NotIn"]), "Exists", "DoesNotExist", "Gt", "Lt", "", "in", "<é>")
    values = st.lists(label_values, max_size=2)
    return _object({}, {"key": key, "operator": operators, "values": values})


_term = _object(
    {},
    {
        "matchExpressions": st.lists(_requirement(label_keys), max_size=2),
        "matchFields": st.lists(_requirement(_mostly(st.just("metadata.name"), "", "metadata.namespace")), max_size=2),
    },
)
node_selectors = _object({}, {"nodeSelectorTerms": _mostly(st.lists(_term, min_size=1, max_size=1), [], [{}, {}])})

attributes = st.one_of(
    _object({"int": st.sampled_from([0, -1, (1 << 63) - 1])}, {}),
    _object({"bool": st.booleans()}, {}),
    _object({"string": strings}, {}),
    _object({"version": versions}, {}),
    _object(
        {},
        {
            "int": st.just(1),
            "string": strings,
            "version": versions,
            "ints": st.lists(st.just(1), max_size=2),
            "bools": st.lists(st.booleans(), max_size=2),
            "strings": st.lists(strings, max_size=3),
            "versions": st.lists(versions, max_size=2),
        },
    ),
)
_range = _object({}, {"min": quantities, "max": quantities, "step": quantities})
policies = _object({}, {"default": quantities, "validValues": st.lists(quantities, max_size=4), "validRange": _range})
capacities = _object({"value": quantities}, {"requestPolicy": policies})
counters = st.dictionaries(labels, _object({"value": quantities}, {}), max_size=2)
taints = _object(
    {"key": label_keys},
    {
        "value": label_values,
        "effect": _mostly(st.sampled_from(["NoSchedule", "NoExecute", "None"]), "", "noSchedule", "<é>"),
        "timeAdded": st.just("2026-01-31T12:00:00Z"),
    },
)
groups = _mostly(st.lists(labels, max_size=2), ["a", "a"], ["a", "b", "c"])
consumptions = _object({"counterSet": labels, "counters": counters}, {"compatibilityGroups": groups})
_conditions = _mostly(st.lists(label_keys, max_size=2), ["a", "a"], ["a"] * 5, [])
_mapping = _object(
    {},
    {
        "capacityKey": _mostly(qualified, "", "<x>"),
        "capacityMultiplier": quantities,
        "deviceMultiplier": quantities,
    },
)
node_allocatable = st.dictionaries(
    _mostly(st.sampled_from(["cpu", "memory", "hugepages-2Mi"]), "ephemeral-storage", "", "<x>"),
    _object({}, {"mapping": _mapping, "overhead": _object({}, {"perPod": quantities, "perContainer": quantities})}),
    max_size=2,
)


def shareable(policy: Json) -> Json:
    """A valid slice but for the request policy of one capacity of 80."""
    device = {
        "name": "gpu-0",
        "allowMultipleAllocations": True,
        "capacity": {"memory": {"value": "80", "requestPolicy": policy}},
    }
    pool = {"name": "node1", "generation": 1, "resourceSliceCount": 1}
    spec = {"driver": "gpu.nvidia.com", "pool": pool, "nodeName": "node1", "devices": [device]}
    return {"metadata": {"name": "slice"}, "spec": spec}


_amounts = st.one_of(
    st.integers(0, 12).map(str),
    st.integers(0, 12).map(str),
    st.integers(0, 24).map(lambda n: f"{n * 500}m"),
    quantities,
    st.sampled_from(["79", "80", "81", "0.0001", "9223372036854775807", "9223372036854775808", "1Ei"]),
)
shareable_slices = st.one_of(
    _object(
        {"default": _amounts, "validRange": _object({"min": _amounts}, {"max": _amounts, "step": _amounts})},
        {},
    ),
    _object({}, {"default": _amounts, "validValues": st.lists(_amounts, max_size=11)}),
    policies,
).map(shareable)
_json: st.SearchStrategy[Json] = st.sampled_from(
    ["x", "", "1", "2026-01-31T12:00:00Z", 3, -1, 1.5, 1 << 64, True, None, [], ["x"], [3], {}, {"a": 3}, {"a": {}}]
)


@st.composite
def _misshapen(draw: st.DrawFn) -> Json:
    """A readable slice with any one value replaced by JSON of any type."""
    raw = copy.deepcopy(EVERYTHING)
    places: list[tuple[Json, Json]] = []
    pending: list[Json] = [raw]
    while pending:
        node = pending.pop()
        for key, value in node.items() if isinstance(node, dict) else enumerate(node):
            places.append((node, key))
            if isinstance(value, dict | list):
                pending.append(value)
    node, key = draw(st.sampled_from(places))
    node[key] = draw(_json)
    return raw


misshapen_slices = _misshapen()
EVERYTHING: Json = {
    "metadata": {
        "name": "slice",
        "labels": {"a": "b"},
        "annotations": {"a": "b"},
        "finalizers": ["example.com/a"],
        "ownerReferences": [{"apiVersion": "v1", "kind": "Node", "name": "n", "uid": "u", "controller": True}],
    },
    "spec": {
        "driver": "gpu.nvidia.com",
        "pool": {"name": "node1", "generation": 1, "resourceSliceCount": 1},
        "nodeName": "node1",
        "nodeSelector": {
            "nodeSelectorTerms": [
                {
                    "matchExpressions": [{"key": "a", "operator": "In", "values": ["b"]}],
                    "matchFields": [{"key": "metadata.name", "operator": "In", "values": ["b"]}],
                }
            ]
        },
        "allNodes": True,
        "perDeviceNodeSelection": True,
        "partitionTypeAttribute": "gpu.nvidia.com/c",
        "skipNodeOperations": ["*"],
        "sharedCounters": [{"name": "a", "counters": {"b": {"value": "1"}}}],
        "devices": [
            {
                "name": "gpu-0",
                "attributes": {
                    "a": {"int": 1},
                    "b": {"bool": True},
                    "c": {"string": "x"},
                    "d": {"version": "1.2.3"},
                    "e": {"ints": [1]},
                    "f": {"bools": [True]},
                    "g": {"strings": ["x"]},
                    "h": {"versions": ["1.2.3"]},
                },
                "capacity": {
                    "memory": {
                        "value": "80Gi",
                        "requestPolicy": {
                            "default": "1Gi",
                            "validValues": ["1Gi"],
                            "validRange": {"min": "1Gi", "max": "2Gi", "step": "1Gi"},
                        },
                    }
                },
                "consumesCounters": [
                    {"counterSet": "a", "counters": {"b": {"value": "1"}}, "compatibilityGroups": ["a"]}
                ],
                "taints": [
                    {"key": "a", "value": "b", "effect": "NoSchedule", "timeAdded": "2026-01-31T12:00:00.5+01:00"}
                ],
                "bindsToNode": True,
                "bindingConditions": ["a"],
                "bindingFailureConditions": ["b"],
                "allowMultipleAllocations": True,
                "nodeAllocatableResources": {
                    "cpu": {
                        "mapping": {"capacityKey": "memory", "capacityMultiplier": "1", "deviceMultiplier": "1"},
                        "overhead": {"perPod": "1", "perContainer": "1"},
                    }
                },
            }
        ],
    },
}
"""Every member of a ResourceSlice; more than one of each one-of, so it is refused, but readable."""


def _devices(optional: dict[str, st.SearchStrategy[Json]]) -> st.SearchStrategy[Json]:
    return _object({"name": labels}, optional)


_plain = {
    "attributes": st.dictionaries(qualified, attributes, max_size=3),
    "capacity": st.dictionaries(qualified, capacities, max_size=2),
    "allowMultipleAllocations": booleans,
}
_rich = _plain | {
    "taints": st.lists(taints, max_size=2),
    "consumesCounters": _mostly(st.lists(consumptions, max_size=2), [{}] * 3, [{"counterSet": "a"}] * 2),
    "nodeName": subdomains,
    "nodeSelector": node_selectors,
    "allNodes": booleans,
    "bindsToNode": booleans,
    "bindingConditions": _conditions,
    "bindingFailureConditions": _conditions,
    "nodeAllocatableResources": node_allocatable,
}
devices = st.one_of(_devices(_plain), _devices(_rich))

_pool = _object(
    {"name": _mostly(subdomains, "a/b", "a//b"), "resourceSliceCount": _mostly(st.just(1), 0, -1)},
    {"generation": _mostly(st.just(0), -1, 5)},
)
counter_sets = _object({"name": labels, "counters": counters}, {})
_big_counters = {f"c{index}": {"value": "1"} for index in range(33)}
_many_values = {
    "name": "a",
    "attributes": {f"a{index}": {"ints": [1, 2]} for index in range(25)},
    "capacity": {f"c{index}": {"value": "1"} for index in range(8)},
}
_spec = _object(
    {"driver": _mostly(st.just("gpu.nvidia.com"), *TEXTS, "GPU.nvidia.com"), "pool": _pool},
    {
        "devices": st.one_of(
            st.lists(devices, max_size=3),
            st.sampled_from(
                [
                    [],
                    [None],
                    [{"name": f"d{index}"} for index in range(129)],
                    [{"name": f"d{index}", "taints": [{"key": "a", "effect": "None"}]} for index in range(65)],
                    [{"name": f"d{index}", "attributes": {"a": {"ints": [1]}}} for index in range(65)],
                    [{"name": "a", "taints": [{"key": "a", "effect": "None"}] * 17}],
                    [_many_values],
                ]
            ),
        ),
        "sharedCounters": _mostly(
            st.lists(counter_sets, max_size=2),
            [{"name": "a", "counters": _big_counters}, {"name": "a", "counters": _big_counters}],
            [{"name": f"s{index}", "counters": {"<a>": {}}} for index in range(9)],
            [],
        ),
        "nodeName": subdomains,
        "nodeSelector": node_selectors,
        "allNodes": booleans,
        "perDeviceNodeSelection": booleans,
        "partitionTypeAttribute": qualified,
        "skipNodeOperations": st.lists(
            _mostly(st.sampled_from(["NodeUnprepareResources", "NodePrepareResources", "*"]), "", "<x>"), max_size=3
        ),
    },
)
_typical = _object(
    {
        "driver": st.just("gpu.nvidia.com"),
        "pool": st.just({"name": "node1", "generation": 1, "resourceSliceCount": 1}),
        "nodeName": st.just("node1"),
        "devices": st.lists(devices, min_size=1, max_size=2),
    },
    {},
)
_owner = _object(
    {
        "apiVersion": _mostly(st.just("v1"), "", "/", "a/b/c", "v1/", "/v1"),
        "kind": _mostly(st.just("Node"), "", "Event"),
    },
    {"name": _mostly(st.just("n"), ""), "uid": _mostly(st.just("u"), ""), "controller": booleans},
)
_metadata = _object(
    {"name": _mostly(st.just("slice"), *TEXTS)},
    {
        "namespace": st.sampled_from(["", "default"]),
        "labels": st.dictionaries(label_keys, label_values, max_size=2),
        "annotations": st.dictionaries(label_keys, strings, max_size=2),
        "ownerReferences": st.lists(_owner, max_size=2),
        "finalizers": st.lists(
            _mostly(st.sampled_from(["orphan", "foregroundDeletion", "example.com/a"]), *TEXTS), max_size=3
        ),
    },
)
raw_slices = _object(
    {"metadata": st.one_of(st.just({"name": "slice"}), st.just({"name": "slice"}), _metadata)},
    {"spec": st.one_of(_spec, _typical)},
)
