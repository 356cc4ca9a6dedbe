from __future__ import annotations

import copy
import pickle
from dataclasses import FrozenInstanceError

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dra_driver.errors import InputError
from dra_driver.model import quantity
from dra_driver.model.quantity import Quantity


@pytest.mark.parametrize(
    ("text", "printed", "value", "milli", "form"),
    [
        ("0", "0", 0, 0, "DecimalSI"),
        ("80Gi", "80Gi", 85899345920, 85899345920000, "BinarySI"),
        ("81920Mi", "80Gi", 85899345920, 85899345920000, "BinarySI"),
        ("1.5Gi", "1536Mi", 1610612736, 1610612736000, "BinarySI"),
        ("0.5Ki", "512", 512, 512000, "BinarySI"),
        ("0.0001Ki", "102400u", 1, 103, "DecimalSI"),
        ("1000", "1k", 1000, 1000000, "DecimalSI"),
        ("1.5", "1500m", 2, 1500, "DecimalSI"),
        ("-1.5", "-1500m", -2, -1500, "DecimalSI"),
        ("1.234", "1.234", 2, 1234, "DecimalSI"),
        ("+1", "+1", 1, 1000, "DecimalSI"),
        ("12e6", "12e6", 12000000, 12000000000, "DecimalExponent"),
        ("1E3", "1E3", 1000, 1000000, "DecimalExponent"),
        ("1E", "1E", 10**18, 0, "DecimalSI"),
        ("0.1n", "1n", 1, 1, "DecimalSI"),
        ("1e-20", "1e-9", 1, 1, "DecimalExponent"),
        ("16Ei", "9223372036854775807", (1 << 63) - 1, -1000, "BinarySI"),
        ("1000E", "1", 0, 0, "DecimalSI"),
        (".", "0", 0, 0, "DecimalSI"),
    ],
)
def test_reads_and_prints_as_kubernetes(text: str, printed: str, value: int, milli: int, form: str) -> None:
    found = Quantity.parse(text)
    assert (str(found), found.value(), found.milli_value(), found.format) == (printed, value, milli, form)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", quantity.FORMAT_WRONG),
        ("x", quantity.FORMAT_WRONG),
        ("1 Gi", quantity.FORMAT_WRONG),
        ("1Gi\n", quantity.FORMAT_WRONG),
        ("٣", quantity.FORMAT_WRONG),
        ("--1", quantity.SUFFIX_WRONG),
        ("1ki", quantity.SUFFIX_WRONG),
        ("1K", quantity.SUFFIX_WRONG),
        ("1e", quantity.SUFFIX_WRONG),
        ("1e99999999999999999999", quantity.SUFFIX_WRONG),
        ("Ei", quantity.NUMBER_WRONG),
        ("1" * 5000, quantity.NUMBER_WRONG + ": more than 4000 digits"),
    ],
)
def test_refuses_with_kubernetes_text(text: str, message: str) -> None:
    with pytest.raises(InputError) as refused:
        Quantity.parse(text)
    assert refused.value.message == message
    assert text[:20] in str(refused.value)


def test_order_equality_and_hash_go_by_value() -> None:
    assert Quantity.parse("1Gi") == Quantity.parse("1024Mi") == Quantity.of_bytes(1 << 30)
    assert len({Quantity.parse(text) for text in ("1", "1000m", "1e0", "0.001k")}) == 1
    assert Quantity.parse("1Pi") > Quantity.parse("1P") >= Quantity.parse("1000T")
    assert Quantity.parse("-1") < Quantity.parse("0") <= Quantity.parse("1n")
    assert Quantity.parse("1") != "1"


def test_sums_keep_the_left_format_unless_it_is_zero() -> None:
    assert str(Quantity.parse("1Gi") + Quantity.parse("1G")) == "2073741824"
    assert str(Quantity.parse("0") + Quantity.parse("3Ki")) == "3Ki"
    assert str(Quantity.parse("1Gi") - Quantity.parse("512Mi")) == "512Mi"
    assert str(Quantity.parse("0") - Quantity.parse("1Gi")) == "-1Gi"
    assert str(Quantity.parse("9E") + Quantity.parse("9E")) == "18E"


def test_bytes_print_with_binary_suffixes() -> None:
    assert str(Quantity.of_bytes(85899345920)) == "80Gi"
    assert str(Quantity.of_bytes(85520809984)) == "81559Mi"
    assert str(Quantity.of_bytes(1023)) == "1023"
    assert str(Quantity.of_int(2000)) == "2k"
    assert str(Quantity.of_milli(1500)) == "1500m"


def test_what_kubernetes_takes_for_an_integer() -> None:
    assert Quantity.parse("4").as_int64() == 4
    assert Quantity.parse("4k").as_int64() == 4000
    assert Quantity.parse("4000m").as_int64() is None
    assert Quantity.parse("1Pi").as_int64() is None
    assert Quantity.parse("10E").as_int64() is None


def test_a_quantity_is_a_value() -> None:
    original = Quantity.parse("80Gi")
    assert copy.deepcopy(original) is original
    restored = pickle.loads(pickle.dumps(original))
    assert (restored, str(restored), restored.format) == (original, "80Gi", "BinarySI")
    with pytest.raises(FrozenInstanceError):
        original.unscaled = 1  # type: ignore[misc]


@pytest.mark.parametrize(
    ("value", "printed"), [(" 1Gi ", "1Gi"), (4, "4"), (1.5, "1500m"), (2.0, "2"), (-3, "-3"), (1e30, "1e+30")]
)
def test_json_values(value: object, printed: str) -> None:
    assert str(Quantity.from_json(value)) == printed


@pytest.mark.parametrize("value", [True, None, [], {}, float("nan")])
def test_json_values_that_are_no_quantity(value: object) -> None:
    with pytest.raises(InputError) as refused:
        Quantity.from_json(value, path="spec.devices[0].capacity[memory].value")
    assert refused.value.path == "spec.devices[0].capacity[memory].value"


def test_a_huge_exponent_costs_nothing_until_used() -> None:
    huge = Quantity.parse("1e999999999")
    assert (str(huge), huge.value(), huge.as_int64()) == ("1e999999999", 0, None)
    with pytest.raises(InputError, match="too far apart"):
        huge.compare(Quantity.parse("1"))


amounts = st.builds(
    "{}{}{}".format,
    st.sampled_from(["", "-"]),
    st.decimals(0, 10**12, allow_nan=False, places=3),
    st.sampled_from(["", "m", "k", "Mi", "Gi", "Ti"]),
).map(Quantity.parse)


@given(a=amounts, b=amounts, c=amounts)
def test_arithmetic_laws(a: Quantity, b: Quantity, c: Quantity) -> None:
    assert a + b == b + a
    assert (a + b) + c == a + (b + c)
    assert (a + b) - b == a
    assert (a < b) == (a - b < Quantity.parse("0"))
    assert not (a < b and b < a)


@given(a=amounts)
def test_the_printed_form_is_stable(a: Quantity) -> None:
    again = Quantity.parse(str(a))
    assert again == a
    assert str(again) == str(a)
