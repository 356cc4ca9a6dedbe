"""Files of the state directory: whole or not at all, durable when asked, and one place for their errors.

A record is written under a temporary name, flushed to the disk, and renamed. The directory is not flushed: that made a
write slower by 35 and 86 per cent in two runs (ext4, medians of some hundred writes in turn), and its only effect
would be that the *name* survives a power failure. Everything that a record speaks of is gone after a power failure;
the boot id tells so, and a record that is missing says the same as one of an earlier boot. A killed process loses
neither, since the kernel keeps both. Flushing the content is worth its price: without it, a file system may show the
name with half of the content.
"""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import count
from pathlib import Path

from dra_driver.errors import EnvironmentFault

_TEMPORARY = ".tmp"

Stamp = tuple[int, int, int]
"""Inode, time of change and size; as content is only ever replaced by a rename, other content has another stamp."""


class RecordFiles:
    """One directory of files that are replaced as a whole. Methods block; several threads may call them at once.

    Args:
        path: made with its parents when something is first written.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._root = f"{path}/"
        self._token = f"{os.getpid()}-{os.urandom(4).hex()}"
        self._serial = count()

    def write(self, name: str, data: bytes) -> Stamp:
        """Put ``data`` durably under ``name``; whoever reads sees the old content or the new.

        Returns:
            The stamp of the new content.

        Raises:
            EnvironmentFault: disk full, read-only, no permission. The old content is untouched.
        """
        with self._faults("write", name):
            try:
                return self._write(name, data)
            except FileNotFoundError:
                self.path.mkdir(mode=0o700, parents=True, exist_ok=True)
                return self._write(name, data)

    def _write(self, name: str, data: bytes) -> Stamp:
        temporary = f"{self._root}.{name}-{self._token}-{next(self._serial)}{_TEMPORARY}"
        descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        try:
            try:
                view = memoryview(data)
                while view:
                    view = view[os.write(descriptor, view) :]
                os.fsync(descriptor)
                stamp = _stamp(os.fstat(descriptor))
            finally:
                os.close(descriptor)
            os.rename(temporary, self._root + name)
        except OSError:
            # The failure itself is what must be told; what stays here is removed by the next sweep.
            with _ignored():
                os.unlink(temporary)
            raise
        return stamp

    def read(self, name: str) -> tuple[bytes, Stamp] | None:
        """Content and stamp, None when there is no such file. Raises EnvironmentFault."""
        with self._faults("read", name):
            try:
                # Without O_NONBLOCK a pipe of that name would hold the caller for ever.
                descriptor = os.open(self._root + name, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
            except FileNotFoundError:
                return None
            with open(descriptor, "rb", buffering=0) as file:
                status = os.fstat(file.fileno())
                if not stat.S_ISREG(status.st_mode):
                    raise OSError(errno.EINVAL, "not a regular file")
                return file.read(), _stamp(status)

    def stamp(self, name: str) -> Stamp | None:
        """The stamp of the present content, None when there is no such file. Raises EnvironmentFault."""
        with self._faults("look at", name):
            try:
                return _stamp(os.stat(self._root + name))
            except FileNotFoundError:
                return None

    def remove(self, name: str) -> bool:
        """Delete the file; False when there was none. Raises EnvironmentFault."""
        with self._faults("remove", name):
            try:
                os.unlink(self._root + name)
            except FileNotFoundError:
                return False
            except OSError:
                # A read-only file system refuses before it looks: a file that isn't there needs no removing.
                if os.path.lexists(self._root + name):
                    raise
                return False
        return True

    def move(self, name: str, folder: Path, new_name: str) -> Path:
        """Move the file to another directory of the same file system, without reading it. Raises EnvironmentFault."""
        with self._faults("move", name):
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            os.rename(self._root + name, folder / new_name)
        return folder / new_name

    def names(self) -> list[str]:
        """All regular names, sorted; none when the directory does not exist yet. Raises EnvironmentFault."""
        with self._faults("list", ""):
            try:
                found = os.listdir(self.path)
            except FileNotFoundError:
                return []
        return sorted(name for name in found if not name.startswith("."))

    def sweep(self, *, older_than: float) -> list[str]:
        """Delete what killed writers left: temporary files last changed before that time (seconds since 1970).

        Their age is the only sign, as another driver may share the directory during a rolling update.

        Raises:
            EnvironmentFault: the directory can't be listed, or a file can't be deleted.
        """
        with self._faults("list", ""):
            try:
                found = sorted(os.listdir(self.path))
            except FileNotFoundError:
                return []
        removed = []
        for name in found:
            if not (name.startswith(".") and name.endswith(_TEMPORARY)):
                continue
            with self._faults("remove", name):
                try:
                    if os.stat(self._root + name).st_mtime < older_than:
                        os.unlink(self._root + name)
                        removed.append(name)
                except FileNotFoundError:
                    continue
        return removed

    @contextmanager
    def _faults(self, verb: str, name: str) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            raise self._fault(verb, self._root + name, error) from error

    def _fault(self, verb: str, path: str, error: OSError) -> EnvironmentFault:
        match error.errno:
            case errno.ENOSPC | errno.EDQUOT:
                hint = f"free space or inodes on the file system of {self.path} (df -h, df -i)"
            case errno.EROFS:
                hint = f"mount the host directory of {self.path} read-write into the driver's Pod"
            case errno.EACCES | errno.EPERM:
                hint = f"let the driver's user write to {self.path}"
            case errno.ENOTDIR | errno.EEXIST:
                hint = f"{self.path} and its parents must be directories: remove the file in their place"
            case _:
                hint = f"check the file system of {self.path} (dmesg)"
        return EnvironmentFault(f"cannot {verb} claim record {path}: {error.strerror or error}", hint=hint)


def _stamp(status: os.stat_result) -> Stamp:
    return status.st_ino, status.st_mtime_ns, status.st_size


@contextmanager
def _ignored() -> Iterator[None]:
    try:
        yield
    except OSError:
        return
