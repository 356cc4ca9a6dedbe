"""The fast rendering equals the straightforward one."""

from __future__ import annotations

import json

from hypothesis import given, settings

from dra_driver.cdi.render import render
from dra_driver.cdi.spec import CdiDevice, ContainerEdits, Mount, Spec, as_json
from tests.cdi import strategies


def rendered(spec: Spec) -> bytes:
    return render(spec.kind, spec.devices, spec.common, spec.annotations)


@settings(max_examples=25)
@given(strategies.specs)
def test_content_equals_the_plain_form(spec: Spec) -> None:
    first = rendered(spec)
    assert json.loads(first) == as_json(spec)
    # From the kept pieces now; no byte may differ.
    assert rendered(spec) == first


def test_shared_edits_are_serialised_once_and_serve_every_claim() -> None:
    common = ContainerEdits(mounts=(Mount(host_path="/a", container_path="/b", type="bind"),))
    gpu = ContainerEdits(env=("A=b",))
    files = [
        json.loads(render("v.com/c", [CdiDevice(name=f"{uid}-gpu-0", edits=gpu)], common)) for uid in ("one", "two")
    ]
    assert [file["devices"] for file in files] == [
        [{"name": "one-gpu-0", "containerEdits": {"env": ["A=b"]}}],
        [{"name": "two-gpu-0", "containerEdits": {"env": ["A=b"]}}],
    ]
    assert [file["cdiVersion"] for file in files] == ["0.4.0", "0.4.0"]
    assert common.rendered is not None


def test_kept_pieces_are_no_part_of_the_value() -> None:
    one, other = ContainerEdits(env=("A=b",)), ContainerEdits(env=("A=b",))
    render("v.com/c", [CdiDevice(name="a", edits=one)])
    assert one == other
    assert hash(one) == hash(other)
    assert "rendered" not in repr(one)


def test_ends_with_a_line_feed_and_has_no_common_part_without_need() -> None:
    assert render("v.com/c", [CdiDevice(name="a", edits=ContainerEdits(env=("A=b",)))]) == (
        b'{"cdiVersion":"0.3.0","kind":"v.com/c","devices":[{"name":"a","containerEdits":{"env":["A=b"]}}]}\n'
    )


def test_characters_are_written_as_a_yaml_parser_takes_them() -> None:
    """The reference library refuses a whole file for an escaped surrogate pair or a raw control character."""
    data = render("v.com/c", [CdiDevice(name="a", edits=ContainerEdits(env=("A=\U00010000\x7f\x85ü\\ud800",)))])
    assert b'"A=\xf0\x90\x80\x80\\u007f\\u0085\\u00fc\\\\ud800"' in data
    assert json.loads(data)["devices"][0]["containerEdits"]["env"] == ["A=\U00010000\x7f\x85ü\\ud800"]
