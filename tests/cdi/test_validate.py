"""Every rule of the specification, by a corpus that also goes through the Go library (test_reference_library)."""

from __future__ import annotations

import json

import pytest
from hypothesis import given, settings

from dra_driver.cdi.spec import Spec, as_json
from dra_driver.cdi.validate import parse, validate
from dra_driver.errors import InputError
from tests.cdi import strategies
from tests.cdi.corpus import CASES, Case, document


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_corpus(case: Case) -> None:
    if case.problems == ("",):  # not even an object with fields
        with pytest.raises(InputError, match=r"^a\.json"):
            parse(case.content, "a.json")
        return
    found = tuple(problem.path for problem in validate(json.loads(case.content)))
    assert found == case.problems


@settings(max_examples=25)
@given(strategies.specs)
def test_random_specs_are_valid(spec: Spec) -> None:
    assert validate(as_json(spec)) == []


def test_every_problem_is_told() -> None:
    raw = document(env=["A"], mounts=[{"hostPath": "a", "containerPath": ""}]) | {"kind": "x", "more": 1}
    assert [str(problem) for problem in validate(raw)] == [
        "kind: must be vendor/class, is 'x'",
        "devices[0].containerEdits.env[0]: must be NAME=value, is 'A'",
        "devices[0].containerEdits.mounts[0].hostPath: must be an absolute path, is 'a'",
        "devices[0].containerEdits.mounts[0].containerPath: must not be empty",
        "more: unknown field",
    ]


def test_parse_names_the_file_and_what_is_wrong() -> None:
    with pytest.raises(InputError) as caught:
        parse(json.dumps(document(env=["A"])), "/var/run/cdi/x.json")
    assert str(caught.value).startswith(
        "/var/run/cdi/x.json: devices[0].containerEdits.env[0]: must be NAME=value, is 'A'"
    )


def test_parse_gives_the_values() -> None:
    spec = parse(json.dumps(document(env=["A=b"])), "x.json")
    assert spec.kind == "example.com/gpu"
    assert spec.devices[0].edits.env == ("A=b",)
