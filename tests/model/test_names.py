from __future__ import annotations

import pytest

from dra_driver.model import names

LABEL_TEXT = (
    "a lowercase RFC 1123 label must consist of lower case alphanumeric characters or '-', and must start and end with"
    " an alphanumeric character (e.g. 'my-name',  or '123-abc', regex used for validation is"
    " '[a-z0-9]([-a-z0-9]*[a-z0-9])?')"
)
IDENTIFIER_TEXT = (
    "a valid C identifier must start with alphabetic character or '_', followed by a string of alphanumeric characters"
    " or '_' (e.g. 'my_name',  or 'MY_NAME',  or 'MyName', regex used for validation is '[A-Za-z_][A-Za-z0-9_]*')"
)


@pytest.mark.parametrize("text", ["a", "gpu-0", "0", "a" * 63])
def test_good_labels(text: str) -> None:
    assert names.is_dns1123_label(text)
    assert names.validate_dns1123_label(text) == []


@pytest.mark.parametrize(
    ("text", "messages"),
    [
        ("", [LABEL_TEXT]),
        ("A", [LABEL_TEXT]),
        ("a-", [LABEL_TEXT]),
        ("a\n", [LABEL_TEXT]),
        ("a.b", ["must not contain dots"]),
        ("a" * 64, ["must be no more than 63 characters"]),
        ("é" * 32, ["must be no more than 63 characters", LABEL_TEXT]),
    ],
)
def test_bad_labels(text: str, messages: list[str]) -> None:
    assert not names.is_dns1123_label(text)
    assert names.validate_dns1123_label(text) == messages


@pytest.mark.parametrize(
    ("text", "good"),
    [("node1.example.com", True), ("a" * 253, True), ("a" * 254, False), ("a..b", False), ("a_b", False), ("", False)],
)
def test_subdomains_and_node_names(text: str, good: bool) -> None:
    assert names.is_dns1123_subdomain(text) is good
    assert (names.validate_node_name(text) == []) is good


@pytest.mark.parametrize(
    ("text", "good"),
    [
        ("gpu.nvidia.com", True),
        ("GPU.nvidia.com", True),
        ("a" * 63, True),
        ("a" * 64, False),
        ("", False),
        ("a/b", False),
    ],
)
def test_driver_names(text: str, good: bool) -> None:
    assert names.is_driver_name(text) is good
    assert (names.validate_driver_name(text) == []) is good


def test_texts_of_driver_names() -> None:
    assert names.validate_driver_name("") == ["must not be empty"]
    assert names.validate_driver_name("a" * 64) == ["may not be more than 63 bytes"]


@pytest.mark.parametrize(
    ("text", "good"),
    [("node1", True), ("a/b.c/d", True), ("", False), ("a/", False), ("a//b", False), ("a/" * 126 + "aa", False)],
)
def test_pool_names(text: str, good: bool) -> None:
    assert names.is_pool_name(text) is good


@pytest.mark.parametrize(
    ("text", "messages"),
    [
        ("memory", []),
        ("_x9", []),
        ("gpu.nvidia.com/memory", []),
        ("a/b/c", []),
        ("", [IDENTIFIER_TEXT]),
        ("9a", [IDENTIFIER_TEXT]),
        ("a" * 33, ["may not be more than 32 bytes"]),
        ("/a", ["the domain must not be empty"]),
        ("a/", ["the name must not be empty"]),
    ],
)
def test_qualified_names(text: str, messages: list[str]) -> None:
    assert names.validate_qualified_name(text) == messages
    assert names.is_qualified_name(text) is (messages == [])


@pytest.mark.parametrize(("text", "good"), [("a.b/c", True), ("c", False), ("", False), ("/c", False)])
def test_fully_qualified_names(text: str, good: bool) -> None:
    assert names.is_fully_qualified_name(text) is good
    assert (names.validate_fully_qualified_name(text) == []) is good


@pytest.mark.parametrize(
    ("text", "good"),
    [("a", True), ("example.com/A_b.c", True), ("", False), ("/a", False), ("a/", False), ("a/b/c", False)],
)
def test_label_keys(text: str, good: bool) -> None:
    assert names.is_label_key(text) is good


def test_label_texts_of_1_34() -> None:
    assert names.validate_label_key("a/b/c", minor=34)[0].startswith("a qualified name must consist of")
    assert names.validate_label_key("a/b/c")[0].startswith("a valid label key must consist of")
    assert names.validate_label_value("a" * 64, minor=34) == ["must be no more than 63 characters"]
    assert names.validate_label_value("a" * 64) == ["must be no more than 63 bytes"]


@pytest.mark.parametrize(("text", "good"), [("", True), ("A_b.c", True), ("-a", False), ("a" * 64, False)])
def test_label_values(text: str, good: bool) -> None:
    assert names.is_label_value(text) is good
    assert (names.validate_label_value(text) == []) is good


def test_c_identifiers() -> None:
    assert names.is_c_identifier("aB_9")
    assert names.validate_c_identifier("a-b") == [IDENTIFIER_TEXT]
