"""The directory of spec files: whole files only, clear faults, nothing left behind."""

from __future__ import annotations

import errno
import os
import shutil
import stat
import subprocess
import sys
import threading
from pathlib import Path
from types import SimpleNamespace

import pytest

from dra_driver.cdi.files import SpecDirectory
from dra_driver.errors import EnvironmentFault, InternalError
from tests.cluster.availability import Unavailable, require_programs, require_root, skip_or_fail


@pytest.fixture
def directory(tmp_path: Path) -> SpecDirectory:
    result = SpecDirectory(tmp_path / "cdi")
    result.prepare()
    return result


@pytest.mark.parametrize("fsync", [False, True], ids=["tmpfs", "fsync"])
def test_write_read_remove(tmp_path: Path, fsync: bool) -> None:
    directory = SpecDirectory(tmp_path, fsync=fsync)
    assert directory.read("a.json") is None
    directory.write("a.json", b"one")
    directory.write("a.json", b"two")
    assert directory.read("a.json") == b"two"
    assert directory.names() == ["a.json"]
    assert os.listdir(tmp_path) == ["a.json"]
    assert directory.remove("a.json") is True
    assert directory.remove("a.json") is False
    assert os.listdir(tmp_path) == []


def test_mode_is_0644_whatever_the_umask(directory: SpecDirectory) -> None:
    before = os.umask(0o077)
    try:
        directory.write("a.json", b"{}")
    finally:
        os.umask(before)
    assert stat.S_IMODE((directory.path / "a.json").stat().st_mode) == 0o644


def test_names_are_those_a_runtime_loads(directory: SpecDirectory) -> None:
    for name in ("b.json", "a.yaml", "c.yml", "d.tmp", "e"):
        (directory.path / name).write_text("")
    assert directory.names() == ["a.yaml", "b.json"]
    assert directory.names("b") == ["b.json"]


def test_a_reader_sees_whole_files_only(directory: SpecDirectory) -> None:
    contents = {bytes([letter]) * 200_000 for letter in b"abc"}
    directory.write("a.json", min(contents))
    torn: list[int] = []
    done = threading.Event()

    def watch() -> None:
        while not done.is_set():
            found = (directory.path / "a.json").read_bytes()
            if found not in contents:
                torn.append(len(found))

    reader = threading.Thread(target=watch)
    reader.start()
    try:
        for _ in range(30):
            for content in sorted(contents):
                directory.write("a.json", content)
    finally:
        done.set()
        reader.join()
    assert torn == []


def test_temporary_file_is_not_loadable_and_lies_in_the_same_directory(
    directory: SpecDirectory, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[str] = []
    rename = os.rename

    def watched(source: str, target: str) -> None:
        seen.extend(os.listdir(directory.path))
        rename(source, target)

    monkeypatch.setattr(os, "rename", watched)
    directory.write("a.json", b"{}")
    assert len(seen) == 1
    assert not seen[0].endswith((".json", ".yaml"))


def test_writers_do_not_disturb_each_other(directory: SpecDirectory) -> None:
    other = SpecDirectory(directory.path)  # the other instance during a rolling update
    threads = [
        threading.Thread(target=lambda writer=writer, n=n: writer.write(f"{n}.json", b"x" * 1000))
        for n in range(20)
        for writer in (directory, other)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert directory.names() == sorted(f"{n}.json" for n in range(20))
    assert len(os.listdir(directory.path)) == 20


@pytest.mark.parametrize(
    ("number", "said", "hint"),
    [
        (errno.ENOSPC, "No space left on device", "free space or inodes"),
        (errno.EDQUOT, "quota", "free space or inodes"),
        (errno.EROFS, "Read-only file system", "read-write"),
        (errno.EACCES, "Permission denied", "let the driver's user write"),
        (errno.EIO, "error", "check the file system"),
    ],
    ids=["full", "quota", "read-only", "permission", "broken"],
)
def test_failed_write_names_file_and_next_step_and_keeps_the_old_file(
    directory: SpecDirectory, monkeypatch: pytest.MonkeyPatch, number: int, said: str, hint: str
) -> None:
    directory.write("a.json", b"old")

    def fails(descriptor: int, data: object) -> int:
        raise OSError(number, os.strerror(number))

    with monkeypatch.context() as patched:
        patched.setattr(os, "write", fails)
        with pytest.raises(EnvironmentFault) as caught:
            directory.write("a.json", b"new")
    assert f"cannot write CDI spec {directory.path}/a.json" in str(caught.value)
    assert said in str(caught.value)
    assert hint in (caught.value.hint or "")
    assert directory.read("a.json") == b"old"
    assert os.listdir(directory.path) == ["a.json"]


def test_missing_directory_is_told_and_can_be_made(tmp_path: Path) -> None:
    directory = SpecDirectory(tmp_path / "not" / "there")
    for call in (directory.names, directory.sweep):
        with pytest.raises(EnvironmentFault) as caught:
            call()
        assert str(tmp_path / "not" / "there") in caught.value.message
        assert "create" in (caught.value.hint or "")
    # Nothing there to read or remove is no fault.
    assert directory.read("a.json") is None
    assert directory.remove("a.json") is False
    directory.prepare()
    directory.write("a.json", b"")


def test_a_directory_that_was_removed_is_made_again(directory: SpecDirectory) -> None:
    directory.path.rmdir()
    directory.write("a.json", b"x")
    assert directory.read("a.json") == b"x"


def test_a_directory_that_was_deleted_under_its_mount_is_told(tmp_path: Path) -> None:
    (tmp_path / "cdi").mkdir()
    descriptor = os.open(tmp_path / "cdi", os.O_RDONLY | os.O_DIRECTORY)
    try:
        (tmp_path / "cdi").rmdir()
        # As a mount of it would, the descriptor still shows a directory in which nothing can be made.
        with pytest.raises(EnvironmentFault, match=r"deleted on the node .* restart the driver's Pod"):
            SpecDirectory(Path(f"/proc/self/fd/{descriptor}")).write("a.json", b"x")
    finally:
        os.close(descriptor)


@pytest.mark.parametrize("what", ["pipe", "device"])
def test_what_is_no_regular_file_is_refused_at_once_and_replaced(directory: SpecDirectory, what: str) -> None:
    path = directory.path / "a.json"
    if what == "pipe":
        os.mkfifo(path)
    else:
        path.symlink_to("/dev/zero")
    with pytest.raises(EnvironmentFault, match=r"a\.json: not a regular file \(remove "):
        directory.read("a.json")
    directory.write("a.json", b"x")
    assert directory.read("a.json") == b"x"


def test_a_file_in_the_directorys_place(tmp_path: Path) -> None:
    (tmp_path / "cdi").write_text("")
    with pytest.raises(EnvironmentFault, match="must be a directory"):
        SpecDirectory(tmp_path / "cdi").prepare()


@pytest.mark.parametrize(
    ("call", "answer", "said"),
    [
        ("access", False, "Permission denied (let the driver's user write to"),
        ("statvfs", SimpleNamespace(f_flag=os.ST_RDONLY), "Read-only file system (mount the host's"),
    ],
    ids=["no-permission", "read-only"],
)
def test_a_directory_that_can_not_be_written_to_is_told_at_the_start(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, call: str, answer: object, said: str
) -> None:
    directory = SpecDirectory(tmp_path / "cdi")
    directory.prepare()
    monkeypatch.setattr(os, call, lambda *_: answer)
    for told in (directory.prepare, directory.check):
        with pytest.raises(EnvironmentFault) as caught:
            told()
        assert f"cannot write CDI spec {tmp_path / 'cdi'}: {said}" in str(caught.value)


def test_a_directory_in_the_files_place(directory: SpecDirectory) -> None:
    (directory.path / "a.json").mkdir()
    calls = (
        lambda: directory.write("a.json", b""),
        lambda: directory.read("a.json"),
        lambda: directory.remove("a.json"),
    )
    for call in calls:
        with pytest.raises(EnvironmentFault, match=r"a\.json"):
            call()
    assert os.listdir(directory.path) == ["a.json"]


@pytest.mark.parametrize("name", ["a.tmp", "../a.json", "a", ".a.json", "b/a.json"])
def test_other_names_are_a_bug(directory: SpecDirectory, name: str) -> None:
    for call in (lambda: directory.write(name, b""), lambda: directory.read(name), lambda: directory.remove(name)):
        with pytest.raises(InternalError):
            call()


def test_stale_temporary_files_are_swept_and_fresh_ones_left(tmp_path: Path) -> None:
    directory = SpecDirectory(tmp_path, now=lambda: 1_000_000.0)
    ages = ((".dra-driver-old.tmp", 61), (".dra-driver-new.tmp", 5), ("foreign.tmp", 999), ("a.json", 999))
    for name, age in ages:
        (tmp_path / name).write_text("")
        os.utime(tmp_path / name, (1_000_000 - age, 1_000_000 - age))
    assert directory.prepare() == [".dra-driver-old.tmp"]
    assert sorted(os.listdir(tmp_path)) == [".dra-driver-new.tmp", "a.json", "foreign.tmp"]


def test_a_killed_writer_leaves_what_the_sweep_knows(directory: SpecDirectory, monkeypatch: pytest.MonkeyPatch) -> None:
    def killed(source: str, target: str) -> None:
        raise SystemExit

    with monkeypatch.context() as patched:
        patched.setattr(os, "rename", killed)
        # A real kill runs no clean-up either.
        patched.setattr(os, "unlink", lambda path: None)
        with pytest.raises(SystemExit):
            directory.write("a.json", b"{}")
    (left,) = os.listdir(directory.path)
    later = SpecDirectory(directory.path, now=lambda: os.stat(directory.path / left).st_mtime + 61)
    assert later.prepare() == [left]
    assert os.listdir(directory.path) == []


FULL_OR_READ_ONLY = """
import os, sys
from pathlib import Path
from dra_driver.cdi.files import SpecDirectory
from dra_driver.errors import EnvironmentFault

directory = SpecDirectory(Path(sys.argv[1]))
try:
    directory.write("new.json", b"x" * 100_000)
except EnvironmentFault as fault:
    print(fault)
print(sorted(os.listdir(sys.argv[1])), directory.read("old.json"))
"""


@pytest.mark.integration
@pytest.mark.parametrize(
    ("prepare", "said"),
    [
        ("mount -t tmpfs -o size=16k full {0} && echo old > {0}/old.json", "No space left on device (free space"),
        (
            "mount -t tmpfs ro {0} && echo old > {0}/old.json && mount -o remount,ro {0}",
            "Read-only file system (mount the host's",
        ),
    ],
    ids=["full", "read-only"],
)
def test_real_file_systems(tmp_path: Path, prepare: str, said: str) -> None:
    try:
        require_root()
        require_programs(["unshare", "mount"])
    except Unavailable as reason:
        skip_or_fail(reason)
    shell = prepare.format(tmp_path) + ' && exec "$@"'
    done = subprocess.run(
        [
            str(shutil.which("unshare")),
            "-m",
            "sh",
            "-c",
            shell,
            "sh",
            sys.executable,
            "-c",
            FULL_OR_READ_ONLY,
            tmp_path,
        ],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    fault, rest = done.stdout.splitlines()
    assert fault.startswith(f"cannot write CDI spec {tmp_path}/new.json: {said}")
    assert rest == "['old.json'] b'old\\n'"
