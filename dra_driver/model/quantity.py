"""Kubernetes quantities (``80Gi``, ``1500m``, ``12e6``) with the arithmetic of ``resource.Quantity``, bit for bit.

Kubernetes keeps a quantity either as a 64-bit integer with a decimal exponent or, when that does not fit, as an
arbitrary decimal. Which of the two it is shows: in ``isInteger()`` of CEL, in rounding and overflow of ``Value()``, in
the printed form. So the same two representations are kept here; equality, order and hash go by value alone.

Printed form, as the API server stores it: a text that needs no rewriting is kept as written (even ``+1`` or ``1.234``),
everything else becomes a mantissa without trailing zeros and the suffix of its own format; a binary quantity below 1024
or with a fraction is printed as a decimal one; a decimal power beyond ``E`` loses its suffix (upstream's bug, kept).
Source: k8s.io/apimachinery/pkg/api/resource (1.37); verified against it in tests/model/test_quantity_oracle.py.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import lru_cache
from typing import Final, Literal

from dra_driver.errors import InputError
from dra_driver.model.gotext import SPACES

Format = Literal["DecimalSI", "BinarySI", "DecimalExponent"]

FORMAT_WRONG: Final = "quantities must match the regular expression '^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$'"
NUMBER_WRONG: Final = "unable to parse numeric part of quantity"
SUFFIX_WRONG: Final = "unable to parse quantity's suffix"

MAX_INT64: Final = (1 << 63) - 1
_MIN_INT64: Final = -(1 << 63)
_NANO: Final = -9
_QUICK_POWERS: Final = frozenset({1, 2, 3, 6, 9})
# A number of more digits than this is refused rather than worked on; upstream would spend minutes on it.
_MAX_DIGITS: Final = 4000

_TEXT: Final = re.compile(r"([+-]?)0*([0-9]*)(?:\.([0-9]*))?([eEinumkKMGTP]*[-+]?[0-9]*)")
_POWER: Final = re.compile(r"[eE][+-]?[0-9]{1,4000}")
_DECIMAL: Final[dict[str, int]] = {
    "n": -9,
    "u": -6,
    "m": -3,
    "": 0,
    "k": 3,
    "M": 6,
    "G": 9,
    "T": 12,
    "P": 15,
    "E": 18,
}
_BINARY: Final[dict[str, int]] = {"Ki": 10, "Mi": 20, "Gi": 30, "Ti": 40, "Pi": 50, "Ei": 60}
_DECIMAL_SUFFIX: Final = {exponent: suffix for suffix, exponent in _DECIMAL.items()}
_BINARY_SUFFIX: Final = {0: "", **{exponent // 10: suffix for suffix, exponent in _BINARY.items()}}
_HINT: Final = 'write a number with an optional suffix, e.g. "80Gi", "500m" or "4"'


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Quantity:
    """An immutable amount ``unscaled * 10**exponent``; build one with ``parse``, ``of_bytes`` or ``of_int``.

    Attributes:
        unscaled, exponent: the exact value; a parsed one is never finer than nano (-9) unless it is zero.
        format: how it prints: DecimalSI, BinarySI or DecimalExponent.
        big: True when Kubernetes holds it as an arbitrary decimal instead of a 64-bit integer.
        text: the kept printed form, empty until needed.
    """

    unscaled: int
    exponent: int = 0
    format: Format = "DecimalSI"
    big: bool = False
    text: str = ""

    @staticmethod
    def parse(text: str) -> Quantity:
        """Read a quantity as Kubernetes does.

        Raises:
            InputError: ``message`` is Kubernetes' own text, the hint shows what was given.
        """
        return _parse(text)

    @staticmethod
    def from_json(value: object, *, path: str | None = None, source: str | None = None) -> Quantity:
        """Read a quantity out of decoded JSON or YAML: text (spaces around it are ignored) or a number."""
        try:
            if isinstance(value, str):
                return _parse(value.strip(SPACES))
            if isinstance(value, int | float) and not isinstance(value, bool):
                return _parse(_number_text(value))
            raise InputError(FORMAT_WRONG, hint=f"got {value!r}; {_HINT}")
        except InputError as error:
            if path is None and source is None:
                raise
            raise InputError(error.message, source=source, path=path, hint=error.hint) from None

    @staticmethod
    def of_bytes(count: int) -> Quantity:
        """An amount of bytes, printed with binary suffixes (``resource.NewQuantity(n, BinarySI)``)."""
        return Quantity(count, 0, "BinarySI", not _MIN_INT64 <= count <= MAX_INT64)

    @staticmethod
    def of_int(count: int) -> Quantity:
        """A plain number, printed with decimal suffixes (``resource.NewQuantity(n, DecimalSI)``)."""
        return Quantity(count, 0, "DecimalSI", not _MIN_INT64 <= count <= MAX_INT64)

    @staticmethod
    def of_milli(count: int) -> Quantity:
        """``count`` thousandths, printed with decimal suffixes (``resource.NewMilliQuantity``)."""
        return Quantity(count, -3, "DecimalSI", not _MIN_INT64 <= count <= MAX_INT64)

    def __str__(self) -> str:
        if not self.text:
            object.__setattr__(self, "text", self._print())  # a cache; the value does not change
        return self.text

    def __repr__(self) -> str:
        return f"Quantity({str(self)!r})"

    def __reduce__(self) -> tuple[type[Quantity], tuple[int, int, Format, bool, str]]:
        return Quantity, (self.unscaled, self.exponent, self.format, self.big, self.text)

    def __copy__(self) -> Quantity:
        return self

    def __deepcopy__(self, _memo: object) -> Quantity:
        return self

    def compare(self, other: Quantity) -> int:
        """-1, 0 or 1 by value, as ``Quantity.Cmp``."""
        if self.exponent == other.exponent:
            mine, theirs = self.unscaled, other.unscaled
        else:
            mine, theirs = _aligned(self, other)
        return (mine > theirs) - (mine < theirs)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Quantity):
            return NotImplemented
        return self.compare(other) == 0

    def __lt__(self, other: Quantity) -> bool:
        return self.compare(other) < 0

    def __le__(self, other: Quantity) -> bool:
        return self.compare(other) <= 0

    def __gt__(self, other: Quantity) -> bool:
        return self.compare(other) > 0

    def __ge__(self, other: Quantity) -> bool:
        return self.compare(other) >= 0

    def __hash__(self) -> int:
        return hash(_without_zeros(self.unscaled, self.exponent, 10))

    def __bool__(self) -> bool:
        return self.unscaled != 0

    def sign(self) -> int:
        """-1, 0 or 1."""
        return (self.unscaled > 0) - (self.unscaled < 0)

    def __neg__(self) -> Quantity:
        return Quantity(-self.unscaled, self.exponent, self.format, self.big)

    def promoted(self) -> Quantity:
        """The same value held as an arbitrary decimal, as Kubernetes holds it once it was compared with one."""
        return self if self.big else Quantity(self.unscaled, self.exponent, self.format, True, self.text)

    def __add__(self, other: Quantity) -> Quantity:
        """Sum in the format of the left side, or of the right side when the left is zero."""
        form = self.format if self.unscaled else other.format
        if not self.big and not other.big:
            if not other.unscaled:
                return Quantity(self.unscaled, self.exponent, form)
            if not self.unscaled:
                return Quantity(other.unscaled, other.exponent, form)
        mine, theirs = _aligned(self, other)
        total = mine + theirs
        # 64 bits have to hold the rescaled operands as well as the sum for the short representation to survive.
        short = not self.big and not other.big and _fits(mine) and _fits(theirs) and _fits(total)
        return Quantity(total, min(self.exponent, other.exponent), form, not short)

    def __sub__(self, other: Quantity) -> Quantity:
        """Difference, with the format rule of ``+``."""
        return self + -other

    def scaled(self, exponent: int) -> int:
        """The value in units of ``10**exponent`` as int64, with upstream's rounding and overflow.

        Rounds away from zero. An overflow gives what Kubernetes computes then: 0 or the lower 64 bits.
        """
        shift = self.exponent - exponent
        if not self.big:
            if shift < 0:
                return _away_from_zero(self.unscaled, -shift)
            if shift > 18:
                return 0
            result: int = self.unscaled * 10**shift
            if _fits(result):
                return result
            # Upstream's quick multiplications leave the lower 64 bits behind, its loop for other powers nothing.
            return _wrap(result) if shift in _QUICK_POWERS and self.unscaled != _MIN_INT64 else 0
        if shift >= 0:
            return _wrap(_wrap(self.unscaled) * (10**shift if shift <= 18 else _MIN_INT64))
        if self.unscaled < MAX_INT64 and -shift < 19:
            # Go's division truncates and one is added whenever something was cut off, also below zero.
            low = _wrap(self.unscaled)
            unit: int = 10**-shift
            whole, rest = divmod(abs(low), unit)
            return (whole if low >= 0 else -whole) + (1 if rest else 0)
        return _wrap(-(-self.unscaled // 10**-shift))

    def value(self) -> int:
        """Whole units as int64, rounded away from zero (``Quantity.Value``)."""
        return self.scaled(0)

    def milli_value(self) -> int:
        """Thousandths as int64, rounded away from zero (``Quantity.MilliValue``)."""
        return self.scaled(-3)

    def as_int64(self) -> int | None:
        """The value when Kubernetes sees it as an integer at once (``Quantity.AsInt64``), else None.

        ``1000m`` and values held as arbitrary decimals (such as ``1Pi``) answer None although they are whole.
        """
        if self.big or self.exponent < 0:
            return None
        if not self.unscaled:
            return 0
        result: int | None = self.unscaled * 10**self.exponent if self.exponent <= 18 else None
        return result if result is not None and _fits(result) else None

    def approximate_float(self) -> float:
        """The nearest float as ``Quantity.AsApproximateFloat64`` computes it; infinite beyond its range."""
        try:
            base = float(self.unscaled)
        except OverflowError:
            base = float("inf") if self.unscaled > 0 else float("-inf")
        return base * _float_power(self.exponent) if self.exponent else base

    def decimal(self) -> str:
        """Decimal digits with all places that are held, as Go prints the number behind it (``AsDec().String()``)."""
        digits = str(abs(self.unscaled))
        if self.exponent < 0:
            digits = digits.rjust(1 - self.exponent, "0")
            digits = f"{digits[: self.exponent]}.{digits[self.exponent :]}"
        else:
            digits += "0" * self.exponent
        return f"-{digits}" if self.unscaled < 0 else digits

    def is_whole(self) -> bool:
        """True when the value has no fraction."""
        return self.exponent >= 0 or self.unscaled % 10**-self.exponent == 0

    def _print(self) -> str:
        if not self.unscaled:
            return "0"
        if self.format == "BinarySI" and self.is_whole():
            # Everything that large is binary; the comparison avoids expanding a huge exponent.
            whole = self.unscaled * 10**self.exponent if self.exponent >= 0 else self.unscaled // 10**-self.exponent
            if abs(whole) >= 1024:
                mantissa, power = _without_zeros(whole, 0, 1024)
                return f"{mantissa}{_BINARY_SUFFIX.get(power, '')}"
        mantissa, exponent = _without_zeros(self.unscaled, self.exponent, 10)
        surplus = exponent % 3
        mantissa *= 10**surplus
        exponent -= surplus
        if self.format == "DecimalExponent":
            return f"{mantissa}e{exponent}" if exponent else str(mantissa)
        return f"{mantissa}{_DECIMAL_SUFFIX.get(exponent, '')}"


def _number_text(value: int | float) -> str:
    """A JSON number as it stood in the text, as far as that can be known after decoding."""
    if isinstance(value, float) and value.is_integer() and abs(value) < 1e18:
        return str(int(value))
    return repr(value)


def _refuse(message: str, text: str) -> InputError:
    shown = text if len(text) <= 64 else text[:61] + "..."
    return InputError(message, hint=f'got "{shown}"; {_HINT}')


@lru_cache(maxsize=8192)
def _parse(text: str) -> Quantity:
    if text == "0":
        return Quantity(0, 0, "DecimalSI", False, text)
    match = _TEXT.fullmatch(text) if text else None
    if match is None:
        raise _refuse(FORMAT_WRONG, text)
    sign, number, fraction, suffix = match.groups()
    number = number or "0"
    fraction = fraction or ""
    if len(number) + len(fraction) > _MAX_DIGITS:
        raise _refuse(f"{NUMBER_WRONG}: more than {_MAX_DIGITS} digits", text)
    negative = sign == "-"
    form, base, power = _suffix(suffix, text)

    if base == 10:
        room = 18 - len(number) - len(fraction)
        factor, exponent = 1, power
    elif fraction:
        room, factor, exponent = -1, 1, 0
    else:
        room = 15 - len(number) - power * 3 // 10 - 1
        factor, exponent = 1 << power, 0
    exponent -= len(fraction)
    if room >= 0 and exponent >= _NANO:
        digits = number + fraction
        value = int(digits)
        amount = value * factor
        decimal_kept = exponent % 3 == 0 and not digits.endswith("000") and digits[0] != "0"
        keep = decimal_kept if base == 10 else value & 7 != 0
        if _fits(amount):
            return Quantity(-amount if negative else amount, exponent, form, False, text if keep else "")

    if not any(character.isdigit() for character in match.group(0)[: match.start(4)]):
        raise _refuse(NUMBER_WRONG, text)
    return _parse_big(text, int(number + fraction), len(fraction), form, base, power, negative)


def _parse_big(text: str, digits: int, places: int, form: Format, base: int, power: int, negative: bool) -> Quantity:
    """The arbitrary-precision branch: round up to nano, cap binary values at 2**63-1."""
    exponent = -places
    if base == 10:
        exponent += power
        if abs(exponent) > _MAX_DIGITS and digits and exponent > 0:
            raise _refuse(f"{NUMBER_WRONG}: more than {_MAX_DIGITS} digits", text)
    else:
        digits <<= power
    if digits:
        if exponent >= _NANO:
            digits *= 10 ** (exponent - _NANO)
        else:
            # Whatever is cut off below one nano counts as one nano more: asking for something gets something.
            cut = _NANO - exponent
            digits = -(-digits // 10**cut) if cut <= 2 * _MAX_DIGITS else 1
        exponent = _NANO
    else:
        exponent = max(-_MAX_DIGITS, min(exponent, _MAX_DIGITS))
    if form == "BinarySI":
        if digits > MAX_INT64 * 10**9:
            digits, exponent = MAX_INT64, 0
        if 0 < digits < 10**9 and exponent == _NANO:
            form = "DecimalSI"
    return Quantity(-digits if negative else digits, exponent, form, True)


def _suffix(suffix: str, text: str) -> tuple[Format, int, int]:
    """Format, base and power of a suffix."""
    power = _DECIMAL.get(suffix)
    if power is not None:
        return "DecimalSI", 10, power
    power = _BINARY.get(suffix)
    if power is not None:
        return "BinarySI", 2, power
    if _POWER.fullmatch(suffix) and _fits(asked := int(suffix[1:])):
        return "DecimalExponent", 10, (asked + (1 << 31)) % (1 << 32) - (1 << 31)  # upstream cuts to 32 bits
    raise _refuse(SUFFIX_WRONG, text)


def _fits(value: int) -> bool:
    return _MIN_INT64 <= value <= MAX_INT64


def _wrap(value: int) -> int:
    """The lower 64 bits as a signed number, as Go's conversion gives them."""
    return (value - _MIN_INT64) % (1 << 64) + _MIN_INT64


def _away_from_zero(value: int, places: int) -> int:
    """``value / 10**places`` rounded away from zero."""
    if places > 2 * _MAX_DIGITS:
        return (value > 0) - (value < 0)
    whole: int = -(-abs(value) // 10**places)
    return whole if value >= 0 else -whole


def _aligned(left: Quantity, right: Quantity) -> tuple[int, int]:
    """Both values at the smaller exponent, or anything of the same order when they are too far apart to matter."""
    shift = left.exponent - right.exponent
    if abs(shift) <= 2 * _MAX_DIGITS:
        if shift >= 0:
            return left.unscaled * 10**shift, right.unscaled
        return left.unscaled, right.unscaled * 10**-shift
    if not left.unscaled or not right.unscaled:
        return left.unscaled, right.unscaled
    raise InputError(f"the quantities {left} and {right} are too far apart to be compared or added")


def _without_zeros(value: int, exponent: int, base: int) -> tuple[int, int]:
    """``value`` freed of factors ``base``, each counted into the exponent; zero has exponent 0."""
    if not value:
        return 0, 0
    while True:
        rest, surplus = divmod(value, base)
        if surplus:
            return value, exponent
        value = rest
        exponent += 1


def _float_power(exponent: int) -> float:
    """10**exponent as Go's math.Pow10 gives it (a product of two table entries)."""
    if 0 <= exponent <= 308:
        return float(f"1e{exponent // 32 * 32}") * float(f"1e{exponent % 32}")
    if -323 <= exponent < 0:
        return float(f"1e-{-exponent // 32 * 32}") / float(f"1e{-exponent % 32}")
    return 0.0 if exponent < 0 else float("inf")
