"""Slices that would be refused are refused before anything is written."""

from __future__ import annotations

from typing import Any

import pytest

from dra_driver.errors import InputError
from dra_driver.kube.errors import Invalid, StatusCause
from dra_driver.kube.slice_check import check_slices, explain_refusal


def content(*devices: dict[str, Any], **more: Any) -> dict[str, Any]:
    return {"driver": "gpu.example.com", "nodeName": "n", **({"devices": list(devices)} if devices else {}), **more}


def gpu(name: str, **more: Any) -> dict[str, Any]:
    return {"name": name, **more}


COUNTERS = content(sharedCounters=[{"name": "c", "counters": {"memory": {"value": "1Gi"}}}])


def consumer(counter_set: str, counter: str) -> dict[str, Any]:
    return gpu("g", consumesCounters=[{"counterSet": counter_set, "counters": {counter: {"value": "1"}}}])


@pytest.mark.parametrize(
    "contents",
    [
        pytest.param([], id="no-slice"),
        pytest.param([content()], id="an-empty-pool"),
        pytest.param([content(gpu("a")), content(gpu("b"))], id="devices"),
        pytest.param([content(gpu("a", attributes={"n": {"ints": [1]}}))], id="a-field-behind-a-gate"),
        pytest.param([COUNTERS, content(consumer("c", "memory"))], id="counters"),
        pytest.param([content(*[gpu(f"g{i}") for i in range(128)])], id="full"),
    ],
)
def test_accepted(contents: list[dict[str, Any]]) -> None:
    check_slices(contents, "gpu.example.com", "n")


@pytest.mark.parametrize(
    ("contents", "path", "text"),
    [
        pytest.param([content(gpu("a")), content(gpu("B_"))], "slices[1].spec.devices[0].name", '"B_"', id="bad-name"),
        pytest.param(
            [content(*[gpu(f"g{i}") for i in range(129)])], "slices[0].spec.devices", "at most 128 items", id="too-many"
        ),
        pytest.param(
            [content(gpu("a")), content(gpu("a"))],
            "slices[1].spec.devices[0].name",
            'device "a" occurs twice in the pool',
            id="twice-in-the-pool",
        ),
        pytest.param(
            [COUNTERS, COUNTERS],
            "slices[1].spec.sharedCounters[0].name",
            'counter set "c" occurs twice',
            id="set-twice",
        ),
        pytest.param(
            [content(consumer("c", "memory"))],
            "slices[0].spec.devices[0].consumesCounters",
            'consumes from counter set "c", which is not in the pool',
            id="no-such-set",
        ),
        pytest.param(
            [COUNTERS, content(consumer("c", "cores"))],
            "slices[1].spec.devices[0].consumesCounters",
            'counter set "c" has no counter cores',
            id="no-such-counter",
        ),
    ],
)
def test_refused(contents: list[dict[str, Any]], path: str, text: str) -> None:
    with pytest.raises(InputError) as caught:
        check_slices(contents, "gpu.example.com", "n")

    assert caught.value.path == path
    assert text in str(caught.value)
    assert "ResourceSlices of driver gpu.example.com for node n" in str(caught.value)


def test_a_refused_list_attribute_names_the_gate() -> None:
    cause = StatusCause("spec.devices[0].attributes[n]", "FieldValueInvalid", "must specify one of: `int`, `bool`")
    error = Invalid("ResourceSlice is invalid", status=422, causes=(cause,))

    with_list = explain_refusal(error, {"spec": content(gpu("a", attributes={"n": {"ints": [1]}}))})
    without = explain_refusal(error, {"spec": content(gpu("a", attributes={"n": {"int": 1}}))})

    assert "DRAListTypeAttributes is off" in str(with_list)
    assert without is error
