"""Rules of a device's capacity: keys and the request policies of devices that can be allocated several times.

All arithmetic is that of Kubernetes' quantities, with its rounding: without the gate DRAFractionalCapacityRange values
are compared as integers rounded up, with it in thousandths as soon as one of them has a fraction.
Source: resource.k8s.io CapacityRequestPolicy; validateRequestPolicy (1.37).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from dra_driver.model.field_error import forbidden, invalid, required
from dra_driver.model.names import qualified_name_errors
from dra_driver.model.quantity import MAX_INT64, Quantity
from dra_driver.model.validation.attributes import KEY_MAX_BYTES
from dra_driver.model.validation.report import Report, by_key, items, no_duplicates, shortened, within

_VALID_VALUES_MAX: Final = 10
_ZERO: Final = Quantity.parse("0")
_LARGEST: Final = Quantity.of_int(MAX_INT64)


def quantity(raw: Mapping[str, Any], key: str) -> Quantity | None:
    """A quantity member; absent is None."""
    return None if raw.get(key) is None else Quantity.from_json(raw[key])


def check_capacity(report: Report, capacity: Mapping[str, Any], path: str, *, shareable: bool) -> None:
    """Report what is wrong with the capacities of one device.

    Args:
        shareable: the device allows multiple allocations.
    """
    for key, entry in by_key(capacity):
        place = f"{path}[{shortened(key, KEY_MAX_BYTES)}]"
        minor = report.rules.minor
        report.add(*qualified_name_errors(key, path if minor >= 36 else place, minor=minor))
        policy = entry.get("requestPolicy")
        if policy is None:
            continue
        if shareable:
            _policy(report, quantity(entry, "value") or _ZERO, policy, f"{place}.requestPolicy")
        else:
            report.add(forbidden(f"{place}.requestPolicy", "allowMultipleAllocations must be true"))


def _policy(report: Report, capacity: Quantity, policy: Mapping[str, Any], path: str) -> None:
    values = [_ZERO if value is None else Quantity.from_json(value) for value in items(policy, "validValues")]
    span = policy.get("validRange")
    default = quantity(policy, "default")
    if values and span is not None:
        detail = 'exactly one policy can be specified, cannot specify "validValues" and "validRange" at the same time'
        report.add(forbidden(path, detail))
    elif values:
        if default is None:
            report.add(required(f"{path}.default", "required when validValues is defined"))
        else:
            _values(report, capacity, default, values, f"{path}.validValues")
    elif span is not None:
        if default is None:
            report.add(required(f"{path}.default", "required when validRange is defined"))
        else:
            _range(report, capacity, default, span, f"{path}.validRange")


def _values(report: Report, capacity: Quantity, default: Quantity, values: list[Quantity], path: str) -> None:
    for index in range(1, len(values)):
        if values[index - 1] > values[index]:
            report.add(invalid(f"{path}[{index}]", str(values[index]), "values must be sorted in ascending order"))
    found = False
    if within(report, values, _VALID_VALUES_MAX, path):
        for index, value in enumerate(values):
            if value > capacity:
                report.add(invalid(f"{path}[{index}]", str(value), f"option is larger than capacity value: {capacity}"))
        # Looking at the order has changed how upstream holds a value whose successor is an arbitrary decimal.
        pairs = zip(values, [*values[1:], values[-1]], strict=True)
        held = [value.promoted() if following.big else value for value, following in pairs]
        fractional = report.rules.on("DRAFractionalCapacityRange")
        no_duplicates(report, (_key(value, fractional) for value in held), path)
        found = default in values
    if not found:
        report.add(invalid(path, str(default), "default value is not valid according to the requestPolicy"))


def _key(value: Quantity, fractional: bool) -> str:
    return value.decimal() if fractional else str(value.value())


def _range(report: Report, capacity: Quantity, default: Quantity, span: Mapping[str, Any], path: str) -> None:
    low, high, step = quantity(span, "min"), quantity(span, "max"), quantity(span, "step")
    minor = report.rules.minor
    if low is None:
        report.add(required(f"{path}.min", "required when validRange is defined"))
        return
    if low > capacity:
        report.add(invalid(f"{path}.min", str(low), f"min is larger than capacity value: {capacity}"))
    if default < low:
        place = "default" if minor >= 37 else "min"
        report.add(invalid(f"{path}.{place}", str(default), f"default is less than min: {low}"))
    if high is not None:
        if low > high:
            report.add(invalid(f"{path}.max", str(low), f"min is larger than max: {high}"))
        if high > capacity:
            report.add(invalid(f"{path}.max", str(high), f"max is larger than capacity value: {capacity}"))
        if default > high:
            place = "default" if minor >= 37 else "max"
            report.add(invalid(f"{path}.{place}", str(default), f"default is more than max: {high}"))

    members = [("default", default), ("min", low), ("max", high), ("step", step)]
    present = [(name, value) for name, value in members if value is not None]
    milli = report.rules.on("DRAFractionalCapacityRange") and not all(value.is_whole() for _, value in present)
    if milli:
        inexact = [(name, value) for name, value in present if Quantity.of_milli(value.milli_value()) != value]
        for name, value in inexact:
            report.add(invalid(f"{path}.{name}", str(value), "value cannot be represented as a milli value"))
        if inexact:
            return
    if step is None:
        return
    if step.sign() <= 0:
        report.add(invalid(f"{path}.step", str(step), "must be greater than zero"))
        return
    if low + step > capacity:
        detail = f"one step {low + step} is larger than capacity value: {capacity}"
        report.add(invalid(f"{path}.step", str(step), detail))
    if minor >= 37 and not milli and not _in_int64(report, present, path):
        return
    for bound in (default, high):
        if bound is not None and not _on_step(bound, low, step, milli):
            detail = f"value is not a multiple of a given step ({step}) from ({low})"
            report.add(invalid(f"{path}.step", str(bound), detail))


def _in_int64(report: Report, members: list[tuple[str, Quantity]], path: str) -> bool:
    fit = True
    for name, value in members:
        if value.sign() < 0:
            report.add(invalid(f"{path}.{name}", str(value), "must be greater than or equal to 0"))
        elif value > _LARGEST:
            report.add(invalid(f"{path}.{name}", str(value), f"must not be larger than {MAX_INT64}"))
        else:
            continue
        fit = False
    return fit


def _on_step(value: Quantity, low: Quantity, step: Quantity, milli: bool) -> bool:
    if milli:
        return (value.milli_value() - low.milli_value()) % step.milli_value() == 0
    # A step that overflows to zero crashes servers before 1.37; there is nothing right to answer then.
    whole = step.value()
    return whole != 0 and (value.value() - low.value()) % whole == 0
