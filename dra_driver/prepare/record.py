"""The durable record of one claim, as a value and as bytes.

One JSON document per claim::

    {"format":"dra-driver/claim-record","version":1,"sha256":"<hex>","record":{...}}

The checksum is over the bytes of ``record`` exactly as they are stored. It is never computed over something that was
decoded and encoded again: then a field that a newer version adds would make every older file look corrupt. For the same
reason unknown fields are ignored; a change that older code would misread raises ``version``, and such a file is put
aside, not guessed at. The bytes in front of ``record`` never change their form, in any version.

Everything that Unprepare needs is in here, because it may have neither API server nor GPU driver.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal, TypeVar

from dra_driver.errors import EnvironmentFault
from dra_driver.model.prepared import ClaimRef, PreparedDevice
from dra_driver.prepare.steps import Step

FORMAT_VERSION = 1

_HEAD = re.compile(
    rb'\{"format":"dra-driver/claim-record","version":(?P<version>[1-9][0-9]{0,8}),"sha256":"(?P<sha256>[0-9a-f]{64})",'
    rb'"record":'
)
_TAIL = b"}\n"

RecordState = Literal["started", "completed"]


class UnreadableRecord(EnvironmentFault):
    """Bytes that are not a record this version understands; the message says why."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordedDevice:
    """A prepared device.

    Attributes:
        kind: of device, see ``AllocatableDevice.kind``.
        identity: of the hardware behind the name, for a GPU its UUID: ``gpu-0`` may be another GPU tomorrow.
        admin_access: True when the claim only observes it.
    """

    answer: PreparedDevice
    kind: str
    identity: str
    admin_access: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class ClaimRecord:
    """What was done for one claim.

    Attributes:
        state: ``started`` before the first step runs, ``completed`` once the devices were handed out.
        boot_id: of the boot that it was done in; nothing on the node survives the next one.
        steps: in the order in which they run; with outcomes when completed.
        cdi_file, cdi_sha256: name of the CDI spec and the checksum of its content, empty when only started.
        written_by: version of the driver.
        written_at: RFC 3339, UTC.
    """

    ref: ClaimRef
    state: RecordState
    boot_id: str
    devices: tuple[RecordedDevice, ...]
    steps: tuple[Step, ...] = ()
    cdi_file: str = ""
    cdi_sha256: str = ""
    written_by: str = ""
    written_at: str = ""

    @property
    def answer(self) -> tuple[PreparedDevice, ...]:
        """What the kubelet is told."""
        return tuple(device.answer for device in self.devices)


def encode(record: ClaimRecord) -> bytes:
    """The file's content."""
    payload = json.dumps(_to_json(record), separators=(",", ":")).encode()
    head = (
        f'{{"format":"dra-driver/claim-record","version":{FORMAT_VERSION},'
        f'"sha256":"{hashlib.sha256(payload).hexdigest()}","record":'
    )
    return head.encode() + payload + _TAIL


def decode(data: bytes) -> ClaimRecord:
    """Read a file's content.

    Raises:
        UnreadableRecord: for anything that ``encode`` of this or a compatible version didn't write.
    """
    head = _HEAD.match(data)
    if head is None:
        raise UnreadableRecord("it is empty" if not data else "it doesn't begin as a claim record")
    version = int(head["version"])
    if version != FORMAT_VERSION:
        raise UnreadableRecord(f"it has format version {version}, this driver reads version {FORMAT_VERSION}")
    if not data.endswith(_TAIL):
        raise UnreadableRecord("its end is missing")
    payload = data[head.end() : -len(_TAIL)]
    if hashlib.sha256(payload).hexdigest().encode() != head["sha256"]:
        raise UnreadableRecord("its checksum doesn't fit its content")
    try:
        return _from_json(json.loads(payload))
    except (ValueError, RecursionError) as error:
        raise UnreadableRecord(f"its checksum fits, but its content is not JSON: {error}") from error


def _to_json(record: ClaimRecord) -> dict[str, Any]:
    return {
        "namespace": record.ref.namespace,
        "name": record.ref.name,
        "uid": record.ref.uid,
        "state": record.state,
        "bootID": record.boot_id,
        "devices": [
            {
                "requests": list(device.answer.requests),
                "pool": device.answer.pool,
                "device": device.answer.device,
                "cdiDeviceIDs": list(device.answer.cdi_ids),
                "shareID": device.answer.share_id,
                "kind": device.kind,
                "identity": device.identity,
                "adminAccess": device.admin_access,
            }
            for device in record.devices
        ],
        "steps": [
            {
                "preparer": step.preparer,
                "action": step.action,
                "arguments": dict(step.arguments),
                "outcome": dict(step.outcome) if step.outcome is not None else None,
            }
            for step in record.steps
        ],
        "cdiFile": record.cdi_file,
        "cdiSHA256": record.cdi_sha256,
        "writtenBy": record.written_by,
        "writtenAt": record.written_at,
    }


_T = TypeVar("_T")


def _take(raw: Mapping[str, Any], name: str, kind: type[_T]) -> _T:
    value = raw.get(name)
    if not isinstance(value, kind):
        raise UnreadableRecord(f"its field {name} is {type(value).__name__}, not {kind.__name__}")
    return value


def _texts(raw: Mapping[str, Any], name: str) -> tuple[str, ...]:
    values = _take(raw, name, list)
    if not all(isinstance(value, str) for value in values):
        raise UnreadableRecord(f"its field {name} is not a list of strings")
    return tuple(values)


def _objects(raw: Mapping[str, Any], name: str) -> list[dict[str, Any]]:
    values = _take(raw, name, list)
    if not all(isinstance(value, dict) for value in values):
        raise UnreadableRecord(f"its field {name} is not a list of objects")
    return values


def _from_json(raw: object) -> ClaimRecord:
    if not isinstance(raw, dict):
        raise UnreadableRecord(f"its content is {type(raw).__name__}, not an object")
    state = _take(raw, "state", str)
    if state not in ("started", "completed"):
        raise UnreadableRecord(f"its state {state!r} is unknown")
    return ClaimRecord(
        ref=ClaimRef(_take(raw, "namespace", str), _take(raw, "name", str), _take(raw, "uid", str)),
        state="started" if state == "started" else "completed",
        boot_id=_take(raw, "bootID", str),
        devices=tuple(_device(device) for device in _objects(raw, "devices")),
        steps=tuple(_step(step) for step in _objects(raw, "steps")),
        cdi_file=_take(raw, "cdiFile", str),
        cdi_sha256=_take(raw, "cdiSHA256", str),
        written_by=_take(raw, "writtenBy", str),
        written_at=_take(raw, "writtenAt", str),
    )


def _device(raw: Mapping[str, Any]) -> RecordedDevice:
    return RecordedDevice(
        answer=PreparedDevice(
            requests=_texts(raw, "requests"),
            pool=_take(raw, "pool", str),
            device=_take(raw, "device", str),
            cdi_ids=_texts(raw, "cdiDeviceIDs"),
            share_id=_take(raw, "shareID", str) if raw.get("shareID") is not None else None,
        ),
        kind=_take(raw, "kind", str),
        identity=_take(raw, "identity", str),
        admin_access=_take(raw, "adminAccess", bool),
    )


def _step(raw: Mapping[str, Any]) -> Step:
    return Step(
        preparer=_take(raw, "preparer", str),
        action=_take(raw, "action", str),
        arguments=_take(raw, "arguments", dict),
        outcome=_take(raw, "outcome", dict) if raw.get("outcome") is not None else None,
    )
