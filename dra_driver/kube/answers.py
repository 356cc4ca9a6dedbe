"""Whether an answer with a good status is what was asked for.

A proxy or a load balancer between the driver and the API server may answer 200 with anything. Everybody behind the
client counts on an object to have a name and a UID and on a list to have items, so that is checked once, here; an
answer without them is one more way of not being answered, and the callers try again as after all others.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any

from dra_driver.kube.errors import Unavailable

Object = dict[str, Any]


def read_json(body: bytes, decode: Callable[[bytes], Any] = json.loads) -> Any:
    """The decoded body.

    Raises:
        ValueError: it is not JSON, or nested deeper than this process can read.
    """
    try:
        return decode(body)
    except RecursionError as error:
        raise ValueError("it is nested too deeply") from error


def api_object(answer: Any, *, verb: str, path: str, stored: bool = True) -> Object:
    """The answer as an API object.

    Args:
        stored: it is one that the server keeps, so it has a name and a UID; reviews, for example, have neither.

    Raises:
        Unavailable: it is not one.
    """
    problem = _problem(answer, stored)
    if problem is not None:
        raise _unusable(f"the answer is not an API object: {problem}", verb, path)
    found: Object = answer
    return found


def api_list(answer: Any, *, verb: str, path: str) -> tuple[list[Object], Mapping[str, Any]]:
    """Items and metadata of a list, or of a page of it.

    Raises:
        Unavailable: it is not one.
    """
    if not isinstance(answer, dict) or not isinstance(answer.get("metadata"), dict):
        raise _unusable("the answer is not a list of API objects", verb, path)
    metadata: Mapping[str, Any] = answer["metadata"]
    items = answer.get("items")
    if items is None:
        items = []
    if not isinstance(items, list) or not isinstance(metadata.get("resourceVersion"), str):
        raise _unusable("the answer is not a list of API objects: it lacks items or resourceVersion", verb, path)
    for index, item in enumerate(items):
        problem = _problem(item, True)
        if problem is not None:
            raise _unusable(f"the answer is not a list of API objects: item {index}: {problem}", verb, path)
    return items, metadata


def _problem(answer: Any, stored: bool) -> str | None:
    if not isinstance(answer, dict):
        return f"it is {type(answer).__name__}"
    metadata = answer.get("metadata")
    if not isinstance(metadata, dict):
        return "it has no metadata" if stored or metadata is not None else None
    if stored and not all(isinstance(metadata.get(name), str) and metadata[name] for name in ("name", "uid")):
        return "its metadata lack name or uid"
    return None


def _unusable(message: str, verb: str, path: str) -> Unavailable:
    return Unavailable(message, status=200, reason="BadAnswer", verb=verb, path=path)
