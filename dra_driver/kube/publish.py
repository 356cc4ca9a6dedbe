"""Keeps the ResourceSlices of one driver on one node as wanted, whatever happens to them.

``set_desired`` checks at once and writes nothing; ``run`` makes it so and keeps it so: slices that the kubelet wiped
(at its start, and 30 s after a plugin left) are back half a second later, other writers' changes are undone, a replaced
Node gets its slices again, fields that an API server drops are named and tried again after an upgrade. A stop leaves
the slices alone, so that a restart or a rolling update goes unnoticed; only ``uninstall`` removes them.

What is written is decided in ``slice_plan``, in which slice a device goes in ``slice_places``, what counts as equal in
``slice_content``.
"""

from __future__ import annotations

import asyncio
import dataclasses
import logging
import random
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from dra_driver.errors import EnvironmentFault, InputError
from dra_driver.kube.backoff import Backoff
from dra_driver.kube.client import ApiClient
from dra_driver.kube.errors import Conflict, Invalid, NotFound
from dra_driver.kube.nodes import NodeOwner
from dra_driver.kube.publish_state import PublishObserver, PublishState
from dra_driver.kube.reduced_slices import ReducedSlices
from dra_driver.kube.reflector import Reflector
from dra_driver.kube.resources import RESOURCE_SLICES
from dra_driver.kube.rivalry import Competitor, Rivalry
from dra_driver.kube.slice_check import check_slices, explain_refusal
from dra_driver.kube.slice_content import SliceContent
from dra_driver.kube.slice_places import arrange, places_of
from dra_driver.kube.slice_plan import Plan, Pool, plan
from dra_driver.kube.store import Change, uid_of, version_of
from dra_driver.model import codec
from dra_driver.model.resource import ObjectMeta, ResourcePool, ResourceSlice, ResourceSliceSpec

_LOG = logging.getLogger(__name__)

Object = dict[str, Any]
Content = dict[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class PublishTiming:
    """Seconds; the defaults are for production, tests take shorter ones.

    Attributes:
        debounce: pause after foreign events, so that a wiped pool is one rewrite and not one per slice.
        resync: how often everything is looked at without a reason, the Node's UID included.
        retry_dropped: how often dropped fields are tried again when the API server's version stays the same.
        first_retry, longest_retry: limits of the pause after a failure.
    """

    debounce: float = 0.5
    resync: float = 300.0
    retry_dropped: float = 3600.0
    first_retry: float = 0.25
    longest_retry: float = 30.0


class SlicePublisher:
    """One driver's pool on one node; the pool has the node's name.

    Args:
        observer: told about successes, failures and findings.
        wall_clock: seconds since the epoch, for ``PublishState.last_success``.
    """

    def __init__(
        self,
        client: ApiClient,
        driver: str,
        node_name: str,
        *,
        observer: PublishObserver | None = None,
        timing: PublishTiming | None = None,
        wall_clock: Callable[[], float] = time.time,
    ) -> None:
        self.driver = driver
        self.node_name = node_name
        self.state = PublishState()
        self._client = client
        self._observer = observer or PublishObserver()
        self._timing = timing or PublishTiming()
        self._wall_clock = wall_clock
        self._owner = NodeOwner(client, node_name)
        self._selector = f"spec.driver={driver},spec.nodeName={node_name}"
        self._reflector = Reflector(
            client,
            RESOURCE_SLICES,
            field_selector=self._selector,
            on_change=self._slice_changed,
            on_error=self._watch_failed,
        )
        self._backoff = Backoff(self._timing.first_retry, self._timing.longest_retry)
        self._wanted: list[Content] | None = None
        self._wanted_values: tuple[SliceContent, ...] | None = None
        self._new_wish = asyncio.Event()
        self._news = asyncio.Event()
        # In which slice a device is or was, and what the last success left: the goal, and versions as stored.
        self._places: dict[str, int] = {}
        self._settled: tuple[object, ...] | None = None
        self._settled_versions: dict[str, str] = {}
        self._removing: set[str] = set()
        self._owner_age = 5.0
        self._reduced = ReducedSlices(self._timing.retry_dropped)
        self._rivalry = Rivalry()

    @property
    def watch_error(self) -> EnvironmentFault | None:
        """Why the slices cannot be watched at the moment."""
        return self._reflector.last_error

    def set_desired(self, slices: Sequence[SliceContent]) -> None:
        """What shall be published from now on; an empty sequence means no slice at all.

        The same content again costs nothing. Takes effect through ``run``, at once when that is running.

        Raises:
            InputError: the API server would refuse it; names every field. What was wanted before stays wanted.
        """
        values = tuple(slices)
        if values == self._wanted_values:
            return
        contents = [self._encode(value, len(values)) for value in values]
        check_slices(contents, self.driver, self.node_name)
        self._wanted, self._wanted_values = contents, values
        self._new_wish.set()

    async def run(self) -> None:
        """Publishes until cancelled; slices stay as they are then."""
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._reflector.run())
            tasks.create_task(self._read_owner_early())
            tasks.create_task(self._publish())

    async def uninstall(self) -> int:
        """Removes all slices of this driver on this node and returns how many; not while ``run`` is running."""
        removed = 0
        for _ in range(5):
            listed = await self._client.list(RESOURCE_SLICES, field_selector=self._selector)
            if not listed.items:
                break
            for item in listed.items:
                try:
                    await self._client.delete(RESOURCE_SLICES, item["metadata"]["name"], uid=uid_of(item))
                    removed += 1
                except (NotFound, Conflict):
                    continue  # gone, or replaced by another of this name: the next list tells
        return removed

    def _encode(self, value: SliceContent, count: int) -> Content:
        pool = ResourcePool(name=self.node_name, generation=1, resource_slice_count=count)
        if isinstance(value, ResourceSliceSpec):
            spec = dataclasses.replace(value, driver=self.driver, pool=pool, node_name=self.node_name)
        else:
            spec = ResourceSliceSpec(
                driver=self.driver,
                pool=pool,
                node_name=self.node_name,
                devices=value.devices,
                shared_counters=value.shared_counters,
            )
        content: Content = codec.encode(ResourceSlice(metadata=ObjectMeta(), spec=spec))["spec"]
        del content["pool"]
        return content

    async def _read_owner_early(self) -> None:
        """The Node is read while the slices are listed; a failure shows again when the owner is needed."""
        try:
            await self._owner.reference(max_age=0.0)
        except EnvironmentFault as error:
            _LOG.debug("early lookup: %s", error)

    def _slice_changed(self, change: Change) -> None:
        uid = uid_of(change.object)
        if change.kind == "DELETED":
            if uid in self._removing:
                self._removing.discard(uid)
                return
            # The kubelet's wipe, or the garbage collector after the Node was replaced.
            self._owner_age = 0.0
        self._news.set()

    async def _publish(self) -> None:
        await self._reflector.synced.wait()
        await self._new_wish.wait()
        while True:
            self._new_wish.clear()
            self._news.clear()
            try:
                await self._sync()
            except EnvironmentFault as error:
                delay = self._backoff.next()
                self._failed(error, delay)
                await _wait(self._new_wish, delay)
            else:
                self._backoff.reset()
                await self._wait_for_work()

    async def _wait_for_work(self) -> None:
        pause = self._timing.resync * random.uniform(0.9, 1.0)
        wish = asyncio.ensure_future(self._new_wish.wait())
        news = asyncio.ensure_future(self._news.wait())
        try:
            done, _ = await asyncio.wait({wish, news}, timeout=pause, return_when=asyncio.FIRST_COMPLETED)
        finally:
            wish.cancel()
            news.cancel()
        if not done:
            self._owner_age = 0.0
            try:
                await self._reduced.ask_again(self._client, self._reflector.store, _now())
            except EnvironmentFault as error:
                _LOG.info("whether the API server still drops fields could not be found out: %s", error)
        elif wish not in done:
            await _wait(self._new_wish, max(self._timing.debounce, self._rivalry.delay(_now())))

    async def _sync(self) -> None:
        assert self._wanted is not None
        owner = await self._owner.reference(max_age=self._owner_age)
        self._owner_age = self._timing.resync
        pool = Pool(self.driver, self.node_name, owner)
        wanted, values = self._wanted, self._wanted_values
        arranged = self._arrange(wanted)
        todo = plan(
            list(self._reflector.store),
            arranged,
            pool,
            last_generation=self.state.published_generation,
            accepted=lambda index, existing: self._reduced.is_known(index, arranged[index], existing),
        )
        goal = (values, owner["uid"])
        if self._settled == goal:
            self._note_foreign(todo)
        await self._carry_out(todo, arranged)
        self._remember_places(arranged)
        self._settled = goal
        self._settled_versions = {uid_of(obj): version_of(obj) for obj in self._reflector.store}
        self._reduced.keep_only(arranged)
        self._succeeded(todo, arranged)

    def _arrange(self, wanted: list[Content]) -> list[Content]:
        arranged = arrange(wanted, self._places, self.state.published_slices)
        if arranged != wanted:
            try:
                check_slices(arranged, self.driver, self.node_name)
            except InputError as error:
                _LOG.debug("devices cannot stay in their slices: %s", error)
                return wanted
        return arranged

    def _remember_places(self, arranged: list[Content]) -> None:
        """Devices that are gone keep their place, for their return, until the devices are cut anew."""
        places = places_of(arranged)
        kept = all(self._places.get(key, index) == index for key, index in places.items())
        self._places = {**self._places, **places} if kept and len(arranged) >= self.state.published_slices else places

    async def _carry_out(self, todo: Plan, arranged: list[Content]) -> None:
        store = self._reflector.store
        for obsolete in todo.delete:
            self._removing.add(uid_of(obsolete))
            try:
                await self._client.delete(
                    RESOURCE_SLICES,
                    obsolete["metadata"]["name"],
                    uid=uid_of(obsolete),
                    resource_version=version_of(obsolete),
                )
            except NotFound:
                _LOG.debug("ResourceSlice %s is gone already", obsolete["metadata"]["name"])
            except EnvironmentFault:
                self._removing.discard(uid_of(obsolete))
                raise
            store.deleted(obsolete)
            self._count_write("deleted", obsolete)
        for write in (*todo.update, *todo.create):
            try:
                if write.stored is None:
                    stored = await self._client.create(RESOURCE_SLICES, write.body)
                else:
                    stored = await self._client.update(RESOURCE_SLICES, write.body)
            except Invalid as error:
                raise explain_refusal(error, write.body) from error
            store.wrote(stored)
            self._count_write("created" if write.stored is None else "updated", stored)
            self._reduced.compare(write.index, arranged[write.index], write.body, stored, _now())

    def _note_foreign(self, todo: Plan) -> None:
        """Nothing new was wanted, yet there is something to undo: somebody else wrote."""
        foreign = [
            write.stored
            for write in todo.update
            if write.stored is not None
            and write.index in todo.changed
            and self._settled_versions.get(uid_of(write.stored)) != version_of(write.stored)
        ]
        foreign += [obj for obj in todo.delete if uid_of(obj) not in self._settled_versions]
        for obj in foreign[:1]:
            _LOG.warning("ResourceSlice %s was written by somebody else; restoring", obj["metadata"]["name"])
            self._rivalry.corrected(_now(), obj)

    def _count_write(self, verb: str, obj: Object) -> None:
        self.state = dataclasses.replace(self.state, writes=self.state.writes + 1)
        _LOG.info(
            "%s ResourceSlice %s: %d devices, pool %s generation %s",
            verb,
            obj["metadata"]["name"],
            len(obj["spec"].get("devices") or ()),
            self.node_name,
            obj["spec"]["pool"].get("generation"),
        )

    def _succeeded(self, todo: Plan, arranged: list[Content]) -> None:
        before = self.state
        dropped = self._reduced.dropped()
        competitor = self._rivalry.competitor(_now())
        self.state = dataclasses.replace(
            before,
            last_success=self._wall_clock(),
            last_error=None,
            published_generation=todo.generation,
            published_slices=len(arranged),
            published_devices=sum(len(content.get("devices") or ()) for content in arranged),
            dropped=dropped,
            competitor=competitor,
        )
        if dropped is not None and dropped != before.dropped:
            _LOG.warning("%s", dropped)
            self._observer.fields_dropped(dropped)
        if competitor is not None and _who(competitor) != _who(before.competitor):
            _LOG.error("%s; corrections are slowed down, stop one of the two", competitor)
            self._observer.competitor_found(competitor)
        self._observer.published(self.state)

    def _failed(self, error: EnvironmentFault, delay: float) -> None:
        _LOG.warning("publishing to pool %s: %s; next try in %.1f s", self.node_name, error, delay)
        self._count_failure(error, delay)

    def _watch_failed(self, error: EnvironmentFault, delay: float) -> None:
        """Until the slices have been listed once nothing can be published; the reflector has logged why."""
        if not self._reflector.synced.is_set():
            self._count_failure(error, delay)

    def _count_failure(self, error: EnvironmentFault, delay: float) -> None:
        self.state = dataclasses.replace(self.state, failures=self.state.failures + 1, last_error=error)
        self._observer.failed(error, delay)


def _who(competitor: Competitor | None) -> str | None:
    return None if competitor is None else competitor.field_manager


def _now() -> float:
    return asyncio.get_running_loop().time()


async def _wait(event: asyncio.Event, seconds: float) -> None:
    """Until the event or the time, whichever comes first."""
    try:
        async with asyncio.timeout(seconds):
            await event.wait()
    except TimeoutError:
        return
