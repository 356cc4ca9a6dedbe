"""Records on the disk: exact bytes, durability, quarantine."""

from __future__ import annotations

import errno
import hashlib
import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dra_driver.errors import EnvironmentFault
from dra_driver.model.prepared import ClaimRef, PreparedDevice
from dra_driver.prepare.record import ClaimRecord, RecordedDevice, UnreadableRecord, decode, encode
from dra_driver.prepare.record_files import RecordFiles
from dra_driver.prepare.records import Quarantined, RecordStore, read_boot_id, valid_uid
from dra_driver.prepare.steps import Step
from tests.prepare.node import BOOT, ref

TEXT = st.text(st.characters(codec="utf-8"), max_size=20)
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | TEXT,
    lambda inner: st.lists(inner) | st.dictionaries(TEXT, inner),
    max_leaves=5,
)
DEVICES = st.builds(
    RecordedDevice,
    answer=st.builds(
        PreparedDevice,
        requests=st.lists(TEXT, max_size=3).map(tuple),
        pool=TEXT,
        device=TEXT,
        cdi_ids=st.lists(TEXT, max_size=3).map(tuple),
        share_id=st.none() | TEXT,
    ),
    kind=TEXT,
    identity=TEXT,
    admin_access=st.booleans(),
)
STEPS = st.builds(
    Step,
    preparer=TEXT,
    action=TEXT,
    arguments=st.dictionaries(TEXT, JSON, max_size=3),
    outcome=st.none() | st.dictionaries(TEXT, JSON, max_size=3),
)
RECORDS = st.builds(
    ClaimRecord,
    ref=st.builds(ClaimRef, TEXT, TEXT, TEXT),
    state=st.sampled_from(["started", "completed"]),
    boot_id=TEXT,
    devices=st.lists(DEVICES, max_size=3).map(tuple),
    steps=st.lists(STEPS, max_size=3).map(tuple),
    cdi_file=TEXT,
    cdi_sha256=TEXT,
    written_by=TEXT,
    written_at=TEXT,
)


def record(name: str = "c", **fields: Any) -> ClaimRecord:
    answer = PreparedDevice(("gpu",), "node-a", "gpu-0", (f"k8s.gpu.nvidia.com/claim=uid-{name}-gpu-0",))
    values: dict[str, Any] = {
        "ref": ref(name),
        "state": "completed",
        "boot_id": BOOT,
        "devices": (RecordedDevice(answer=answer, kind="gpu", identity="GPU-0"),),
        "cdi_file": f"k8s.gpu.nvidia.com-claim_uid-{name}.json",
        "cdi_sha256": "0" * 64,
    }
    return ClaimRecord(**{**values, **fields})


def with_payload(payload: bytes, version: int = 1, checksum: str | None = None) -> bytes:
    digest = checksum or hashlib.sha256(payload).hexdigest()
    return b'{"format":"dra-driver/claim-record","version":%d,"sha256":"%b","record":%b}\n' % (
        version,
        digest.encode(),
        payload,
    )


def payload_of(data: bytes) -> dict[str, Any]:
    payload: dict[str, Any] = json.loads(data)["record"]
    return payload


@given(RECORDS)
@settings(max_examples=60)
def test_what_is_written_is_read(value: ClaimRecord) -> None:
    data = encode(value)
    assert decode(data) == value
    whole = json.loads(data)
    assert whole["version"] == 1
    assert whole["record"]["uid"] == value.ref.uid


@given(st.data())
@settings(max_examples=300)
def test_any_damage_is_noticed(data: st.DataObject) -> None:
    stored = encode(record(steps=(Step(preparer="part", action="make", arguments={"n": 1}, outcome={}),)))
    place = data.draw(st.integers(0, len(stored) - 1))
    match data.draw(st.sampled_from(["flip", "cut", "insert", "delete"])):
        case "flip":
            damaged = bytearray(stored)
            damaged[place] ^= data.draw(st.integers(1, 255))
        case "cut":
            damaged = bytearray(stored[:place])
        case "insert":
            damaged = bytearray(stored[:place] + data.draw(st.binary(min_size=1, max_size=4)) + stored[place:])
        case _:
            damaged = bytearray(stored[:place] + stored[place + 1 :])
    if bytes(damaged) == stored:
        return
    with pytest.raises(UnreadableRecord):
        decode(bytes(damaged))


@given(st.binary(max_size=300))
def test_any_bytes_are_read_or_refused(data: bytes) -> None:
    with pytest.raises(UnreadableRecord):
        decode(data)


def test_the_checksum_is_over_the_bytes_as_they_are_stored() -> None:
    payload = json.dumps(payload_of(encode(record())), indent=3).encode()
    assert decode(with_payload(payload)) == record()


def test_fields_of_a_newer_version_are_ignored() -> None:
    payload = payload_of(encode(record()))
    payload["metadata"] = {"generation": 3}
    payload["devices"][0]["networkData"] = None
    assert decode(with_payload(json.dumps(payload).encode())) == record()


BROKEN: dict[str, tuple[Callable[[dict[str, Any]], object], str]] = {
    "missing": (lambda p: p.pop("uid"), "its field uid is NoneType, not str"),
    "wrong type": (lambda p: p.update(devices={}), "its field devices is dict, not list"),
    "list of wrong things": (lambda p: p.update(steps=["x"]), "its field steps is not a list of objects"),
    "requests": (lambda p: p["devices"][0].update(requests=[1]), "its field requests is not a list of strings"),
    "unknown state": (lambda p: p.update(state="aborted"), "its state 'aborted' is unknown"),
    "admin access": (lambda p: p["devices"][0].update(adminAccess="no"), "its field adminAccess is str, not bool"),
}


@pytest.mark.parametrize(("change", "reason"), BROKEN.values(), ids=BROKEN)
def test_a_record_of_another_shape_is_refused(change: Callable[[dict[str, Any]], object], reason: str) -> None:
    payload = payload_of(encode(record()))
    change(payload)
    with pytest.raises(UnreadableRecord) as caught:
        decode(with_payload(json.dumps(payload).encode()))
    assert str(caught.value) == reason


REFUSED: dict[str, tuple[bytes, str]] = {
    "empty": (b"", "it is empty"),
    "NVIDIA's checkpoint": (b'{"checksum":1,"v1":{}}', "it doesn't begin as a claim record"),
    "newer format": (with_payload(b"{}", version=2), "it has format version 2, this driver reads version 1"),
    "checksum": (with_payload(b"{}", checksum="0" * 64), "its checksum doesn't fit its content"),
    "no JSON": (with_payload(b"{"), "its checksum fits, but its content is not JSON"),
    "deep JSON": (with_payload(b"[" * 100_000), "its checksum fits, but its content is not JSON"),
    "no object": (with_payload(b"[]"), "its content is list, not an object"),
}


@pytest.mark.parametrize(("data", "reason"), REFUSED.values(), ids=REFUSED)
def test_refused(data: bytes, reason: str) -> None:
    with pytest.raises(UnreadableRecord) as caught:
        decode(data)
    assert str(caught.value).startswith(reason)


# --- the store


def store(path: Path, boot_id: str = BOOT, seen: list[Quarantined] | None = None) -> RecordStore:
    made = RecordStore(
        path,
        boot_id=boot_id,
        clock=lambda: 1_700_000_000.5,
        version="1.2.3",
        on_quarantine=(seen if seen is not None else []).append,
    )
    made.load()
    return made


def test_a_record_outlives_the_process(tmp_path: Path) -> None:
    written = store(tmp_path).put(record(boot_id="", written_by="", written_at=""))
    assert written == record(written_by="1.2.3", written_at="2023-11-14T22:13:20.500Z")
    again = store(tmp_path)
    assert again.all() == (written,)
    assert again.get("uid-c") == written
    assert again.is_current(written)
    assert not store(tmp_path, boot_id="boot-2").is_current(written)
    assert os.listdir(tmp_path / "claims") == ["uid-c.json"]
    assert os.stat(tmp_path / "claims" / "uid-c.json").st_mode & 0o777 == 0o600


def test_remove(tmp_path: Path) -> None:
    records = store(tmp_path)
    assert not records.remove("uid-c")
    records.put(record())
    assert records.remove("uid-c")
    assert records.get("uid-c") is None
    assert store(tmp_path).all() == ()


def test_an_empty_state_directory_needs_no_making(tmp_path: Path) -> None:
    records = store(tmp_path / "not" / "yet")
    assert records.all() == ()
    records.put(record())
    assert store(tmp_path / "not" / "yet").get("uid-c") is not None


def test_a_damaged_record_costs_one_claim(tmp_path: Path) -> None:
    records = store(tmp_path)
    for name in ("a", "b", "c"):
        records.put(record(name))
    damaged = tmp_path / "claims" / "uid-b.json"
    content = damaged.read_bytes()
    damaged.write_bytes(content[:100])
    seen: list[Quarantined] = []
    again = store(tmp_path, seen=seen)
    assert {item.ref.name for item in again.all()} == {"a", "c"}
    (put_aside,) = seen
    assert put_aside.uid == "uid-b"
    assert put_aside.reason == "it doesn't begin as a claim record"
    assert put_aside.path.parent == tmp_path / "quarantine"
    assert put_aside.path.name == "uid-b.json.20231114T221320.500000"
    assert put_aside.path.read_bytes() == content[:100]
    assert put_aside.path.with_name(put_aside.path.name + ".reason").read_text() == f"{put_aside.reason}\n"
    assert not damaged.exists()
    seen.clear()
    assert len(store(tmp_path, seen=seen).all()) == 2
    assert seen == []


def test_a_record_of_another_claim_is_put_aside(tmp_path: Path) -> None:
    store(tmp_path).put(record("a"))
    os.rename(tmp_path / "claims" / "uid-a.json", tmp_path / "claims" / "uid-b.json")
    seen: list[Quarantined] = []
    assert store(tmp_path, seen=seen).all() == ()
    assert seen[0].reason == "it is the record of claim default/a (UID uid-a)"


def test_a_directory_in_place_of_a_record_is_put_aside(tmp_path: Path) -> None:
    (tmp_path / "claims" / "uid-a.json").mkdir(parents=True)
    seen: list[Quarantined] = []
    assert store(tmp_path, seen=seen).all() == ()
    assert "Is a directory" in seen[0].reason
    assert seen[0].path.is_dir()


def test_other_files_are_nobodys_business(tmp_path: Path) -> None:
    (tmp_path / "claims").mkdir()
    others = [
        tmp_path / "checkpoint.json",
        tmp_path / "cp.lock",
        tmp_path / "claims" / "README",
        tmp_path / "claims" / ".uid-x.json-1-ab-0.tmp",
    ]
    for other in others:
        other.write_text('{"checksum": 1}')
    seen: list[Quarantined] = []
    assert store(tmp_path, seen=seen).all() == ()
    assert seen == []
    assert all(other.exists() for other in others)


def test_when_a_bad_file_can_not_be_moved_it_is_reported_all_the_same(tmp_path: Path) -> None:
    (tmp_path / "claims").mkdir()
    (tmp_path / "claims" / "uid-a.json").write_text("x")
    (tmp_path / "quarantine").write_text("a file where the folder should be")
    seen: list[Quarantined] = []
    assert store(tmp_path, seen=seen).all() == ()
    assert seen[0].path == tmp_path / "claims" / "uid-a.json"
    assert seen[0].reason.startswith("it doesn't begin as a claim record; and it could not be moved away: cannot move")


def test_what_another_instance_wrote_is_found(tmp_path: Path) -> None:
    mine, other = store(tmp_path), store(tmp_path)
    other.put(record("a"))
    assert mine.get("uid-a") is None
    assert mine.find("uid-a") == other.get("uid-a")
    changed = other.put(record("a", cdi_sha256="1" * 64))
    assert mine.find("uid-a") == changed
    other.put(record("b"))
    other.remove("uid-a")
    assert mine.refresh() == (("uid-b",), ("uid-a",))
    assert mine.find("uid-a") is None
    assert mine.all() == ()


def test_temporary_files_of_killed_writers_are_swept(tmp_path: Path) -> None:
    records = store(tmp_path)
    records.put(record())
    old, young = tmp_path / "claims" / ".a.json-1-ab-0.tmp", tmp_path / "claims" / ".b.json-1-ab-1.tmp"
    for path, age in ((old, 61), (young, 5)):
        path.write_text("half")
        os.utime(path, (1_700_000_000.5 - age,) * 2)
    assert records.sweep() == [old.name]
    assert young.exists()
    assert not old.exists()


UIDS = {
    "0e5f6c3a-9f3b-4c2e-8d6d-1f2a3b4c5d6e": True,
    "uid-1": True,
    "": False,
    "..": False,
    "../x": False,
    "a/b": False,
    ".hidden": False,
    "a\n": False,
    "x" * 201: False,
}


@pytest.mark.parametrize(("uid", "valid"), UIDS.items(), ids=[repr(uid)[:12] for uid in UIDS])
def test_uids_as_file_names(uid: str, valid: bool) -> None:
    assert valid_uid(uid) is valid


def test_a_uid_that_is_a_path_touches_nothing(tmp_path: Path) -> None:
    victim = tmp_path / "x.json"
    victim.write_text("x")
    records = store(tmp_path)
    assert records.find("../x") is None
    assert not records.remove("../x")
    assert victim.read_text() == "x"


FAULTS = {
    "full": (errno.ENOSPC, "No space left on device", "free space or inodes"),
    "quota": (errno.EDQUOT, "Disk quota exceeded", "free space or inodes"),
    "read-only": (errno.EROFS, "Read-only file system", "read-write into the driver's Pod"),
    "forbidden": (errno.EACCES, "Permission denied", "let the driver's user write"),
    "broken": (errno.EIO, "Input/output error", "dmesg"),
}


@pytest.mark.parametrize(("number", "words", "hint"), FAULTS.values(), ids=FAULTS)
@pytest.mark.parametrize("call", ["write", "fsync", "rename", "open"])
def test_a_disk_that_refuses(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, call: str, number: int, words: str, hint: str
) -> None:
    records = store(tmp_path)
    before = records.put(record())
    real = getattr(os, call)

    def refuse(*arguments: Any, **options: Any) -> Any:
        if call == "open" and not arguments[1] & os.O_CREAT:
            return real(*arguments, **options)
        raise OSError(number, os.strerror(number))

    with monkeypatch.context() as patch:
        patch.setattr(os, call, refuse)
        with pytest.raises(EnvironmentFault) as caught:
            records.put(record(cdi_sha256="1" * 64))
    assert f"cannot write claim record {tmp_path}/claims/uid-c.json: {words}" in str(caught.value)
    assert hint in str(caught.value)
    assert records.get("uid-c") == before
    assert store(tmp_path).get("uid-c") == before
    assert os.listdir(tmp_path / "claims") == ["uid-c.json"]


def test_a_file_in_place_of_the_directory(tmp_path: Path) -> None:
    (tmp_path / "claims").write_text("")
    with pytest.raises(EnvironmentFault, match="must be directories: remove the file in their place"):
        store(tmp_path)


def test_partial_writes_are_continued(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    real = os.write
    monkeypatch.setattr(os, "write", lambda fd, data: real(fd, bytes(data)[:7]))
    RecordFiles(tmp_path).write("a.json", b"0123456789" * 5)
    assert (tmp_path / "a.json").read_bytes() == b"0123456789" * 5


def test_the_content_is_on_the_disk_before_it_has_its_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    order = []
    real_fsync, real_rename = os.fsync, os.rename

    def fsync(fd: int) -> None:
        order.append("fsync")
        real_fsync(fd)

    def rename(source: str, target: str) -> None:
        order.append("rename")
        real_rename(source, target)

    monkeypatch.setattr(os, "fsync", fsync)
    monkeypatch.setattr(os, "rename", rename)
    RecordFiles(tmp_path).write("a.json", b"x")
    assert order == ["fsync", "rename"]


def test_boot_id(tmp_path: Path) -> None:
    (tmp_path / "boot_id").write_text("6d1a\n")
    assert read_boot_id(tmp_path / "boot_id") == "6d1a"
    with pytest.raises(EnvironmentFault, match="cannot read the boot id from"):
        read_boot_id(tmp_path / "missing")


@pytest.mark.parametrize("what", ["pipe", "device", "directory"])
def test_what_is_no_regular_file_is_put_aside(tmp_path: Path, what: str) -> None:
    path = tmp_path / "claims" / "uid-c.json"
    path.parent.mkdir()
    match what:
        case "pipe":
            os.mkfifo(path)
        case "device":
            path.symlink_to("/dev/zero")
        case _:
            path.mkdir()
    store = RecordStore(tmp_path, boot_id=BOOT)
    (quarantined,) = store.load()
    assert (quarantined.uid, quarantined.path.parent) == ("uid-c", tmp_path / "quarantine")
    assert store.find("uid-c") is None
    assert store.put(record()) == store.find("uid-c")
