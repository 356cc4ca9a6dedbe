"""Log lines for people (text) and for log stores (one JSON object per line), on standard error.

Standard library logging with an own formatter: structlog would add 14 MiB. Facts are passed as ``extra={"fields":
{...}}`` and appear as ``key=value`` or as JSON members, so that a search for a claim's UID finds every line about it.
"""

from __future__ import annotations

import json
import logging
import sys
import time
from typing import Any

_LEVELS = {"debug": logging.DEBUG, "info": logging.INFO, "warning": logging.WARNING, "error": logging.ERROR}


def _fields(record: logging.LogRecord) -> dict[str, Any]:
    fields = getattr(record, "fields", None)
    return fields if isinstance(fields, dict) else {}


def _timestamp(record: logging.LogRecord) -> str:
    seconds = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(record.created))
    return f"{seconds}.{int(record.msecs):03d}Z"


class TextFormatter(logging.Formatter):
    """``2026-11-29T10:00:00.000Z INFO  kubelet: message key=value``."""

    def format(self, record: logging.LogRecord) -> str:
        name = record.name.removeprefix("dra_driver.")
        pairs = "".join(f" {key}={_quoted(value)}" for key, value in _fields(record).items())
        text = f"{_timestamp(record)} {record.levelname:<7} {name}: {record.getMessage()}{pairs}"
        return f"{text}\n{self.formatException(record.exc_info)}" if record.exc_info else text


class JsonFormatter(logging.Formatter):
    """One object per line: ``ts``, ``level``, ``logger``, ``msg``, the fields, and ``error`` with a traceback."""

    def format(self, record: logging.LogRecord) -> str:
        line: dict[str, Any] = {
            "ts": _timestamp(record),
            "level": record.levelname.lower(),
            "logger": record.name,
            "msg": record.getMessage(),
        }
        line |= {key: _as_json(value) for key, value in _fields(record).items() if key not in line}
        if record.exc_info:
            line["error"] = self.formatException(record.exc_info)
        return json.dumps(line, ensure_ascii=False)


def _as_json(value: Any) -> Any:
    """The value, or its text when JSON has no word for it (objects, infinity, not a number)."""
    try:
        json.dumps(value, allow_nan=False)
    except (TypeError, ValueError):
        return str(value)
    return value


def _quoted(value: Any) -> str:
    text = str(value)
    return json.dumps(text, ensure_ascii=False) if not text or any(c in text for c in ' "=\n') else text


def set_up(*, style: str, level: str) -> None:
    """Send the package's log lines to standard error.

    Args:
        style: ``text`` or ``json``.
        level: ``debug``, ``info``, ``warning`` or ``error``.
    """
    output = logging.StreamHandler(sys.stderr)
    output.setFormatter(JsonFormatter() if style == "json" else TextFormatter())
    root = logging.getLogger()
    root.handlers[:] = [output]
    root.setLevel(logging.WARNING)
    logging.getLogger("dra_driver").setLevel(_LEVELS[level])
