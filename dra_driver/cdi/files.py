"""The directory of spec files that container runtimes watch, and the only code that writes there.

- A file appears whole or not at all: it is written under another name in the same directory and renamed. Runtimes
  react to renames (fsnotify) and load only ``*.json`` and ``*.yaml``, so the temporary name ends in ``.tmp``.
- Mode 0644 whatever the umask: the runtime may be another user.
- fsync is an option. /var/run/cdi is a tmpfs: what lies there does not survive a reboot, and every file can be rendered
  again from the claim. A directory on a disk should ask for it.
- What a killed process left under a temporary name is removed at the next start, or by whoever calls
  `SpecDirectory.sweep`. Only its age tells: process ids repeat between containers, and during a rolling update two
  drivers share the directory.
"""

from __future__ import annotations

import errno
import os
import stat
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import count
from pathlib import Path
from typing import Final

from dra_driver.errors import EnvironmentFault, InternalError

_TEMPORARY_PREFIX: Final = ".dra-driver-"
_TEMPORARY_SUFFIX: Final = ".tmp"
_STALE_SECONDS: Final = 60.0
"""No write takes as long; an older temporary file has no writer any more."""


class SpecDirectory:
    """One CDI directory, usually /var/run/cdi. Methods block; they may be called from several threads at once.

    Args:
        path: the directory; `prepare` makes it.
        fsync: flush file and directory to disk on every write.
        now: wall clock, in seconds since 1970.
    """

    def __init__(self, path: Path, *, fsync: bool = False, now: Callable[[], float] = time.time) -> None:
        self.path = path
        self._fsync = fsync
        self._now = now
        self._root = f"{path}/"
        self._token = os.urandom(6).hex()
        self._serial = count()

    def prepare(self) -> list[str]:
        """Make the directory when it is missing and remove stale temporary files; returns the names removed.

        Raises:
            EnvironmentFault: it can't be made or written to, or is not a directory.
        """
        with self._faults("create", self.path):
            self.path.mkdir(mode=0o755, parents=True, exist_ok=True)
        self.check()
        return self.sweep()

    def check(self) -> None:
        """Ask the kernel whether a file could be written; cheap, changes nothing. A missing directory is no fault,
        since it would be made.

        Raises:
            EnvironmentFault: not a directory, no permission, or a read-only file system.
        """
        with self._faults("write", self.path):
            try:
                mode = os.stat(self.path).st_mode
            except FileNotFoundError:
                return
            if not stat.S_ISDIR(mode):
                raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR))
            if os.statvfs(self.path).f_flag & os.ST_RDONLY:
                raise OSError(errno.EROFS, os.strerror(errno.EROFS))
            if not os.access(self.path, os.W_OK | os.X_OK):
                raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))

    def write(self, name: str, data: bytes) -> None:
        """Put ``data`` under ``name``, replacing what was there; a reader sees the old content or the new, never a
        part. A directory that was removed meanwhile is made again.

        Raises:
            EnvironmentFault: read-only or full file system, no permission, or a directory that can't be made again
                because it was deleted under its mount. The old file is untouched.
        """
        target = self._root + _checked(name)
        temporary = f"{self._root}{_TEMPORARY_PREFIX}{self._token}-{next(self._serial)}{_TEMPORARY_SUFFIX}"
        with self._faults("write", target):
            try:
                try:
                    self._write_temporary(temporary, data)
                except FileNotFoundError:
                    self.path.mkdir(mode=0o755, parents=True, exist_ok=True)
                    self._write_temporary(temporary, data)
                os.rename(temporary, target)
            except BaseException:
                _remove_quietly(temporary)
                raise
            if self._fsync:
                self._sync_directory()

    def _write_temporary(self, temporary: str, data: bytes) -> None:
        descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o644)
        try:
            view = memoryview(data)
            while view:
                view = view[os.write(descriptor, view) :]
            os.fchmod(descriptor, 0o644)
            if self._fsync:
                os.fsync(descriptor)
        finally:
            os.close(descriptor)

    def _sync_directory(self) -> None:
        descriptor = os.open(self.path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)

    def read(self, name: str) -> bytes | None:
        """The content of ``name``; None when there is no such file.

        Raises:
            EnvironmentFault: it is there and can't be read.
        """
        target = self._root + _checked(name)
        with self._faults("read", target):
            try:
                # Without O_NONBLOCK a pipe of that name would hold the caller, the event loop among them, for ever.
                descriptor = os.open(target, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
            except FileNotFoundError:
                return None
            try:
                if not stat.S_ISREG(os.fstat(descriptor).st_mode):
                    raise OSError(errno.EINVAL, "not a regular file")
                chunks = []
                while chunk := os.read(descriptor, 1 << 20):
                    chunks.append(chunk)
            finally:
                os.close(descriptor)
        return b"".join(chunks)

    def remove(self, name: str) -> bool:
        """Delete ``name``; False when there was no such file.

        Raises:
            EnvironmentFault: it is there and can't be deleted.
        """
        target = self._root + _checked(name)
        with self._faults("remove", target):
            try:
                os.unlink(target)
            except (FileNotFoundError, NotADirectoryError):  # a file in the directory's place holds no specs
                return False
            if self._fsync:
                self._sync_directory()
        return True

    def names(self, prefix: str = "") -> list[str]:
        """Names of the spec files (``*.json``, ``*.yaml``) that begin with ``prefix``, sorted.

        Raises:
            EnvironmentFault: the directory is missing or can't be read.
        """
        with self._faults("list", self.path):
            found = os.listdir(self.path)
        return sorted(name for name in found if name.startswith(prefix) and name.endswith((".json", ".yaml")))

    def sweep(self) -> list[str]:
        """Remove temporary files that are too old to have a writer; returns their names.

        Raises:
            EnvironmentFault: the directory can't be read, or a stale file can't be deleted.
        """
        with self._faults("list", self.path):
            found = os.listdir(self.path)
        removed = []
        for name in sorted(found):
            if name.startswith(_TEMPORARY_PREFIX) and name.endswith(_TEMPORARY_SUFFIX):
                with self._faults("remove", self._root + name):
                    try:
                        if self._now() - os.stat(self._root + name).st_mtime > _STALE_SECONDS:
                            os.unlink(self._root + name)
                            removed.append(name)
                    except FileNotFoundError:
                        continue
        return removed

    @contextmanager
    def _faults(self, verb: str, path: str | Path) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            raise self._fault(verb, str(path), error) from error

    def _fault(self, verb: str, path: str, error: OSError) -> EnvironmentFault:
        """What went wrong with which file, and what an operator does about it."""
        what = f"cannot {verb} CDI spec {path}: {error.strerror or error}"
        match error.errno:
            case errno.ENOSPC | errno.EDQUOT:
                hint = f"free space or inodes on the file system of {self.path} (df -h, df -i)"
            case errno.EROFS:
                hint = f"mount the host's {self.path} read-write into the driver's Pod, or choose another CDI directory"
            case errno.ENOENT if self.path.is_dir():
                hint = f"{self.path} was deleted on the node while it is mounted here: restart the driver's Pod"
            case errno.ENOENT:
                hint = f"create {self.path} on the node, or mount the host's directory there; runtimes watch it"
            case errno.EISDIR | errno.EINVAL:
                hint = f"remove {path}: a regular file belongs there"
            case errno.EACCES | errno.EPERM:
                hint = f"let the driver's user write to {self.path}"
            case errno.ENOTDIR | errno.EEXIST:
                hint = f"{self.path} must be a directory: remove the file in its place"
            case errno.ENAMETOOLONG:
                hint = "a file name may have 255 bytes"
            case _:
                hint = f"check the file system of {self.path} (dmesg)"
        return EnvironmentFault(what, hint=hint)


def _checked(name: str) -> str:
    if not name.endswith((".json", ".yaml")) or "/" in name or name.startswith("."):
        raise InternalError(f"{name!r} is not a name for a CDI spec file")
    return name


def _remove_quietly(path: str) -> None:
    """Remove what a failed write left; the failure itself is what must be told, not a second one."""
    try:
        os.unlink(path)
    except OSError:
        return
