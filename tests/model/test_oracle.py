"""Quantities and versions against Kubernetes' own code."""

from __future__ import annotations

import struct

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from dra_driver.errors import InputError
from dra_driver.model.quantity import Quantity
from dra_driver.model.semver import Semver
from tests.model.oracle import Oracle

pytestmark = pytest.mark.integration

SUFFIXES = ["", "n", "u", "m", "k", "M", "G", "T", "P", "E", "Ki", "Mi", "Gi", "Ti", "Pi", "Ei"]
_digits = st.one_of(
    st.integers(0, 2000).map(str),
    st.integers(0, 1 << 64).map(str),
    st.integers(0, 10**40).map(str),
    st.sampled_from(["", "0", "00", "1000", "1024", "9223372036854775807", "9223372036854775808", "007", "1100000"]),
)
_exponent = st.one_of(
    st.sampled_from(SUFFIXES), st.integers(-40, 40).map(lambda n: f"e{n}"), st.sampled_from(["E3", "e+6", "E-9"])
)
_number = st.one_of(_digits, st.tuples(_digits, _digits).map(".".join))
well_formed = st.tuples(st.sampled_from(["", "", "", "-", "+"]), _number, _exponent).map("".join)
malformed = st.text(alphabet="0123456789+-.eEinumkKMGTP x", max_size=8)
quantity_texts = st.one_of(well_formed, malformed)

many = settings(
    max_examples=3000, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture], derandomize=True
)


def look(quantity: Quantity) -> dict[str, object]:
    whole = quantity.as_int64()
    return {
        "text": str(quantity),
        "format": quantity.format,
        "value": str(quantity.value()),
        "milli": str(quantity.milli_value()),
        "nano": str(quantity.scaled(-9)),
        "int64": "" if whole is None else str(whole),
        "float": f"{struct.unpack('<Q', struct.pack('<d', quantity.approximate_float()))[0]:x}",
        "sign": quantity.sign(),
    }


@many
@given(text=quantity_texts)
def test_reading_and_printing(oracle: Oracle, text: str) -> None:
    expected = oracle.ask("quantity", text)
    if "error" in expected:
        with pytest.raises(InputError) as refused:
            Quantity.parse(text)
        assert refused.value.message == expected["error"]
    else:
        assert look(Quantity.parse(text)) == expected["a"]


@many
@given(a=well_formed, b=well_formed)
def test_arithmetic(oracle: Oracle, a: str, b: str) -> None:
    expected = oracle.ask("quantity", a, b)
    if "error" in expected:
        with pytest.raises(InputError):
            (Quantity.parse(a), Quantity.parse(b))
        return
    left, right = Quantity.parse(a), Quantity.parse(b)
    assert look(left + right) == expected["sum"]
    assert look(left - right) == expected["diff"]
    assert left.compare(right) == expected["compare"]
    assert (left == right) == (expected["compare"] == 0)
    assert left != right or hash(left) == hash(right)


_core = st.one_of(st.integers(0, 30).map(str), st.sampled_from(["", "01", "18446744073709551616", "a", "-1", "٣"]))
_identifier = st.one_of(
    st.text(alphabet="01aZ-", max_size=4), st.sampled_from(["007", "alpha", "é", "18446744073709551615"])
)
_tail = st.lists(_identifier, max_size=3).map(".".join)
version_texts = st.one_of(
    st.tuples(
        st.sampled_from(["", "", "v", " "]),
        st.lists(_core, min_size=1, max_size=4).map(".".join),
        st.one_of(st.just(""), _tail.map("-{}".format)),
        st.one_of(st.just(""), _tail.map("+{}".format)),
    ).map("".join),
    st.text(alphabet=st.characters(max_codepoint=0x2FFF), max_size=6),  # which letters are printable changes above
)


@many
@given(a=version_texts, b=version_texts)
def test_versions(oracle: Oracle, a: str, b: str) -> None:
    for text in (a, b):
        expected = oracle.ask("semver", text)
        try:
            found, refusal = str(Semver.parse(text)), None
        except InputError as error:
            found, refusal = None, error.message
        assert (found, refusal) == (expected.get("version"), expected.get("error"))
        try:
            found, refusal = str(Semver.parse_tolerant(text)), None
        except InputError as error:
            found, refusal = None, error.message
        assert (found, refusal) == (expected.get("tolerant"), expected.get("tolerantError"))
    expected = oracle.ask("semver", a, b)
    if "error" not in expected:
        assert Semver.parse(a).compare(Semver.parse(b)) == expected["compare"]
