"""One claim, one thing at a time."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from dra_driver.prepare.turns import Kind, Overtaken, Turn, Turns


class Work:
    """Work that says when it begins and ends, and ends when it is let."""

    def __init__(self) -> None:
        self.log: list[str] = []
        self.gates: dict[str, asyncio.Event] = {}

    def __call__(self, name: str) -> Callable[[Turn], Coroutine[Any, Any, str]]:
        gate = self.gates.setdefault(name, asyncio.Event())

        async def run(turn: Turn) -> str:
            self.log.append(f"{name} begins")
            await gate.wait()
            self.log.append(f"{name} ends")
            return name

        return run


async def settled() -> None:
    for _ in range(10):
        await asyncio.sleep(0)


async def test_different_claims_do_not_wait() -> None:
    turns: Turns[str] = Turns()
    work = Work()
    first = turns.run("a", "prepare", work("a"))
    second = turns.run("b", "prepare", work("b"))
    await settled()
    assert work.log == ["a begins", "b begins"]
    work.gates["b"].set()
    assert await second == "b"
    work.gates["a"].set()
    assert await first == "a"
    assert not turns.busy("a")


async def test_the_same_call_joins() -> None:
    turns: Turns[str] = Turns()
    work = Work()
    first = turns.run("a", "prepare", work("first"))
    await settled()
    second = turns.run("a", "prepare", work("second"))
    await settled()
    work.gates["first"].set()
    assert list(await asyncio.gather(first, second)) == ["first", "first"]
    assert work.log == ["first begins", "first ends"]


async def test_other_calls_queue_in_order_of_arrival() -> None:
    turns: Turns[str] = Turns()
    work = Work()
    order: list[tuple[Kind, str]] = [("prepare", "p1"), ("unprepare", "u1"), ("prepare", "p2"), ("prepare", "p3")]
    calls = []
    for kind, name in order:
        calls.append(turns.run("a", kind, work(name)))
        await settled()
    assert work.log == ["p1 begins"]
    for name in ("p1", "u1", "p2"):
        work.gates[name].set()
        await settled()
    assert await asyncio.gather(*calls) == ["p1", "u1", "p2", "p2"]
    assert work.log == ["p1 begins", "p1 ends", "u1 begins", "u1 ends", "p2 begins", "p2 ends"]


async def test_collecting_never_joins() -> None:
    turns: Turns[str] = Turns()
    work = Work()
    for gate in ("c1", "c2"):
        work(gate)
        work.gates[gate].set()
    assert list(await asyncio.gather(turns.run("a", "collect", work("c1")), turns.run("a", "collect", work("c2")))) == [
        "c1",
        "c2",
    ]


async def test_work_outlives_its_caller() -> None:
    turns: Turns[str] = Turns()
    work = Work()
    call = turns.run("a", "prepare", work("a"))
    await settled()
    call.cancel()
    await settled()
    assert call.cancelled()
    assert turns.busy("a")
    retry = turns.run("a", "prepare", work("again"))
    await settled()
    work.gates["a"].set()
    assert await retry == "a"


async def test_an_unprepare_ends_a_prepare_that_asks() -> None:
    turns: Turns[str] = Turns()
    never = asyncio.Event()

    async def prepare(turn: Turn) -> str:
        try:
            await turn.ask(never.wait)
        except Overtaken:
            # What follows is not haunted by the cancellation.
            async with asyncio.timeout(10):
                await asyncio.sleep(0)
            return "overtaken"
        return "answered"

    async def unprepare(turn: Turn) -> str:
        return "unprepared"

    first = turns.run("a", "prepare", prepare)
    await settled()
    assert await turns.run("a", "unprepare", unprepare) == "unprepared"
    assert await first == "overtaken"


async def test_an_unprepare_waits_for_a_prepare_that_works() -> None:
    turns: Turns[str] = Turns()
    work = Work()
    first = turns.run("a", "prepare", work("prepare"))
    await settled()
    second = turns.run("a", "unprepare", work("unprepare"))
    await settled()
    assert work.log == ["prepare begins"]
    work.gates["prepare"].set()
    work.gates["unprepare"].set()
    assert await first == "prepare"
    assert await second == "unprepare"


async def test_a_prepare_that_was_overtaken_before_it_began_does_not_ask() -> None:
    turns: Turns[str] = Turns()
    work = Work()
    asked = False

    async def question() -> None:
        nonlocal asked
        asked = True

    async def prepare(turn: Turn) -> str:
        with pytest.raises(Overtaken):
            await turn.ask(question)
        return "overtaken"

    first = turns.run("a", "unprepare", work("u1"))
    await settled()
    second = turns.run("a", "prepare", prepare)
    await settled()
    third = turns.run("a", "unprepare", work("u2"))
    await settled()
    assert work.log == ["u1 begins"], "the second unprepare must wait for the first, too"
    work.gates["u1"].set()
    work.gates["u2"].set()
    assert list(await asyncio.gather(first, second, third)) == ["u1", "overtaken", "u2"]
    assert not asked


async def test_a_cancelled_loop_is_not_taken_for_an_unprepare() -> None:
    turn = Turn("prepare")

    async def ask() -> None:
        await turn.ask(asyncio.Event().wait)

    task = asyncio.create_task(ask())
    await settled()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task


async def test_idle_waits_for_everything() -> None:
    turns: Turns[str] = Turns()
    work = Work()
    calls = [turns.run(uid, "prepare", work(uid)) for uid in ("a", "b")]
    await settled()
    idle = asyncio.create_task(turns.idle())
    work.gates["a"].set()
    await settled()
    assert not idle.done()
    work.gates["b"].set()
    await idle
    assert [call.done() for call in calls] == [True, True]
