"""Refuses slices that the API server would refuse, before anything is written, with the same field paths."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from dra_driver.errors import InputError
from dra_driver.kube.errors import Invalid
from dra_driver.kube.slice_content import GATES
from dra_driver.model.validation import validate_resource_slice

Content = dict[str, Any]

# Which gates the server has on is not known here, and a field whose gate is off is its business: it is dropped, and
# reported then. What breaks a rule on every server is refused.
_ALL_GATES = dict.fromkeys(GATES.values(), True)


def check_slices(contents: Sequence[Content], driver: str, node: str) -> None:
    """Checks each slice by itself and the pool as a whole.

    Raises:
        InputError: with every problem; a slice is named by its index, as no slice has a name yet.
    """
    problems: list[tuple[str, str]] = []
    pool = {"name": node, "generation": 1, "resourceSliceCount": len(contents)}
    for index, content in enumerate(contents):
        raw = {
            "apiVersion": "resource.k8s.io/v1",
            "kind": "ResourceSlice",
            "metadata": {"name": f"{index:05x}-slice"},
            "spec": {**content, "pool": pool},
        }
        problems += [
            (f"slices[{index}].{error.path}", str(error)) for error in validate_resource_slice(raw, gates=_ALL_GATES)
        ]
    problems += _pool_problems(contents)
    if problems:
        shown = "; ".join(f"{path.split('.')[0]}: {text}" for path, text in problems[:10])
        more = f"; and {len(problems) - 10} more" if len(problems) > 10 else ""
        raise InputError(
            f"the API server would refuse this: {shown}{more}",
            source=f"ResourceSlices of driver {driver} for node {node}",
            path=problems[0][0],
        )


def _pool_problems(contents: Sequence[Content]) -> list[tuple[str, str]]:
    """What no single slice shows: names that occur twice in the pool, counters that nobody declares."""
    problems: list[tuple[str, str]] = []
    counters: dict[str, set[str]] = {}
    devices: set[str] = set()
    for index, content in enumerate(contents):
        for place, counter_set in enumerate(content.get("sharedCounters") or ()):
            path = f"slices[{index}].spec.sharedCounters[{place}].name"
            if counter_set["name"] in counters:
                problems.append((path, f'counter set "{counter_set["name"]}" occurs twice in the pool'))
            counters[counter_set["name"]] = set(counter_set.get("counters") or ())
    for index, content in enumerate(contents):
        for place, device in enumerate(content.get("devices") or ()):
            path = f"slices[{index}].spec.devices[{place}]"
            if device["name"] in devices:
                problems.append((f"{path}.name", f'device "{device["name"]}" occurs twice in the pool'))
            devices.add(device["name"])
            for consumption in device.get("consumesCounters") or ():
                name = consumption["counterSet"]
                missing = set(consumption.get("counters") or ()) - counters.get(name, set())
                if name not in counters:
                    text = f'device "{device["name"]}" consumes from counter set "{name}", which is not in the pool'
                    problems.append((f"{path}.consumesCounters", text))
                elif missing:
                    text = f'counter set "{name}" has no counter {", ".join(sorted(missing))}'
                    problems.append((f"{path}.consumesCounters", f'device "{device["name"]}": {text}'))
    return problems


def explain_refusal(error: Invalid, body: Content) -> Invalid:
    """The refusal with a hint when a feature gate explains it.

    A server whose gate for list attributes is off drops the list and then misses the value; it does not name the gate.
    """
    lists = {
        f"spec.devices[{index}].attributes[{name}]"
        for index, device in enumerate(body["spec"].get("devices") or ())
        for name, value in (device.get("attributes") or {}).items()
        if any(GATES.get(member) == "DRAListTypeAttributes" for member in value)
    }
    if lists.isdisjoint(cause.field for cause in error.causes):
        return error
    return Invalid(
        error.server_message,
        status=error.status,
        reason=error.reason,
        verb=error.verb,
        path=error.path,
        causes=error.causes,
        hint="feature gate DRAListTypeAttributes is off in this API server; publish single values instead of lists",
    )
