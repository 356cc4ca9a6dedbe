"""The driver root as a file tree that remembers every place that was looked at.

A cached answer is worth what its check is worth, so the check is not written by hand beside the search: the search
itself records each directory it listed, each path it found missing, each device node and each file it read.
`Watch.unchanged` asks the kernel about exactly those places again, about a hundred cheap calls.

Paths given and returned are absolute paths inside the root, which are the paths in the container, unless the name says
otherwise: ``here`` is a path of this process, ``host`` one of the container runtime.
"""

from __future__ import annotations

import errno
import os
import stat
import time
from collections.abc import Callable, Hashable
from fnmatch import fnmatchcase
from pathlib import PurePosixPath
from typing import Final

from dra_driver.errors import EnvironmentFault
from dra_driver.inventory.driver_root import DriverRoot

Lstat = Callable[[str], os.stat_result]
"""``os.lstat`` or a stand-in for it."""

_Probe = Callable[[str], Hashable]

_UNSETTLED_NS: Final = 100_000_000
_AHEAD_NS: Final = 10_000_000_000


_NOT_THERE: Final = frozenset(
    (errno.ENOENT, errno.ENOTDIR, errno.ELOOP, errno.EACCES, errno.EPERM, errno.ENAMETOOLONG, errno.EISDIR)
)


def not_there(error: OSError, path: str) -> None:
    """Return when the error says that there is nothing for us; it may also say that the kernel could not look.

    Raises:
        EnvironmentFault: it could not, for example because this process has no file descriptor left. To take that for
            "not there" would give containers a driver with parts missing, and the next look would agree.
    """
    if error.errno not in _NOT_THERE:
        raise EnvironmentFault(
            f"cannot look at {path}: {error.strerror or error}",
            hint="the kubelet tries again; check limits and file system of the driver's Pod (ulimit -n, dmesg)",
        ) from error


class Watch:
    """What a search looked at. `unchanged` is True while all of it answers as it did then.

    Args:
        now_ns: wall clock in nanoseconds, as file times are.
    """

    def __init__(self, now_ns: Callable[[], int] = time.time_ns) -> None:
        self._expected: dict[tuple[_Probe, str], Hashable] = {}
        self._now_ns = now_ns
        self._started = now_ns()
        self.settled = True
        """False when something changed while it was searched or just before: file times are too coarse to tell
        whether it changed again since, so the answer must not be kept."""

    def add(self, probe: _Probe, path: str) -> Hashable:
        """Ask ``probe`` about ``path`` now, remember the answer and return it."""
        key = probe, path
        if key in self._expected:
            return self._expected[key]
        answer = self._expected[key] = probe(path)
        return answer

    def add_dated(self, probe: _Probe, path: str) -> None:
        """Remember the state of what exists (`file_state`, `link_state`), and whether it changed just now."""
        changed = self.add(probe, path)
        if isinstance(changed, tuple) and self._started - _UNSETTLED_NS <= changed[0] <= self._now_ns() + _AHEAD_NS:
            self.settled = False

    def unchanged(self) -> bool:
        """Whether everything looked at still answers the same; what can't be asked does not."""
        try:
            return all(probe(path) == answer for (probe, path), answer in self._expected.items())
        except EnvironmentFault:
            return False  # the search that follows tells why


def file_state(path: str) -> Hashable:
    """Modification time in ns, inode and device of what ``path`` leads to; None when there is nothing.

    Creating, renaming and deleting an entry changes a directory's modification time.
    """
    try:
        found = os.stat(path)
    except OSError:
        return None
    return found.st_mtime_ns, found.st_ino, found.st_dev


def link_state(path: str) -> Hashable:
    """As `file_state` for ``path`` itself, which may be a symbolic link."""
    try:
        found = os.lstat(path)
    except OSError:
        return None
    return found.st_mtime_ns, found.st_ino, found.st_dev


def is_there(path: str) -> Hashable:
    """Whether something exists at ``path``; cheaper than the error of a failed stat."""
    return os.access(path, os.F_OK)


def entries(path: str) -> tuple[str, ...]:
    """Sorted names in a directory; empty when there is none."""
    try:
        return tuple(sorted(os.listdir(path)))
    except OSError as error:
        not_there(error, path)
        return ()


def subdirectories(path: str) -> Hashable:
    """How many directories are in a directory of sysfs, by its link count; None when it is not there.

    Modification times tell nothing in sysfs, and to list a directory costs ten times as much.
    """
    try:
        return os.stat(path).st_nlink
    except OSError:
        return None


def link_target(path: str) -> Hashable:
    """The text of a symbolic link, None when ``path`` is none."""
    try:
        return os.readlink(path)
    except OSError:
        return None


def text(path: str) -> Hashable:
    """Content of a small file without white space around it, None when it can't be read."""
    try:
        with open(path, encoding="utf-8", errors="replace") as file:
            return file.read().strip()
    except OSError as error:
        not_there(error, path)
        return None


class Tree:
    """Searches one driver root and writes down in ``watch`` where it looked."""

    def __init__(self, root: DriverRoot, watch: Watch) -> None:
        self._root = root
        self._watch = watch
        self._prefix = "" if str(root.path) == "/" else str(root.path)
        self._host_prefix = "" if str(root.host_path) == "/" else str(root.host_path)
        self._real_prefix = os.path.realpath(root.path).rstrip("/")
        self._directories: dict[str, tuple[str, list[str]] | None] = {}
        self._known: dict[str, str | None] = {"": ""}

    def find(self, directory: str, pattern: str) -> list[str]:
        """Files (anything but directories) in ``directory`` whose name fits ``pattern`` (``*`` is a wildcard), sorted.

        A pattern with a slash is searched below ``directory``; only its last part may hold wildcards. Links are
        followed to see what they lead to, but the path returned is the one found.
        """
        head, _, name = pattern.rpartition("/")
        place = f"{directory.rstrip('/')}/{head}" if head else directory
        listing = self._listing(place)
        if listing is None:
            return []
        base = place.rstrip("/")
        return [
            f"{base}/{entry}"
            for entry in listing[1]
            if fnmatchcase(entry, name) and self._is_file(f"{base}/{entry}", listing[0])
        ]

    def resolved(self, path: str) -> str | None:
        """``path`` with all links followed inside the root; None when it leads nowhere. Empty is the root itself."""
        if path not in self._known:
            self._known[path] = self._resolve(path)
        return self._known[path]

    def _resolve(self, path: str) -> str | None:
        directory, _, name = path.rpartition("/")
        parent = self.resolved(directory)
        if parent is None or not name:
            return parent
        try:
            mode = os.lstat(f"{self._prefix}{parent}/{name}").st_mode
        except OSError:
            return None
        if not stat.S_ISLNK(mode):
            return f"{parent}/{name}"
        found = self._root.resolve(PurePosixPath(path))
        return None if found is None else str(found)[len(self._prefix) :].rstrip("/")

    def is_executable(self, path: str) -> bool:
        """Whether the file that ``path`` leads to has an execute permission for anybody."""
        found = self._stat(path)
        return found is not None and bool(found.st_mode & 0o111)

    def is_link(self, path: str) -> bool:
        """Whether ``path`` itself is a symbolic link."""
        return os.path.islink(self._prefix + path)

    def read(self, path: str) -> bytes | None:
        """Content of a file, None when it can't be read; its replacement is noticed."""
        found = self.resolved(path)
        if found is None:
            self._watch_missing(path)
            return None
        self._watch.add_dated(file_state, self._prefix + found)
        try:
            with open(self._prefix + found, "rb") as file:
                return file.read()
        except OSError as error:
            not_there(error, self._prefix + found)
            return None

    def here(self, path: str) -> str:
        """The file that ``path`` leads to, as this process opens it."""
        return self._prefix + (self.resolved(path) or path)

    def host(self, path: str) -> str:
        """``path`` as the container runtime on the host must be told.

        A link is left for the runtime to follow, except when it is followed differently outside the root: then the file
        itself is named.
        """
        if self._prefix:
            resolved = self.resolved(path)
            if resolved is not None and os.path.realpath(self._prefix + path) != self._real_prefix + resolved:
                return self._host_prefix + resolved
        return self._host_prefix + path

    def _stat(self, path: str) -> os.stat_result | None:
        try:
            return os.stat(self.here(path))
        except OSError:
            return None

    def _is_file(self, path: str, directory: str) -> bool:
        """Whether ``path``, listed in ``directory``, leads to anything but a directory.

        Where it leads out of the directory, which is watched, its end is watched, too.
        """
        resolved = self.resolved(path)
        if resolved is None:
            self._watch_missing(path)
            return False
        if resolved.rpartition("/")[0] != directory:
            self._watch.add_dated(file_state, self._prefix + resolved)
        found = self._stat(resolved)
        return found is not None and not stat.S_ISDIR(found.st_mode)

    def _listing(self, directory: str) -> tuple[str, list[str]] | None:
        """The directory with links followed, and its sorted names; None when there is none. Watched either way."""
        if directory in self._directories:
            return self._directories[directory]
        resolved = self.resolved(directory)
        listing: tuple[str, list[str]] | None = None
        if resolved is None:
            self._watch_missing(directory)
        else:
            # State before content: a change in between makes the next check fail rather than pass.
            self._watch.add_dated(file_state, self._prefix + (resolved or "/"))
            if resolved != directory:
                self._watch.add_dated(link_state, self._prefix + directory)
            try:
                listing = resolved, sorted(filter(_is_text, os.listdir(self._prefix + (resolved or "/"))))
            except OSError as error:
                not_there(error, self._prefix + directory)
        self._directories[directory] = listing
        return listing

    def _watch_missing(self, path: str) -> None:
        """Remember the first part of ``path`` that does not exist."""
        known = "/"
        for part in PurePosixPath(path).parts[1:]:
            following = self.resolved(f"{known.rstrip('/')}/{part}")
            if following is None:
                self._watch.add(is_there, f"{self._prefix}{known.rstrip('/')}/{part}")
                return
            known = following or "/"


def _is_text(name: str) -> bool:
    """Whether a file name is UTF-8; another can't be told in a spec, and one such name would spoil the whole file."""
    try:
        name.encode()
    except UnicodeEncodeError:
        return False
    return True
