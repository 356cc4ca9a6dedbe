"""Versions in device attributes: semver.org 2.0.0, read and ordered as Kubernetes does it.

Kubernetes judges a version twice. The API server accepts what its pattern matches within 64 bytes (`is_api_version`);
CEL and everything that compares parses it (`Semver.parse`), which in addition refuses numbers beyond 64 bits.
Hardware reports looser texts (driver ``580.65.06``, VBIOS ``96.00.9F.00.01``); `normalise_version` makes an attribute
value of one where that is possible without inventing anything.
Source: resource.k8s.io DeviceAttribute.version, github.com/blang/semver/v4, semver.org.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import total_ordering
from typing import Final

from dra_driver.errors import InputError
from dra_driver.model.gotext import SPACES, quote

MAX_VERSION_BYTES: Final = 64
_MAX_UINT64: Final = (1 << 64) - 1

_NUMBER: Final = r"(?:0|[1-9][0-9]*)"
_PRERELEASE: Final = r"(?:0|[1-9][0-9]*|[0-9]*[a-zA-Z-][0-9a-zA-Z-]*)"
_BUILD: Final = r"[0-9a-zA-Z-]+"
_API_PATTERN: Final = re.compile(
    rf"{_NUMBER}\.{_NUMBER}\.{_NUMBER}(?:-{_PRERELEASE}(?:\.{_PRERELEASE})*)?(?:\+{_BUILD}(?:\.{_BUILD})*)?"
)
_DIGITS: Final = re.compile(r"[0-9]*")
_IDENTIFIER: Final = re.compile(r"[0-9a-zA-Z-]*")
_HINT: Final = 'write MAJOR.MINOR.PATCH as semver.org asks, e.g. "580.65.6"'


def matches_pattern(text: str) -> bool:
    """True when the API server's pattern matches; the length is a rule of its own."""
    return _API_PATTERN.fullmatch(text) is not None


def is_api_version(text: str) -> bool:
    """True when the API server takes ``text`` as the ``version`` of an attribute."""
    return len(text.encode()) <= MAX_VERSION_BYTES and matches_pattern(text)


@total_ordering
@dataclass(frozen=True, slots=True, eq=False)
class Semver:
    """One version. Equality, order and hash ignore build metadata, as semver.org and Kubernetes do.

    Attributes:
        prerelease: identifiers, numeric ones as int.
        build: identifiers.
    """

    major: int
    minor: int
    patch: int
    prerelease: tuple[int | str, ...] = ()
    build: tuple[str, ...] = ()

    @staticmethod
    def parse(text: str) -> Semver:
        """Read a strict version.

        Raises:
            InputError: ``message`` is the text Kubernetes gives, as seen in CEL evaluation errors.
        """
        if not text:
            raise _refuse("Version string empty", text)
        parts = text.split(".", 2)
        if len(parts) != 3:
            raise _refuse("No Major.Minor.Patch elements found", text)
        major = _core_number("major", parts[0], text)
        minor = _core_number("minor", parts[1], text)
        rest, plus, build_text = parts[2].partition("+")
        rest, dash, prerelease_text = rest.partition("-")
        patch = _core_number("patch", rest, text)
        prerelease = tuple(_prerelease(part, text) for part in prerelease_text.split(".")) if dash else ()
        build = tuple(_build(part, text) for part in build_text.split(".")) if plus else ()
        return Semver(major, minor, patch, prerelease, build)

    @staticmethod
    def parse_tolerant(text: str) -> Semver:
        """Read as CEL's ``semver(text, true)``: spaces, a ``v``, leading zeros and missing parts are put right.

        Raises:
            InputError: with the text Kubernetes gives.
        """
        parts = text.strip(SPACES).removeprefix("v").split(".", 2)
        parts = [_without_leading_zeros(part) for part in parts]
        if len(parts) < 3:
            if "+" in parts[-1] or "-" in parts[-1]:
                raise _refuse("Short version cannot contain PreRelease/Build meta data", text)
            parts += ["0"] * (3 - len(parts))
        return Semver.parse(".".join(parts))

    def __str__(self) -> str:
        text = f"{self.major}.{self.minor}.{self.patch}"
        if self.prerelease:
            text += "-" + ".".join(str(part) for part in self.prerelease)
        if self.build:
            text += "+" + ".".join(self.build)
        return text

    def compare(self, other: Semver) -> int:
        """-1, 0 or 1 by precedence."""
        mine, theirs = self._precedence(), other._precedence()
        return (mine > theirs) - (mine < theirs)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Semver):
            return NotImplemented
        return self._precedence() == other._precedence()

    def __lt__(self, other: Semver) -> bool:
        return self._precedence() < other._precedence()

    def __hash__(self) -> int:
        return hash(self._precedence())

    def _precedence(self) -> tuple[object, ...]:
        # A release is above all its prereleases; numbers are below words; texts compare by bytes (all ASCII here).
        ranked = tuple((0, part, "") if isinstance(part, int) else (1, 0, part) for part in self.prerelease)
        return (self.major, self.minor, self.patch, not ranked, ranked)


def normalise_version(text: str) -> str:
    """A device attribute value for a version as hardware and drivers print it.

    ``580.65.06`` -> ``580.65.6``, ``13.0`` -> ``13.0.0``, ``9`` -> ``9.0.0``: leading zeros are cut, missing parts
    are 0.

    Raises:
        InputError: the text would still not be a valid ``version`` (four parts, letters in the numbers).
    """
    stripped = text.strip(SPACES)
    tail = re.search(r"[-+]", stripped)
    core = stripped if tail is None else stripped[: tail.start()]
    parts = core.split(".")
    if len(parts) <= 3 and all(part and _DIGITS.fullmatch(part) for part in parts):
        parts += ["0"] * (3 - len(parts))
        version = ".".join(part.lstrip("0") or "0" for part in parts) + stripped[len(core) :]
        if is_api_version(version):
            return version
    raise _refuse("not a version of up to three numbers, which is all that a version attribute can hold", text)


def _refuse(message: str, text: str) -> InputError:
    shown = text if len(text) <= MAX_VERSION_BYTES else text[: MAX_VERSION_BYTES - 3] + "..."
    return InputError(message, hint=f"got {quote(shown)}; {_HINT}")


def _uint64(digits: str, text: str) -> int:
    if not digits:
        raise _refuse('strconv.ParseUint: parsing "": invalid syntax', text)
    if len(digits) > 20 or int(digits) > _MAX_UINT64:
        raise _refuse(f"strconv.ParseUint: parsing {quote(digits)}: value out of range", text)
    return int(digits)


def _core_number(name: str, digits: str, text: str) -> int:
    if not _DIGITS.fullmatch(digits):
        raise _refuse(f"Invalid character(s) found in {name} number {quote(digits)}", text)
    if len(digits) > 1 and digits[0] == "0":
        raise _refuse(f"{name.capitalize()} number must not contain leading zeroes {quote(digits)}", text)
    return _uint64(digits, text)


def _prerelease(part: str, text: str) -> int | str:
    if not part:
        raise _refuse("Prerelease is empty", text)
    if _DIGITS.fullmatch(part):
        if len(part) > 1 and part[0] == "0":
            raise _refuse(f"Numeric PreRelease version must not contain leading zeroes {quote(part)}", text)
        return _uint64(part, text)
    if not _IDENTIFIER.fullmatch(part):
        raise _refuse(f"Invalid character(s) found in prerelease {quote(part)}", text)
    return part


def _build(part: str, text: str) -> str:
    if not part:
        raise _refuse("Build meta data is empty", text)
    if not _IDENTIFIER.fullmatch(part):
        raise _refuse(f"Invalid character(s) found in build meta data {quote(part)}", text)
    return part


def _without_leading_zeros(part: str) -> str:
    if len(part.encode()) < 2:
        return part
    cut = part.lstrip("0")
    return cut if cut and cut[0] in "0123456789" else "0" + cut
