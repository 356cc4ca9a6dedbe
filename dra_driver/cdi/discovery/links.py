"""Symbolic links that a container needs beside the mounted libraries.

Only files are mounted, under their full version; programs ask for ``libcuda.so.1`` or, wrongly but often,
``libcuda.so``. A hook makes the links in the container. Where no hook program exists, the same names are given by
mounting the library a second time.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from fnmatch import fnmatchcase

from dra_driver.cdi.discovery.elf import soname
from dra_driver.cdi.discovery.tree import Tree


@dataclass(frozen=True, slots=True)
class Link:
    """One symbolic link in the container.

    Attributes:
        path: the link, absolute.
        target: its text, relative to the link's directory.
        file: the mounted file that it leads to in the end, absolute.
    """

    path: str
    target: str
    file: str

    def __str__(self) -> str:
        """As the hook ``create-symlinks`` takes it."""
        return f"{self.target}::{self.path}"


def library_links(tree: Tree, files: Iterable[str], *, complete: bool = False) -> tuple[Link, ...]:
    """Links for mounted libraries, in the order of ``files``.

    SONAME and ``.so`` links are made when the driver root has them, too. ``complete`` makes all SONAME links: wanted
    when nothing runs ldconfig in the container, which would make them.
    """
    found: dict[Link, None] = {}
    for file in dict.fromkeys(files):
        for link in (*_expected_by_programs(file), *_as_installed(tree, file, complete=complete)):
            found[link] = None
    return tuple(found)


def _expected_by_programs(file: str) -> list[Link]:
    """Links that many programs open though the driver's own installation does not always have them."""
    directory, _, name = file.rpartition("/")
    if fnmatchcase(name, "libcuda.so.*.*"):
        return [Link(f"{directory}/libcuda.so", "libcuda.so.1", file)]
    if fnmatchcase(name, "libGLX_nvidia.so.*.*"):
        return [Link(f"{directory}/libGLX_indirect.so.0", name, file)]
    if fnmatchcase(name, "libnvidia-opticalflow.so.*.*"):
        return [Link(f"{directory}/libnvidia-opticalflow.so", "libnvidia-opticalflow.so.1", file)]
    return []


def _as_installed(tree: Tree, file: str, *, complete: bool) -> list[Link]:
    directory, _, name = file.rpartition("/")
    if not fnmatchcase(name, "*.*.*"):
        return []
    asked_for = soname(tree.here(file))
    if asked_for is None:  # no ELF file: nothing can be linked against it
        return []
    asked_for = asked_for or name
    links = []
    if asked_for != name and (complete or tree.is_link(f"{directory}/{asked_for}")):
        links.append(Link(f"{directory}/{asked_for}", name, file))
    bare = _bare(asked_for)
    if bare not in ("", asked_for) and tree.is_link(f"{directory}/{bare}"):
        links.append(Link(f"{directory}/{bare}", asked_for, file))
    return links


def _bare(name: str) -> str:
    """``libfoo.so`` of ``libfoo.so.1.2``; empty when there is no ``.so`` in the name."""
    stem, separator, _ = name.rpartition(".so.")
    if separator:
        return f"{stem}.so"
    return name if name.endswith(".so") else ""
