"""Log lines: JSON that every parser takes, text that a person reads; fields in both."""

from __future__ import annotations

import json
import logging
import sys
from typing import Any

import pytest

from dra_driver.node.logs import JsonFormatter, TextFormatter


def record(message: str, *arguments: object, fields: dict[str, Any] | None = None, failed: bool = False) -> Any:
    made = logging.LogRecord("dra_driver.kubelet.calls", logging.WARNING, "f.py", 1, message, arguments, None)
    made.created, made.msecs = 1_795_946_400.5, 500.0
    if fields is not None:
        made.fields = fields
    if failed:
        try:
            raise ValueError("two\nlines")
        except ValueError:
            made.exc_info = sys.exc_info()
    return made


def parsed(text: str) -> dict[str, Any]:
    """As a strict parser reads it: one line, no NaN, no member twice."""

    def refuse(constant: str) -> None:
        raise AssertionError(f"{constant} is not JSON")

    def once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        assert len({key for key, _ in pairs}) == len(pairs)
        return dict(pairs)

    assert "\n" not in text
    result: dict[str, Any] = json.loads(text, parse_constant=refuse, object_pairs_hook=once)
    return result


def test_json_line() -> None:
    line = parsed(JsonFormatter().format(record("claim %s", "a/b", fields={"uid": "u", "devices": ["gpu-0"]})))
    assert line == {
        "ts": "2026-11-29T10:00:00.500Z",
        "level": "warning",
        "logger": "dra_driver.kubelet.calls",
        "msg": "claim a/b",
        "uid": "u",
        "devices": ["gpu-0"],
    }


@pytest.mark.parametrize(
    ("value", "read"),
    [
        pytest.param('quote " and \\', 'quote " and \\', id="quotes"),
        pytest.param("two\nlines", "two\nlines", id="lines"),
        pytest.param(float("nan"), "nan", id="nan"),
        pytest.param(float("inf"), "inf", id="infinity"),
        pytest.param({"x": float("-inf")}, "{'x': -inf}", id="nested-infinity"),
        pytest.param(ValueError("bad"), "bad", id="object"),
        pytest.param("file\udcff", "file\udcff", id="undecodable-file-name"),
    ],
)
def test_json_is_valid_whatever_is_logged(value: object, read: str) -> None:
    text = JsonFormatter().format(record("message", fields={"value": value}))
    written = text.encode("utf-8", "backslashreplace")  # as standard error always does
    assert parsed(written.decode("utf-8"))["value"] == read


def test_a_field_does_not_replace_what_every_line_has() -> None:
    assert parsed(JsonFormatter().format(record("message", fields={"msg": "other", "level": 7})))["msg"] == "message"


def test_traceback_is_in_the_json_line() -> None:
    error = parsed(JsonFormatter().format(record("failed", failed=True)))["error"]
    assert error.startswith("Traceback")
    assert error.endswith("ValueError: two\nlines")


def test_text_line() -> None:
    text = TextFormatter().format(record("claim %s", "a/b", fields={"uid": "u", "why": 'no "node"', "empty": ""}))
    assert text == '2026-11-29T10:00:00.500Z WARNING kubelet.calls: claim a/b uid=u why="no \\"node\\"" empty=""'
