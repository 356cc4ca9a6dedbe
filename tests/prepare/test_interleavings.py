"""Random interleavings of prepare, unprepare, kills, reboots and changes at the API server, with real files.

Whatever happens, and after every event:

- no device is prepared for two claims,
- a prepare that answers has its CDI spec, fitting its record, on the disk,
- an unprepare that succeeds leaves nothing of the claim,
- the hardware has only what some record can take back.
"""

from __future__ import annotations

import asyncio
import hashlib
import tempfile
from pathlib import Path
from typing import Any

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from dra_driver.errors import DraDriverError
from dra_driver.prepare.record import decode
from tests.prepare.node import Killed, Node, claim, ref, result

NAMES = ("a", "b", "c")
DEVICES = ("gpu-0", "part-0", "part-1")

claims = st.sampled_from(NAMES)
chosen = st.sets(st.sampled_from(DEVICES), min_size=1, max_size=2).map(sorted)


class Interleavings(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.folder = tempfile.TemporaryDirectory()
        self.loop = asyncio.new_event_loop()
        self.node = Node(Path(self.folder.name))
        self.node.with_partitions("part-0", "part-1")
        self.generation = 0
        self.boots = 1
        self.uids = {name: f"uid-{name}-0" for name in NAMES}
        self.past: set[tuple[str, str]] = set()

    def run(self, work: Any) -> Any:
        return self.loop.run_until_complete(work)

    def teardown(self) -> None:
        self.run(self.node.service.close())
        self.loop.close()
        self.folder.cleanup()

    @initialize()
    def start(self) -> None:
        self.run(self.node.service.start())
        for name, device in zip(NAMES, DEVICES, strict=True):
            self.node.api.add(claim(name, result(device), uid=self.uids[name]))

    # --- the API server

    @rule(name=claims, devices=chosen)
    def allocate_anew(self, name: str, devices: list[str]) -> None:
        """The claim of that name is replaced; its kubelet has not noticed."""
        self.past.add((name, self.uids[name]))
        self.generation += 1
        self.uids[name] = f"uid-{name}-{self.generation}"
        self.node.api.add(claim(name, *(result(device) for device in devices), uid=self.uids[name]))

    @rule(name=claims, reserved=st.booleans())
    def deallocate(self, name: str, reserved: bool) -> None:
        self.node.api.add(claim(name, uid=self.uids[name], allocated=False, reserved=False))

    # --- the kubelet

    def answers(self, work: Any) -> Any:
        """The answers, None when the process was killed; then it is started again."""
        try:
            return self.run(work)
        except Killed:
            self.run(self.node.restart())
            return None

    def check(self, uid: str, answer: Any) -> None:
        if isinstance(answer, DraDriverError):
            return
        data = (self.node.state / "claims" / f"{uid}.json").read_bytes()
        record = decode(data)
        assert record.state == "completed"
        assert record.answer == answer
        spec = (self.node.cdi / f"k8s.gpu.nvidia.com-claim_{uid}.json").read_bytes()
        assert hashlib.sha256(spec).hexdigest() == record.cdi_sha256
        for device in answer:
            if device.device.startswith("part"):
                assert self.node.world[f"make {device.device}"] == uid
                assert self.node.world[f"serve {device.device}"] == uid

    @rule(names=st.lists(claims, min_size=1, max_size=3), kill=st.none() | st.integers(0, 15))
    def prepare(self, names: list[str], kill: int | None) -> None:
        refs = [ref(name, self.uids[name]) for name in names]
        if kill is not None:
            self.node.kill_at(kill)
        answers = self.answers(self.node.service.prepare(refs))
        if answers is not None:
            self.node.changes.limit = None
            assert set(answers) == {item.uid for item in refs}
            for uid, answer in answers.items():
                self.check(uid, answer)

    @rule(name=claims, late=st.booleans(), kill=st.none() | st.integers(0, 8))
    def unprepare(self, name: str, late: bool, kill: int | None) -> None:
        past = sorted(uid for other, uid in self.past if other == name)
        uid = past[0] if late and past else self.uids[name]
        if kill is not None:
            self.node.kill_at(kill)
        answers = self.answers(self.node.service.unprepare([ref(name, uid)]))
        if answers is not None:
            self.node.changes.limit = None
            assert answers == {uid: None}
            assert not [path for path in self.node.leftovers() if uid in path]
            assert uid not in self.node.world.values()

    @rule(name=claims)
    def prepare_and_unprepare_at_once(self, name: str) -> None:
        item = ref(name, self.uids[name])

        async def both() -> tuple[Any, Any, Any]:
            return await asyncio.gather(
                self.node.service.prepare([item]),
                self.node.service.unprepare([item]),
                self.node.service.prepare([item]),
            )

        _, unprepared, last = self.run(both())
        assert unprepared == {item.uid: None}
        self.check(item.uid, last[item.uid])

    # --- the node

    @rule()
    def restart(self) -> None:
        self.run(self.node.restart())

    @rule()
    def reboot(self) -> None:
        self.boots += 1
        self.run(self.node.restart(boot_id=f"boot-{self.boots}"))

    @rule(name=claims)
    def lose_spec(self, name: str) -> None:
        (self.node.cdi / f"k8s.gpu.nvidia.com-claim_{self.uids[name]}.json").unlink(missing_ok=True)

    @rule(name=claims, place=st.integers(0, 10_000))
    def damage_record(self, name: str, place: int) -> None:
        path = self.node.state / "claims" / f"{self.uids[name]}.json"
        # A damaged record of a claim with steps loses the way back, which no record can prevent.
        known = self.node.records.get(self.uids[name])
        if known is None or known.steps or not path.exists():
            return
        data = bytearray(path.read_bytes())
        data[place % len(data)] ^= 1
        path.write_bytes(data)

    @rule()
    def reconcile(self) -> None:
        self.node.now += 400
        report = self.run(self.node.reconciler.run_once())
        assert report.undecided == ()
        assert report.failed == ()

    @precondition(lambda self: self.past)
    @rule()
    def reconcile_twice(self) -> None:
        """Afterwards nothing of replaced claims is left."""
        for _ in range(2):
            self.reconcile()
        gone = {uid for _, uid in self.past}
        assert not [path for path in self.node.leftovers() if any(f"{uid}.json" in path for uid in gone)]
        assert not gone & set(self.node.world.values())

    @invariant()
    def no_device_is_prepared_twice(self) -> None:
        held: dict[str, str] = {}
        for record in self.node.service.prepared():
            for device in record.devices:
                assert held.setdefault(device.answer.device, record.ref.uid) == record.ref.uid

    @invariant()
    def the_hardware_has_only_what_can_be_taken_back(self) -> None:
        way_back = {
            f"{step.action} {step.arguments['device']}"
            for record in self.node.records.all()
            if record.boot_id == self.node.boot_id
            for step in record.steps
        }
        assert set(self.node.world) <= way_back


Interleavings.TestCase.settings = settings(
    max_examples=40, stateful_step_count=30, deadline=None, suppress_health_check=list(HealthCheck)
)
TestInterleavings = Interleavings.TestCase
