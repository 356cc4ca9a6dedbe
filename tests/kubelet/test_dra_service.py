"""What the kubelet is answered, whatever the preparer does."""

from __future__ import annotations

import asyncio
import itertools
import logging
import re
from typing import Any

import grpc
import grpc.aio
import pytest

from dra_driver.errors import DraDriverError, EnvironmentFault, InputError, InternalError
from dra_driver.kubelet.calls import FinishedCall, request_id
from dra_driver.kubelet.dra_service import whole_cause
from dra_driver.model.prepared import ClaimRef, PreparedDevice
from tests.kubelet.conftest import Client
from tests.kubelet.plugin import CLAIM, DRIVER, OTHER, Observer, Preparer, eventually, uids

PREPARE = "NodePrepareResources"


def fields(device: Any) -> dict[str, Any]:
    """The set fields of a message, by name."""
    return {
        descriptor.name: list(value) if isinstance(value, (list, tuple)) or hasattr(value, "append") else value
        for descriptor, value in device.ListFields()
    }


async def test_devices_arrive(client: Client, preparer: Preparer) -> None:
    preparer.answers[CLAIM.uid] = (
        PreparedDevice(("gpu",), "node-1", "gpu-0", ("a.com/gpu=x", "a.com/gpu=common")),
        PreparedDevice((), "node-1", "gpu-1", (), share_id="share-1"),
    )
    answer = await client.prepare(CLAIM)
    assert list(answer) == ["uid-a"]
    assert answer["uid-a"].error == ""
    assert [fields(device) for device in answer["uid-a"].devices] == [
        {
            "request_names": ["gpu"],
            "pool_name": "node-1",
            "device_name": "gpu-0",
            "cdi_device_ids": ["a.com/gpu=x", "a.com/gpu=common"],
        },
        {"pool_name": "node-1", "device_name": "gpu-1", "share_id": "share-1"},
    ]
    assert preparer.prepared == [(CLAIM,)]


async def test_v1beta1_is_v1_without_share_id(beta: Client, preparer: Preparer) -> None:
    preparer.answers[CLAIM.uid] = (PreparedDevice(("gpu",), "node-1", "gpu-0", ("a.com/gpu=x",), share_id="share-1"),)
    answer = await beta.prepare(CLAIM)
    assert [fields(device) for device in answer["uid-a"].devices] == [
        {
            "request_names": ["gpu"],
            "pool_name": "node-1",
            "device_name": "gpu-0",
            "cdi_device_ids": ["a.com/gpu=x"],
        }
    ]
    assert await beta.unprepare(CLAIM) == {"uid-a": ""}


@pytest.mark.parametrize(
    ("requests", "names"),
    [
        pytest.param(("gpu",), ["gpu"], id="plain"),
        pytest.param(("gpu/big",), ["gpu"], id="subrequest"),
        pytest.param(("gpu/big", "nic", "gpu/small", "nic"), ["gpu", "nic"], id="several-once-each-in-order"),
    ],
)
async def test_request_names_are_base_names(
    client: Client, preparer: Preparer, requests: tuple[str, ...], names: list[str]
) -> None:
    preparer.answers[CLAIM.uid] = (PreparedDevice(requests, "node-1", "gpu-0", ()),)
    answer = await client.prepare(CLAIM)
    assert list(answer["uid-a"].devices[0].request_names) == names


async def test_no_devices_is_an_answer(client: Client, preparer: Preparer) -> None:
    preparer.answers[CLAIM.uid] = ()
    answer = await client.prepare(CLAIM)
    assert list(answer) == ["uid-a"]
    assert (answer["uid-a"].error, len(answer["uid-a"].devices)) == ("", 0)


async def test_empty_call(client: Client, preparer: Preparer, observer: Observer) -> None:
    assert await client.prepare() == {}
    assert await client.unprepare() == {}
    assert (preparer.prepared, preparer.unprepared) == ([], [])
    assert [call.outcome for call in observer.finished] == ["ok", "ok"]


async def test_one_claim_fails_alone_with_the_whole_cause(client: Client, preparer: Preparer) -> None:
    fault = EnvironmentFault("CDI file x.json can't be written", hint="free space on /var/run")
    fault.__cause__ = OSError(28, "No space left on device", "x.json")
    preparer.answers[CLAIM.uid] = fault
    answer = await client.prepare(CLAIM, OTHER)
    assert answer["uid-a"].error == (
        "CDI file x.json can't be written (free space on /var/run): [Errno 28] No space left on device: 'x.json'"
    )
    assert len(answer["uid-a"].devices) == 0
    assert (answer["uid-b"].error, len(answer["uid-b"].devices)) == ("", 1)


async def test_a_message_that_is_not_utf8_costs_its_claim_only(client: Client, preparer: Preparer) -> None:
    preparer.answers[CLAIM.uid] = EnvironmentFault("file a\udcffb is missing")  # as Python reads the name b"a\xffb"
    answer = await client.prepare(CLAIM, OTHER)
    assert answer["uid-a"].error == "file a\\udcffb is missing"
    assert len(answer["uid-b"].devices) == 1
    preparer.unprepare_answers[CLAIM.uid] = EnvironmentFault("file \udcff stays")
    assert (await client.unprepare(CLAIM))["uid-a"] == "file \\udcff stays"


MALFORMED = {
    "not-a-sequence": 42,
    "not-devices": ("gpu-0",),
    "no-pool": (PreparedDevice(("gpu",), "", "gpu-0", ()),),
    "no-name": (PreparedDevice(("gpu",), "node-1", "", ()),),
    "cdi-id-of-wrong-type": (PreparedDevice(("gpu",), "node-1", "gpu-0", (7,)),),  # type: ignore[arg-type]
    "plain-exception": RuntimeError("x"),
    "second-device-malformed": (PreparedDevice(("gpu",), "node-1", "gpu-0", ()), None),
}


@pytest.mark.parametrize("result", MALFORMED.values(), ids=MALFORMED.keys())
async def test_a_malformed_result_costs_its_claim_only(client: Client, preparer: Preparer, result: Any) -> None:
    preparer.answers[CLAIM.uid] = result
    answer = await client.prepare(CLAIM, OTHER)
    assert sorted(answer) == ["uid-a", "uid-b"]
    assert "this is a bug in dra-driver" in answer["uid-a"].error
    assert len(answer["uid-b"].devices) == 1


async def test_missing_results_become_errors_and_superfluous_ones_vanish(
    client: Client, preparer: Preparer, caplog: pytest.LogCaptureFixture
) -> None:
    preparer.answers[CLAIM.uid] = None
    preparer.extra = {"uid-x": ()}
    answer = await client.prepare(CLAIM, OTHER)
    assert sorted(answer) == ["uid-a", "uid-b"]
    assert answer["uid-a"].error.startswith("prepare gave no result for this claim; this is a bug in dra-driver")
    assert answer["uid-b"].error == ""
    assert "prepare gave results for claims nobody asked for: ['uid-x']" in caplog.text
    preparer.extra = {"uid-x": None}
    assert await client.unprepare(CLAIM) == {"uid-a": ""}


@pytest.mark.parametrize(
    ("raised", "text", "traceback"),
    [
        pytest.param(
            EnvironmentFault("the record folder is read-only"), "the record folder is read-only", False, id="fault"
        ),
        pytest.param(
            ZeroDivisionError("division by zero"),
            "failed: ZeroDivisionError: division by zero; this is a bug",
            True,
            id="bug",
        ),
    ],
)
async def test_an_exception_is_every_claims_error_and_never_the_calls(
    client: Client,
    preparer: Preparer,
    caplog: pytest.LogCaptureFixture,
    observer: Observer,
    raised: Exception,
    text: str,
    traceback: bool,
) -> None:
    preparer.raises = raised
    prepared = await client.prepare(CLAIM, OTHER)
    unprepared = await client.unprepare(CLAIM, OTHER)
    for errors in ({uid: entry.error for uid, entry in prepared.items()}, unprepared):
        assert sorted(errors) == ["uid-a", "uid-b"]
        assert all(text in error for error in errors.values()), errors
    assert any(record.exc_info for record in caplog.records) is traceback
    assert "default/claim-a (uid-a)" in caplog.text
    assert [(call.outcome, call.failed) for call in observer.finished] == [("claims_failed", 2)] * 2


async def test_unprepare_answers(client: Client, preparer: Preparer) -> None:
    preparer.unprepare_answers = {
        "uid-a": EnvironmentFault("MIG device gpu-0 of claim default/claim-a is in use"),
        "uid-c": "done",
    }
    answer = await client.unprepare(CLAIM, OTHER, ClaimRef("default", "claim-c", "uid-c"))
    assert answer.pop("uid-c").startswith("unprepare of claim default/claim-c gave 'done'; this is a bug in dra-driver")
    assert answer == {"uid-a": "MIG device gpu-0 of claim default/claim-a is in use", "uid-b": ""}


@pytest.mark.parametrize(
    "claim",
    [ClaimRef("", "n", "u"), ClaimRef("ns", "", "u"), ClaimRef("ns", "n", "")],
    ids=["namespace", "name", "uid"],
)
async def test_a_claim_without_identity_never_reaches_the_preparer(
    client: Client, preparer: Preparer, claim: ClaimRef
) -> None:
    answer = await client.prepare(claim, OTHER)
    assert answer[claim.uid].error == "the kubelet sent a claim without UID, name or namespace"
    assert answer["uid-b"].error == ""
    assert uids(preparer.prepared) == [["uid-b"]]


async def test_calls_for_the_same_claim_run_at_once(client: Client, preparer: Preparer) -> None:
    preparer.gate = asyncio.Event()
    running = [asyncio.ensure_future(client.prepare(CLAIM)) for _ in range(3)]
    await eventually(lambda: preparer.running == 3)
    preparer.gate.set()
    answers = await asyncio.gather(*running)
    assert [list(answer) for answer in answers] == [["uid-a"]] * 3


async def test_a_caller_that_gives_up_does_not_stop_the_work(
    client: Client, preparer: Preparer, observer: Observer, caplog: pytest.LogCaptureFixture
) -> None:
    preparer.gate = asyncio.Event()
    call = asyncio.ensure_future(client.prepare(CLAIM))
    await eventually(lambda: preparer.running == 1)
    call.cancel()
    with pytest.raises(asyncio.CancelledError):
        await call
    await eventually(lambda: "the caller gave up; the work goes on" in caplog.text)
    assert preparer.running == 1
    preparer.gate.set()
    await eventually(lambda: len(observer.finished) == 1)
    assert (observer.finished[0].outcome, observer.finished[0].abandoned) == ("ok", True)
    assert (await client.prepare(CLAIM))["uid-a"].error == ""


@pytest.mark.parametrize("method", ["prepare", "unprepare"])
async def test_the_answer_precedes_the_deadline(
    client: Client, preparer: Preparer, observer: Observer, method: str
) -> None:
    preparer.gate = asyncio.Event()
    answer = await getattr(client, method)(CLAIM, timeout=2.0)
    error = answer["uid-a"] if method == "unprepare" else answer["uid-a"].error
    assert re.fullmatch(
        rf"claim default/claim-a is still being {method}d by driver {DRIVER} after \d s; "
        r"the work goes on and the next attempt asks for its result",
        error,
    )
    assert preparer.running == 1
    preparer.gate.set()
    await eventually(lambda: len(observer.finished) == 1)
    assert observer.finished[0].abandoned
    assert observer.finished[0].outcome == "ok"


async def test_the_observer_sees_every_call(client: Client, preparer: Preparer, observer: Observer) -> None:
    preparer.answers[CLAIM.uid] = InputError("unknown field", path="config[0]")
    await client.prepare(CLAIM, OTHER)
    await client.unprepare(CLAIM)
    assert observer.started == [PREPARE, "NodeUnprepareResources"]
    seconds = [call.seconds for call in observer.finished]
    assert all(0 < value < 60 for value in seconds)
    assert observer.finished == [
        FinishedCall(DRIVER, PREPARE, "claims_failed", seconds[0], claims=2, failed=1),
        FinishedCall(DRIVER, "NodeUnprepareResources", "ok", seconds[1], claims=1, failed=0),
    ]


async def test_debug_log_carries_request_ids(
    client: Client, preparer: Preparer, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen = []
    work = preparer._work

    async def noting() -> None:
        seen.append(request_id.get())
        await work()

    monkeypatch.setattr(preparer, "_work", noting)
    with caplog.at_level(logging.DEBUG, logger="dra_driver.kubelet.calls"):
        await client.prepare(CLAIM)
        await client.prepare(OTHER)
    assert len(set(seen)) == 2
    first, second = seen
    texts = [record.getMessage() for record in caplog.records]
    claim = 'claims { namespace: "default" uid: "uid-a" name: "claim-a" }'
    assert any(text.startswith(f"{DRIVER} {PREPARE} request {first}: {claim}") for text in texts)
    assert any(text.startswith(f'{DRIVER} {PREPARE} response {second}: claims {{ key: "uid-b"') for text in texts)
    assert request_id.get() == ""


async def test_unknown_methods_are_unimplemented(client: Client) -> None:
    method = "/k8s.io.kubelet.pkg.apis.dra.v2.DRAPlugin/NodePrepareResources"
    call: Any = client.channel.unary_unary(method, request_serializer=None, response_deserializer=None)
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await call(b"")
    assert caught.value.code() is grpc.StatusCode.UNIMPLEMENTED


def chained(*errors: BaseException) -> BaseException:
    for error, cause in itertools.pairwise(errors):
        error.__cause__ = cause
    return errors[0]


@pytest.mark.parametrize(
    ("error", "text"),
    [
        pytest.param(InputError("a", path="p", hint="h"), "p: a (h)", id="alone"),
        pytest.param(chained(EnvironmentFault("a"), ValueError("b"), KeyError("c")), "a: b: 'c'", id="chain"),
        pytest.param(chained(EnvironmentFault("a failed: b"), ValueError("b")), "a failed: b", id="quoted"),
        pytest.param(
            chained(EnvironmentFault("no: Read-only file system"), OSError(30, "Read-only file system", "/x")),
            "no: Read-only file system",
            id="quoted-reason",
        ),
        pytest.param(chained(EnvironmentFault("a"), TimeoutError()), "a: TimeoutError", id="cause-without-text"),
        pytest.param(DraDriverError(), "DraDriverError", id="without-text"),
        pytest.param(
            chained(InternalError("a"), (loop := ValueError("b")), InternalError("c"), loop), "a: b: c", id="cycle"
        ),
    ],
)
def test_whole_cause(error: BaseException, text: str) -> None:
    assert whole_cause(error) == text
