"""Who may use a device beside whom."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dra_driver.model.prepared import PreparedDevice
from dra_driver.prepare.claim import ClaimedDevice, RequestResult
from dra_driver.prepare.device_use import DeviceUse
from dra_driver.prepare.record import ClaimRecord, RecordedDevice
from tests.prepare.node import BOOT, ref


def device(name: str, share: str | None = None, *, admin: bool = False) -> ClaimedDevice:
    return ClaimedDevice("node-a", name, share, (RequestResult(0, "gpu", admin),))


def record(name: str, *devices: tuple[str, str | None, bool]) -> ClaimRecord:
    return ClaimRecord(
        ref=ref(name),
        state="completed",
        boot_id=BOOT,
        devices=tuple(
            RecordedDevice(
                answer=PreparedDevice(("gpu",), "node-a", gpu, (), share), kind="gpu", identity=gpu, admin_access=admin
            )
            for gpu, share, admin in devices
        ),
    )


PAIRS = {
    "same device": (device("gpu-0"), device("gpu-0"), True),
    "other device": (device("gpu-0"), device("gpu-1"), False),
    "observer of a used device": (device("gpu-0"), device("gpu-0", admin=True), False),
    "user of an observed device": (device("gpu-0", admin=True), device("gpu-0"), False),
    "two observers": (device("gpu-0", admin=True), device("gpu-0", admin=True), False),
    "other share": (device("gpu-0", "s1"), device("gpu-0", "s2"), False),
    "same share": (device("gpu-0", "s1"), device("gpu-0", "s1"), True),
    "whole beside share": (device("gpu-0", "s1"), device("gpu-0"), True),
    "share beside whole": (device("gpu-0"), device("gpu-0", "s1"), True),
}


@pytest.mark.parametrize(("first", "second", "against"), PAIRS.values(), ids=PAIRS)
def test_two_claims(first: ClaimedDevice, second: ClaimedDevice, against: bool) -> None:
    use = DeviceUse()
    assert use.enter(ref("a"), [first]) == ()
    found = use.enter(ref("b"), [second])
    assert [other.claim for other in found] == ([ref("a")] if against else [])
    assert use.enter(ref("a"), [first]) == (), "a claim never stands against itself"


def test_entering_is_all_or_nothing() -> None:
    use = DeviceUse()
    use.enter(ref("a"), [device("gpu-1")])
    assert [str(other) for other in use.enter(ref("b"), [device("gpu-0"), device("gpu-1"), device("gpu-2")])] == [
        "gpu-1"
    ]
    assert use.of_device("gpu-0") == ()
    assert use.of_device("gpu-2") == ()


def test_the_name_may_be_reused_but_the_uid_decides() -> None:
    use = DeviceUse()
    use.enter(ref("a", "old"), [device("gpu-0")])
    assert [other.claim.uid for other in use.enter(ref("a", "new"), [device("gpu-0")])] == ["old"]


def test_settling_leaves_what_the_record_says() -> None:
    use = DeviceUse()
    use.enter(ref("a"), [device("gpu-0"), device("gpu-1", "s1")])
    use.settle(ref("a"), record("a", ("gpu-1", "s1", False), ("gpu-2", None, True)))
    assert use.of_device("gpu-0") == ()
    assert [str(found) for found in use.of_device("gpu-1")] == ["share s1 of gpu-1"]
    assert use.of_device("gpu-2") == ()
    use.settle(ref("a"), None)
    assert use.of_device("gpu-1") == ()


USES = st.lists(
    st.tuples(
        st.sampled_from("abcd"),
        st.lists(
            st.tuples(st.sampled_from(["gpu-0", "gpu-1"]), st.sampled_from([None, "s1", "s2"]), st.booleans()),
            max_size=3,
        ),
        st.booleans(),
    ),
    max_size=30,
)


@given(USES)
def test_no_two_claims_ever_exclude_each_other(
    steps: list[tuple[str, list[tuple[str, str | None, bool]], bool]],
) -> None:
    use = DeviceUse()
    for name, devices, leave in steps:
        if leave:
            use.settle(ref(name), None)
        else:
            use.enter(ref(name), [device(gpu, share, admin=admin) for gpu, share, admin in devices])
        for gpu in ("gpu-0", "gpu-1"):
            uses = use.of_device(gpu)
            assert not [(a, b) for a in uses for b in uses if a.excludes(b)]
