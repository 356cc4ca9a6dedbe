"""Rules of a ``v1.NodeSelector`` in raw JSON, as slices and allocation results have one.

Source: pkg/apis/core/validation ValidateNodeSelector (1.37).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from dra_driver.model.field_error import Named, forbidden, invalid, required
from dra_driver.model.names import validate_label_key, validate_label_value, validate_node_name
from dra_driver.model.validation.report import Report, items, text


def check_node_selector(report: Report, selector: Mapping[str, Any], path: str) -> None:
    """Report what is wrong with a selector."""
    terms = items(selector, "nodeSelectorTerms")
    if not terms:
        report.add(required(f"{path}.nodeSelectorTerms", "must have at least one node selector term"))
    for index, term in enumerate(terms):
        place = f"{path}.nodeSelectorTerms[{index}]"
        for position, requirement in enumerate(items(term or {}, "matchExpressions")):
            _expression(report, requirement or {}, f"{place}.matchExpressions[{position}]")
        for position, requirement in enumerate(items(term or {}, "matchFields")):
            _field(report, requirement or {}, f"{place}.matchFields[{position}]")


def terms_json(selector: Mapping[str, Any]) -> Any:
    """The terms as Go prints its internal type in a message."""
    terms = selector.get("nodeSelectorTerms")
    if terms is None:
        return None
    return [
        {
            "MatchExpressions": _requirements_json(term or {}, "matchExpressions"),
            "MatchFields": _requirements_json(term or {}, "matchFields"),
        }
        for term in terms
    ]


def _requirements_json(term: Mapping[str, Any], key: str) -> Any:
    requirements = term.get(key)
    if requirements is None:
        return None
    return [
        {
            "Key": text(requirement or {}, "key"),
            "Operator": text(requirement or {}, "operator"),
            "Values": None
            if (requirement or {}).get("values") is None
            else [value or "" for value in requirement["values"]],
        }
        for requirement in requirements
    ]


def _expression(report: Report, requirement: Mapping[str, Any], path: str) -> None:
    operator = text(requirement, "operator")
    values = [value or "" for value in items(requirement, "values")]
    place = f"{path}.values"
    if operator in {"In", "NotIn"}:
        if not values:
            report.add(required(place, "must be specified when `operator` is 'In' or 'NotIn'"))
    elif operator in {"Exists", "DoesNotExist"}:
        if values:
            report.add(forbidden(place, "may not be specified when `operator` is 'Exists' or 'DoesNotExist'"))
    elif operator in {"Gt", "Lt"}:
        if len(values) != 1:
            report.add(required(place, "must be specified single value when `operator` is 'Lt' or 'Gt'"))
    else:
        report.add(invalid(f"{path}.operator", Named(operator), "not a valid selector operator"))
    key = text(requirement, "key")
    report.add(*(invalid(f"{path}.key", key, message) for message in validate_label_key(key, minor=report.rules.minor)))
    for index, value in enumerate(values):
        report.add(
            *(
                invalid(f"{place}[{index}]", value, message)
                for message in validate_label_value(value, minor=report.rules.minor)
            )
        )


def _field(report: Report, requirement: Mapping[str, Any], path: str) -> None:
    operator = text(requirement, "operator")
    values = [value or "" for value in items(requirement, "values")]
    if operator not in {"In", "NotIn"}:
        report.add(invalid(f"{path}.operator", Named(operator), "not a valid selector operator"))
    elif len(values) != 1:
        detail = "must be only one value when `operator` is 'In' or 'NotIn' for node field selector"
        report.add(required(f"{path}.values", detail))
    key = text(requirement, "key")
    if key != "metadata.name":
        report.add(invalid(f"{path}.key", key, "not a valid field selector key"))
        return
    for index, value in enumerate(values):
        report.add(*(invalid(f"{path}.values[{index}]", value, message) for message in validate_node_name(value)))
