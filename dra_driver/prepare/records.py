"""All claim records of the node: read once, kept in memory, every change written through.

One file per claim, ``<state directory>/claims/<uid>.json``, so that claims never wait for each other and a damaged file
costs one claim. A file that can't be read or understood is moved to ``<state directory>/quarantine/`` together with the
reason, and the daemon goes on: the claim's next Prepare rebuilds everything from the API server, its Unprepare removes
the CDI spec by the claim's UID.

The directory is listed at start and by ``refresh``. In between, a claim that isn't in memory is looked up on the disk
by its UID, because during a rolling update another instance may have written it a moment ago. Other files in the state
directory (NVIDIA's driver keeps ``checkpoint.json`` there) are nobody's business and stay.
"""

from __future__ import annotations

import logging
import re
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path

from dra_driver import __version__
from dra_driver.errors import EnvironmentFault
from dra_driver.prepare.record import ClaimRecord, UnreadableRecord, decode, encode
from dra_driver.prepare.record_files import RecordFiles, Stamp

log = logging.getLogger(__name__)

BOOT_ID = Path("/proc/sys/kernel/random/boot_id")

_FILE = re.compile(r"(?P<uid>[A-Za-z0-9][A-Za-z0-9._-]{0,199})\.json")
_STALE_SECONDS = 60.0


@dataclass(frozen=True, slots=True)
class Quarantined:
    """A record that was put aside.

    Attributes:
        uid: of the claim, from the file name.
        path: where the file is now; where it was when it could not be moved.
        reason: what was wrong with it.
    """

    uid: str
    path: Path
    reason: str


def read_boot_id(path: Path = BOOT_ID) -> str:
    """The kernel's id of this boot. Raises EnvironmentFault."""
    try:
        return path.read_text().strip()
    except (OSError, ValueError) as error:
        raise EnvironmentFault(
            f"cannot read the boot id from {path}: {error}", hint="the driver needs the host's /proc"
        ) from error


def valid_uid(uid: str) -> bool:
    """Whether a UID can be (part of) a file name; all UIDs of Kubernetes can."""
    return _FILE.fullmatch(f"{uid}.json") is not None


class RecordStore:
    """The records of one driver on one node.

    ``put``, ``remove``, ``find``, ``load`` and ``refresh`` block on files and may be called from several threads, but
    for one claim only by one at a time; ``get`` and ``all`` only look into memory.

    Args:
        directory: the driver's state directory.
        boot_id: of the running system, see `read_boot_id`.
        on_quarantine: told of every file put aside, in the calling thread.
        clock: wall clock, seconds since 1970.
        files: where the records are; another layer can be put in for tests.
        version: of the driver, noted in what it writes.
    """

    def __init__(
        self,
        directory: Path,
        *,
        boot_id: str,
        on_quarantine: Callable[[Quarantined], None] = lambda quarantined: None,
        clock: Callable[[], float] = time.time,
        files: RecordFiles | None = None,
        version: str = __version__,
    ) -> None:
        self.directory = directory
        self.boot_id = boot_id
        self._files = files or RecordFiles(directory / "claims")
        self._quarantine = directory / "quarantine"
        self._on_quarantine = on_quarantine
        self._clock = clock
        self._version = version
        self._records: dict[str, tuple[ClaimRecord, Stamp]] = {}
        self._lock = threading.Lock()  # guards the dict only, never held during file work

    def load(self) -> tuple[Quarantined, ...]:
        """Read everything, at start.

        Returns:
            What could not be read and was put aside.

        Raises:
            EnvironmentFault: the directory itself can't be listed, so nothing is known about what is prepared.
        """
        quarantined: list[Quarantined] = []
        records: dict[str, tuple[ClaimRecord, Stamp]] = {}
        for name in self._files.names():
            match = _FILE.fullmatch(name)
            if match is None:
                log.info("%s/%s is no claim record; left alone", self._files.path, name)
                continue
            found = self._read(match["uid"])
            if isinstance(found, Quarantined):
                quarantined.append(found)
            elif found is not None:
                records[match["uid"]] = found
        with self._lock:
            self._records = records
        return tuple(quarantined)

    def refresh(self) -> tuple[tuple[str, ...], tuple[str, ...]]:
        """What another instance changed since: UIDs on the disk that memory lacks, and UIDs in memory that the disk
        lacks.

        Nothing is changed; take each claim's turn and call `find`.

        Raises:
            EnvironmentFault: the directory can't be listed.
        """
        known = {record.ref.uid for record in self.all()}
        stored = {match["uid"] for name in self._files.names() if (match := _FILE.fullmatch(name))}
        return tuple(sorted(stored - known)), tuple(sorted(known - stored))

    def all(self) -> tuple[ClaimRecord, ...]:
        """Every known record."""
        with self._lock:
            return tuple(record for record, _ in self._records.values())

    def get(self, uid: str) -> ClaimRecord | None:
        """The record in memory."""
        known = self._records.get(uid)
        return known[0] if known is not None else None

    def is_current(self, record: ClaimRecord) -> bool:
        """False for records of an earlier boot: nothing that they speak of can be there any more."""
        return record.boot_id == self.boot_id

    def find(self, uid: str) -> ClaimRecord | None:
        """The record as the disk has it, read again only if the file is not the one that memory knows.

        An unreadable file is put aside and counts as none.

        Raises:
            EnvironmentFault: the disk can't be asked.
        """
        if not valid_uid(uid):
            return None
        known = self._records.get(uid)
        stamp = self._files.stamp(f"{uid}.json")
        if known is not None and known[1] == stamp:
            return known[0]
        found = self._read(uid) if stamp is not None else None
        with self._lock:
            if found is None or isinstance(found, Quarantined):
                self._records.pop(uid, None)
                return None
            self._records[uid] = found
        return found[0]

    def put(self, record: ClaimRecord) -> ClaimRecord:
        """Write the record durably, then keep it.

        Returns:
            The record as written, with this boot's id, the version and the time.

        Raises:
            EnvironmentFault: it could not be written; what was there before is unchanged.
        """
        written_at = datetime.fromtimestamp(self._clock(), UTC).isoformat(timespec="milliseconds")
        record = replace(
            record,
            boot_id=self.boot_id,
            written_by=self._version,
            written_at=written_at.replace("+00:00", "Z"),
        )
        stamp = self._files.write(f"{record.ref.uid}.json", encode(record))
        with self._lock:
            self._records[record.ref.uid] = record, stamp
        return record

    def remove(self, uid: str) -> bool:
        """Delete the record; False when there was none. Raises EnvironmentFault, and then the record stays."""
        removed = self._files.remove(f"{uid}.json") if valid_uid(uid) else False
        with self._lock:
            return self._records.pop(uid, None) is not None or removed

    def sweep(self) -> list[str]:
        """Delete what killed writers left; returns the names. Raises EnvironmentFault."""
        return self._files.sweep(older_than=self._clock() - _STALE_SECONDS)

    def _read(self, uid: str) -> tuple[ClaimRecord, Stamp] | Quarantined | None:
        name = f"{uid}.json"
        try:
            content = self._files.read(name)
            if content is None:
                return None
            record = decode(content[0])
            if record.ref.uid != uid:
                raise UnreadableRecord(f"it is the record of claim {record.ref} (UID {record.ref.uid})")
        except EnvironmentFault as error:
            return self._put_aside(uid, name, str(error))
        return record, content[1]

    def _put_aside(self, uid: str, name: str, reason: str) -> Quarantined:
        """Move a bad file away; when even that fails it stays, is reported all the same, and is met again later."""
        stamp = datetime.fromtimestamp(self._clock(), UTC).strftime("%Y%m%dT%H%M%S.%f")
        aside = f"{name}.{stamp}"
        while (self._quarantine / aside).exists():
            aside += "+"
        try:
            path = self._files.move(name, self._quarantine, aside)
        except EnvironmentFault as error:
            path = self._files.path / name
            reason = f"{reason}; and it could not be moved away: {error}"
        else:
            try:
                RecordFiles(self._quarantine).write(f"{path.name}.reason", f"{reason}\n".encode())
            except EnvironmentFault as error:
                log.warning("the reason for %s could not be written beside it: %s", path, error)
        log.error(
            "claim record %s can't be used: %s; put aside as %s. The claim is rebuilt when the kubelet asks for it",
            name,
            reason,
            path,
        )
        quarantined = Quarantined(uid, path, reason)
        self._on_quarantine(quarantined)
        return quarantined
