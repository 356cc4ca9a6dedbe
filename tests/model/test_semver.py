from __future__ import annotations

from itertools import pairwise

import pytest

from dra_driver.errors import InputError
from dra_driver.model.semver import Semver, is_api_version, matches_pattern, normalise_version

ASCENDING = [
    "0.0.4",
    "1.0.0-0",
    "1.0.0-9",
    "1.0.0-10",
    "1.0.0-alpha",
    "1.0.0-alpha.1",
    "1.0.0-alpha.beta",
    "1.0.0-beta.2",
    "1.0.0-beta.11",
    "1.0.0",
    "1.9.0",
    "1.10.0",
    "580.65.6",
]


def test_precedence() -> None:
    versions = [Semver.parse(text) for text in ASCENDING]
    assert sorted([*versions[5:], *versions[:5]]) == versions
    assert all(a.compare(b) == -1 and b.compare(a) == 1 for a, b in pairwise(versions))


def test_build_metadata_does_not_count() -> None:
    left, right = Semver.parse("1.0.0+a.1"), Semver.parse("1.0.0+b")
    assert left == right
    assert hash(left) == hash(right)
    assert (str(left), str(right)) == ("1.0.0+a.1", "1.0.0+b")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "Version string empty"),
        ("1.2", "No Major.Minor.Patch elements found"),
        ("01.2.3", 'Major number must not contain leading zeroes "01"'),
        ("1.x.3", 'Invalid character(s) found in minor number "x"'),
        ("1.2.", 'strconv.ParseUint: parsing "": invalid syntax'),
        ("1.2.3-", "Prerelease is empty"),
        ("1.2.3-01", 'Numeric PreRelease version must not contain leading zeroes "01"'),
        ("1.2.3+", "Build meta data is empty"),
        ("1.2.3+a_b", 'Invalid character(s) found in build meta data "a_b"'),
        ("18446744073709551616.0.0", 'strconv.ParseUint: parsing "18446744073709551616": value out of range'),
    ],
)
def test_strict_reading_refuses(text: str, message: str) -> None:
    with pytest.raises(InputError) as refused:
        Semver.parse(text)
    assert refused.value.message == message


@pytest.mark.parametrize(
    ("text", "version"), [("v1.2", "1.2.0"), (" 01.002.3 ", "1.2.3"), ("00", "0.0.0"), ("1.2.03-rc.1", "1.2.3-rc.1")]
)
def test_tolerant_reading(text: str, version: str) -> None:
    assert str(Semver.parse_tolerant(text)) == version


@pytest.mark.parametrize(
    ("text", "accepted"),
    [
        ("1.2.3", True),
        ("1.2.3-x.7.z.92+b", True),
        ("1.2.3-01", False),
        ("1.2.3\n", False),
        ("1.2", False),
        ("99999999999999999999.0.0", True),
        ("1.0.0-" + "a" * 58, True),
        ("1.0.0-" + "a" * 59, False),
    ],
)
def test_what_the_api_accepts(text: str, accepted: bool) -> None:
    assert is_api_version(text) is accepted
    assert matches_pattern(text) is accepted or len(text) > 64


@pytest.mark.parametrize(
    ("text", "version"),
    [
        ("580.65.06", "580.65.6"),
        ("535.104.05", "535.104.5"),
        ("550.54", "550.54.0"),
        ("13.0", "13.0.0"),
        ("9", "9.0.0"),
        ("007.000.1", "7.0.1"),
        ("1.2.3-rc.1+build", "1.2.3-rc.1+build"),
    ],
)
def test_normalise(text: str, version: str) -> None:
    assert normalise_version(text) == version


@pytest.mark.parametrize("text", ["", "96.00.9F.00.01", "1.2.3.4", "N/A", "1..2", "-1", "1.2.3-", "1" * 70])
def test_normalise_invents_nothing(text: str) -> None:
    with pytest.raises(InputError, match="not a version of up to three numbers"):
        normalise_version(text)
