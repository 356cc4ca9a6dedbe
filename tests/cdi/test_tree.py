"""The driver root as a tree: links inside the root, host paths, and what changes are noticed."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from dra_driver.cdi.discovery.tree import Tree, Watch
from dra_driver.inventory.driver_root import DriverRoot

SECOND_NS = 1_000_000_000


def settled() -> Watch:
    """A watch for which everything on disk is old."""
    return Watch(lambda: time.time_ns() + SECOND_NS)


def tree(root: Path, watch: Watch | None = None, host: str = "/host") -> Tree:
    return Tree(DriverRoot(root, host_path=host, dev_root=root), watch or settled())


def put(path: Path) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("x")
    return path


def test_find_lists_files_sorted_and_skips_directories_and_dangling_links(tmp_path: Path) -> None:
    for name in ("b.so.1", "a.so.1", "c.txt"):
        put(tmp_path / "usr/lib" / name)
    (tmp_path / "usr/lib/d.so.1").mkdir()
    (tmp_path / "usr/lib/e.so.1").symlink_to("missing")
    (tmp_path / "usr/lib/f.so.1").symlink_to("a.so.1")
    assert tree(tmp_path).find("/usr/lib", "*.so.*") == ["/usr/lib/a.so.1", "/usr/lib/b.so.1", "/usr/lib/f.so.1"]
    assert tree(tmp_path).find("/usr", "lib/*.txt") == ["/usr/lib/c.txt"]
    assert tree(tmp_path).find("/", "usr/lib/c.txt") == ["/usr/lib/c.txt"]
    assert tree(tmp_path).find("/nowhere", "*") == []


def test_paths_keep_linked_directories(tmp_path: Path) -> None:
    put(tmp_path / "usr/lib/a")
    (tmp_path / "lib").symlink_to("usr/lib")
    assert tree(tmp_path).find("/lib", "a") == ["/lib/a"]
    assert tree(tmp_path).resolved("/lib/a") == "/usr/lib/a"
    # The runtime can follow this link itself.
    assert tree(tmp_path).host("/lib/a") == "/host/lib/a"


def test_absolute_links_stay_inside_the_root(tmp_path: Path) -> None:
    """Debian's alternatives; outside the root the same link means a file of our own container, or none."""
    root = tmp_path / "root"
    put(root / "usr/lib/nvidia/current/nvidia-smi").chmod(0o755)
    (root / "etc/alternatives").mkdir(parents=True)
    (root / "etc/alternatives/nvidia-smi").symlink_to("/usr/lib/nvidia/current/nvidia-smi")
    (root / "usr/bin").mkdir()
    (root / "usr/bin/nvidia-smi").symlink_to("/etc/alternatives/nvidia-smi")
    found = tree(root)
    assert found.find("/usr/bin", "nvidia-smi") == ["/usr/bin/nvidia-smi"]
    assert found.is_executable("/usr/bin/nvidia-smi")
    assert found.host("/usr/bin/nvidia-smi") == "/host/usr/lib/nvidia/current/nvidia-smi"


def test_host_root_slash(tmp_path: Path) -> None:
    put(tmp_path / "usr/lib/a")
    assert tree(tmp_path, host="/").host("/usr/lib/a") == "/usr/lib/a"


def remove(path: Path) -> None:
    path.unlink()


def replace(path: Path) -> None:
    put(path.with_suffix(".new")).rename(path)


def retarget(link: Path) -> None:
    link.unlink()
    link.symlink_to("other")


CHANGES: tuple[tuple[str, Callable[[Path], object]], ...] = (
    ("file appears", lambda root: put(root / "usr/lib/new.so")),
    ("file vanishes", lambda root: remove(root / "usr/lib/a.so")),
    ("file is replaced", lambda root: replace(root / "usr/lib/a.so")),
    ("directory appears", lambda root: (root / "opt/missing/deep").mkdir(parents=True)),
    ("linked directory leads elsewhere", lambda root: retarget(root / "current")),
    ("end of a dangling link appears", lambda root: put(root / "target")),
    ("file behind a link is replaced", lambda root: replace(root / "elsewhere/real.so")),
    ("file behind a link vanishes", lambda root: remove(root / "elsewhere/real.so")),
    ("cache file is written", lambda root: put(root / "etc/ld.so.cache")),
)


@pytest.mark.parametrize("change", [change for _, change in CHANGES], ids=[name for name, _ in CHANGES])
def test_changes_are_noticed(tmp_path: Path, change: Callable[[Path], object]) -> None:
    put(tmp_path / "usr/lib/a.so")
    (tmp_path / "usr/lib/dangling.so").symlink_to("../../target")
    put(tmp_path / "elsewhere/real.so")
    (tmp_path / "usr/lib/linked.so").symlink_to("../../elsewhere/real.so")
    (tmp_path / "current").symlink_to("usr")
    (tmp_path / "other").mkdir()
    (tmp_path / "etc").mkdir()
    watch = settled()
    searched = tree(tmp_path, watch)
    searched.find("/usr/lib", "*.so")
    searched.find("/opt/missing/deep", "*")
    searched.find("/current", "*")
    searched.read("/etc/ld.so.cache")
    assert watch.settled
    assert watch.unchanged()
    change(tmp_path)
    assert not watch.unchanged()


def test_changes_elsewhere_do_not_matter(tmp_path: Path) -> None:
    put(tmp_path / "usr/lib/a.so")
    watch = settled()
    tree(tmp_path, watch).find("/usr/lib", "*.so")
    put(tmp_path / "usr/share/x")
    assert watch.unchanged()


def test_a_directory_that_just_changed_is_not_settled(tmp_path: Path) -> None:
    """File times are coarse: a second change within the same tick could not be told."""
    put(tmp_path / "usr/lib/a.so")
    fresh = Watch(lambda: os.stat(tmp_path / "usr/lib").st_mtime_ns)
    tree(tmp_path, fresh).find("/usr/lib", "*")
    assert not fresh.settled
    old = Watch(lambda: os.stat(tmp_path / "usr/lib").st_mtime_ns + SECOND_NS)
    tree(tmp_path, old).find("/usr/lib", "*")
    assert old.settled


def test_a_directory_from_the_future_is_settled(tmp_path: Path) -> None:
    """Images carry odd times; a year ahead is no recent change."""
    put(tmp_path / "usr/lib/a.so")
    ahead = time.time_ns() + 365 * 86400 * SECOND_NS
    os.utime(tmp_path / "usr/lib", ns=(ahead, ahead))
    watch = Watch(time.time_ns)
    tree(tmp_path, watch).find("/usr/lib", "*")
    assert watch.settled


def test_names_that_no_spec_can_hold_are_left_out(tmp_path: Path) -> None:
    put(tmp_path / "usr/lib/a.so")
    with open(os.fsencode(tmp_path / "usr/lib") + b"/\xff.so", "wb"):
        pass
    assert tree(tmp_path).find("/usr/lib", "*.so") == ["/usr/lib/a.so"]
