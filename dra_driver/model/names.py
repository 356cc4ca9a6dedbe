"""Names in Kubernetes and what the API server says about bad ones.

Simple names have one form each: ``is_…`` answers yes or no, ``validate_…`` gives the API server's texts, none for a
good name. Names of DRA are put together from those (a driver name may be upper case, a pool name has several parts, an
attribute belongs to a domain); for them ``…_errors`` gives whole `FieldError` values, because the API server sorts
their faults into different types, and ``validate_…`` the texts of these.
Source: k8s.io/apimachinery/pkg/api/validate/content, pkg/apis/resource/validation (1.37).
"""

from __future__ import annotations

import re
from typing import Final

from dra_driver.model.field_error import FieldError, Named, byte_length, invalid, required, too_long

DRIVER_NAME_MAX_BYTES: Final = 63
POOL_NAME_MAX_BYTES: Final = 253
IDENTIFIER_MAX_BYTES: Final = 32
LABEL_MAX_BYTES: Final = 63
SUBDOMAIN_MAX_BYTES: Final = 253

_LABEL: Final = "[a-z0-9]([-a-z0-9]*[a-z0-9])?"
_SUBDOMAIN: Final = rf"{_LABEL}(\.{_LABEL})*"
_IDENTIFIER: Final = "[A-Za-z_][A-Za-z0-9_]*"
_LABEL_KEY: Final = "([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]"
_LABEL_VALUE: Final = f"({_LABEL_KEY})?"

_LABEL_RE: Final = re.compile(_LABEL)
_SUBDOMAIN_RE: Final = re.compile(_SUBDOMAIN)
_IDENTIFIER_RE: Final = re.compile(_IDENTIFIER)
_LABEL_KEY_RE: Final = re.compile(_LABEL_KEY)
_LABEL_VALUE_RE: Final = re.compile(_LABEL_VALUE)

_ENDS: Final = "and must start and end with an alphanumeric character"
_LABEL_KEY_TEXT: Final = f"must consist of alphanumeric characters, '-', '_' or '.', {_ENDS}"
_DOMAIN_HINT: Final = " with an optional DNS subdomain prefix and '/' (e.g. 'example.com/MyName')"


def _must_match(text: str, pattern: str, *examples: str) -> str:
    shown = " or ".join(f"'{example}', " for example in examples)
    return f"{text} (e.g. {shown}regex used for validation is '{pattern}')"


_LABEL_WRONG: Final = _must_match(
    f"a lowercase RFC 1123 label must consist of lower case alphanumeric characters or '-', {_ENDS}",
    _LABEL,
    "my-name",
    "123-abc",
)
_SUBDOMAIN_WRONG: Final = _must_match(
    f"a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', {_ENDS}",
    _SUBDOMAIN,
    "example.com",
)
_IDENTIFIER_WRONG: Final = _must_match(
    "a valid C identifier must start with alphabetic character or '_',"
    " followed by a string of alphanumeric characters or '_'",
    _IDENTIFIER,
    "my_name",
    "MY_NAME",
    "MyName",
)
_LABEL_KEY_WRONG: Final = _must_match(_LABEL_KEY_TEXT, _LABEL_KEY, "MyName", "my.name", "123-abc")
_LABEL_VALUE_WRONG: Final = _must_match(
    f"a valid label must be an empty string or consist of alphanumeric characters, '-', '_' or '.', {_ENDS}",
    _LABEL_VALUE,
    "MyValue",
    "my_value",
    "12345",
)


def _over(limit: int, unit: str) -> str:
    return f"must be no more than {limit} {unit}"


def _unit(minor: int) -> str:
    """How texts of rules for labels call a byte; those for DNS names keep saying "characters"."""
    return "characters" if minor < 35 else "bytes"


def is_dns1123_label(text: str) -> bool:
    """Names of devices, requests, counter sets, counters, namespaces."""
    return len(text) <= LABEL_MAX_BYTES and _LABEL_RE.fullmatch(text) is not None


def is_dns1123_subdomain(text: str) -> bool:
    """Names of most objects, nodes and device classes among them."""
    return len(text) <= SUBDOMAIN_MAX_BYTES and _SUBDOMAIN_RE.fullmatch(text) is not None


def is_c_identifier(text: str) -> bool:
    """The name part of an attribute or capacity, apart from its length."""
    return _IDENTIFIER_RE.fullmatch(text) is not None


def is_label_key(text: str) -> bool:
    """Keys of labels, annotations, taints; binding conditions."""
    return not validate_label_key(text)


def is_label_value(text: str) -> bool:
    """Values of labels and taints; may be empty."""
    return len(text) <= LABEL_MAX_BYTES and _LABEL_VALUE_RE.fullmatch(text) is not None


def is_driver_name(text: str) -> bool:
    return not driver_name_errors(text, "")


def is_pool_name(text: str) -> bool:
    return not pool_name_errors(text, "")


def is_qualified_name(text: str) -> bool:
    """Keys of attributes and capacities: ``memory`` or ``gpu.nvidia.com/memory``."""
    return not qualified_name_errors(text, "")


def is_fully_qualified_name(text: str) -> bool:
    """``domain/name``, as in matchAttribute."""
    return not fully_qualified_name_errors(text, "")


def validate_dns1123_label(text: str, *, unit: str = "characters") -> list[str]:
    """``unit`` is "bytes" where the rule is declared in the API's types."""
    found = [_over(LABEL_MAX_BYTES, unit)] if byte_length(text) > LABEL_MAX_BYTES else []
    if not _LABEL_RE.fullmatch(text):
        found.append("must not contain dots" if _SUBDOMAIN_RE.fullmatch(text) else _LABEL_WRONG)
    return found


def validate_dns1123_subdomain(text: str, *, unit: str = "characters") -> list[str]:
    """``unit`` is "bytes" where the rule is declared in the API's types."""
    found = [_over(SUBDOMAIN_MAX_BYTES, unit)] if byte_length(text) > SUBDOMAIN_MAX_BYTES else []
    if not _SUBDOMAIN_RE.fullmatch(text):
        found.append(_SUBDOMAIN_WRONG)
    return found


def validate_node_name(text: str) -> list[str]:
    return validate_dns1123_subdomain(text)


def validate_c_identifier(text: str) -> list[str]:
    return [] if _IDENTIFIER_RE.fullmatch(text) else [_IDENTIFIER_WRONG]


def validate_label_key(text: str, *, minor: int = 37) -> list[str]:
    """Texts of the given Kubernetes minor; 1.34 called a label key a qualified name."""
    parts = text.split("/")
    if len(parts) > 2:
        called = "a qualified name" if minor < 35 else "a valid label key"
        return [f"{called} {_LABEL_KEY_WRONG}{_DOMAIN_HINT}"]
    found = []
    if len(parts) == 2:
        if not parts[0]:
            found.append("prefix part must be non-empty")
        else:
            messages = validate_dns1123_subdomain(parts[0], unit=_unit(minor))
            found += [f"prefix part {message}" for message in messages]
    name = parts[-1]
    if not name:
        found.append("name part must be non-empty")
    elif byte_length(name) > LABEL_MAX_BYTES:
        found.append(f"name part {_over(LABEL_MAX_BYTES, _unit(minor))}")
    if not _LABEL_KEY_RE.fullmatch(name):
        found.append(f"name part {_LABEL_KEY_WRONG}")
    return found


def validate_label_value(text: str, *, minor: int = 37) -> list[str]:
    found = [_over(LABEL_MAX_BYTES, _unit(minor))] if byte_length(text) > LABEL_MAX_BYTES else []
    if not _LABEL_VALUE_RE.fullmatch(text):
        found.append(_LABEL_VALUE_WRONG)
    return found


def validate_driver_name(text: str) -> list[str]:
    return [error.detail or "must not be empty" for error in driver_name_errors(text, "")]


def validate_pool_name(text: str) -> list[str]:
    return [error.detail or "must not be empty" for error in pool_name_errors(text, "")]


def validate_qualified_name(text: str) -> list[str]:
    return [error.detail for error in qualified_name_errors(text, "")]


def validate_fully_qualified_name(text: str) -> list[str]:
    return [error.detail for error in fully_qualified_name_errors(text, "")]


def driver_name_errors(text: str, path: str, *, minor: int = 37) -> list[FieldError]:
    """Upper case is legal in a driver name, though the API server warns of it."""
    found = []
    if not text:
        found.append(required(path))
        if minor >= 37:
            return found
    if byte_length(text) > DRIVER_NAME_MAX_BYTES:
        found.append(too_long(path, DRIVER_NAME_MAX_BYTES))
    found += [invalid(path, text, message) for message in validate_dns1123_subdomain(text.lower())]
    return found


def pool_name_errors(text: str, path: str) -> list[FieldError]:
    if not text:
        return [required(path)]
    found = [too_long(path, POOL_NAME_MAX_BYTES)] if byte_length(text) > POOL_NAME_MAX_BYTES else []
    for part in text.split("/"):
        found += [invalid(path, part, message) for message in validate_dns1123_subdomain(part)]
    return found


def qualified_name_errors(text: str, path: str, *, minor: int = 37) -> list[FieldError]:
    """Errors of an attribute or capacity key; names with several slashes pass unchecked, as in the API server."""
    if not text and minor < 35:
        return [required(path, "name required")]
    parts = text.split("/")
    if len(parts) == 1:
        return _identifier_errors(parts[0], path)
    if len(parts) > 2:
        return []
    domain, name = parts
    found = []
    for part, empty in ((domain, "the domain must not be empty"), (name, "the name must not be empty")):
        if not part:
            found.append(required(path, empty) if minor < 35 else invalid(path, "", empty))
        elif part is domain:
            found += driver_name_errors(part, path, minor=minor)
        else:
            found += _identifier_errors(part, path)
    return found


def fully_qualified_name_errors(text: str, path: str) -> list[FieldError]:
    found = qualified_name_errors(text, path)
    if "/" not in text:
        found.append(
            invalid(path, Named(text), "a fully qualified name must be a domain and a name separated by a slash")
        )
    return found


def declared_fully_qualified_name_errors(text: str, path: str) -> list[FieldError]:
    """The same rule as newer fields of the API state it (``+k8s:format``), with other texts."""
    found = []
    parts = text.split("/")
    if len(parts) == 2:
        if not parts[0]:
            found.append(invalid(path, "", "prefix must not be empty"))
        else:
            if byte_length(parts[0]) > DRIVER_NAME_MAX_BYTES:
                found.append(too_long(path, DRIVER_NAME_MAX_BYTES))
            messages = validate_dns1123_subdomain(parts[0], unit="bytes")
            found += [invalid(path, parts[0], f"prefix: {message}") for message in messages]
        if not parts[1]:
            found.append(invalid(path, "", "name must not be empty"))
    if len(parts) == 1 or (len(parts) == 2 and parts[1]):
        found += _identifier_errors(parts[-1], path)
    if "/" not in text:
        found.append(invalid(path, text, "a fully qualified name must be a domain and a name separated by a slash"))
    return found


def _identifier_errors(text: str, path: str) -> list[FieldError]:
    found = [too_long(path, IDENTIFIER_MAX_BYTES)] if byte_length(text) > IDENTIFIER_MAX_BYTES else []
    return found + [invalid(path, text, message) for message in validate_c_identifier(text)]
