"""What a publisher tells about itself, for metrics, readiness and logs."""

from __future__ import annotations

from dataclasses import dataclass

from dra_driver.errors import EnvironmentFault
from dra_driver.kube.rivalry import Competitor
from dra_driver.kube.slice_content import Difference


@dataclass(frozen=True, slots=True)
class DroppedFields:
    """What the API server did not store although it accepted the write, by slice name."""

    by_slice: tuple[tuple[str, tuple[Difference, ...]], ...]

    @property
    def gates(self) -> tuple[str, ...]:
        """Feature gates that explain it, sorted."""
        return tuple(sorted({d.gate for _, found in self.by_slice for d in found if d.gate is not None}))

    def __str__(self) -> str:
        texts = []
        for name, found in self.by_slice:
            paths = [difference.path for difference in found]
            more = f" and {len(paths) - 5} more" if len(paths) > 5 else ""
            texts.append(f"{name}: {', '.join(paths[:5])}{more}")
        reason = f" (feature gates that are off: {', '.join(self.gates)})" if self.gates else ""
        return f"the API server did not store {'; '.join(texts)}{reason}"


@dataclass(frozen=True, slots=True, kw_only=True)
class PublishState:
    """A snapshot.

    Attributes:
        last_success: wall-clock seconds when the stored slices were last known to be as wanted, None before.
        failures: failed attempts since the start.
        last_error: why the latest attempt failed, None after a success.
        published_generation, published_slices, published_devices: of the pool as stored; 0 before the first success.
        writes: creates, updates and deletes that the server accepted since the start.
        dropped: fields that the server does not store, None when it stores all.
        competitor: somebody else who keeps writing our slices.
    """

    last_success: float | None = None
    failures: int = 0
    last_error: EnvironmentFault | None = None
    published_generation: int = 0
    published_slices: int = 0
    published_devices: int = 0
    writes: int = 0
    dropped: DroppedFields | None = None
    competitor: Competitor | None = None


class PublishObserver:
    """Called by a publisher on its event loop; override what is needed. The methods must not block."""

    def published(self, state: PublishState) -> None:
        """The stored slices are as wanted."""

    def failed(self, error: EnvironmentFault, retry_in: float) -> None:
        """An attempt failed and is repeated after ``retry_in`` seconds."""

    def fields_dropped(self, dropped: DroppedFields) -> None:
        """The set of fields that the server does not store has changed."""

    def competitor_found(self, competitor: Competitor) -> None:
        """Somebody else writes our slices again and again."""
