"""What the daemon measures, for Prometheus.

Every request is counted with its outcome, failed ones too, and durations start at half a millisecond: a claim on a
healthy node takes two. Gauges that describe the present (devices, publish age) are read when scraped, so they can't
go stale.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, ProcessCollector
from prometheus_client.core import GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from dra_driver import __version__
from dra_driver.kubelet.calls import FinishedCall

REQUEST_SECONDS = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 45.0)
"""Bucket bounds; the last one is the kubelet's own timeout."""


PRESENT = (
    ("dra_driver_prepared_devices", "Devices that are prepared for claims.", ("driver",)),
    (
        "dra_driver_devices",
        "Devices of the node, by state (published, unavailable: known but not offered).",
        ("driver", "state"),
    ),
    (
        "dra_driver_publish_success_timestamp_seconds",
        "When the ResourceSlices were last known to be as wanted, in seconds since 1970; 0 before.",
        ("driver",),
    ),
    ("dra_driver_registered", "1 while the kubelet has the driver registered.", ("driver",)),
)
"""Name, text and labels of the gauges that the daemon reads at each scrape."""


class Present(Collector):
    """Gauges whose value is asked for at each scrape.

    ``read`` returns ``{(driver, *labels): value}``.
    """

    def __init__(
        self, name: str, text: str, labels: tuple[str, ...], read: Callable[[], Mapping[tuple[str, ...], float]]
    ) -> None:
        self._family = (name, text, labels)
        self._read = read

    def describe(self) -> list[Metric]:
        name, text, labels = self._family
        return [GaugeMetricFamily(name, text, labels=labels)]

    def collect(self) -> list[Metric]:
        name, text, labels = self._family
        family = GaugeMetricFamily(name, text, labels=labels)
        for values, number in self._read().items():
            family.add_metric(values, number)
        return [family]


class Metrics:
    """All metrics of one daemon, in a registry of its own."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        ProcessCollector(registry=self.registry)
        Gauge(
            "dra_driver_build_info", "Constant 1, with the version as label.", ["version"], registry=self.registry
        ).labels(__version__).set(1)
        self.requests = Counter(
            "dra_driver_requests",
            "Calls of the kubelet, by outcome (ok, claims_failed, error, refused while stopping).",
            ["driver", "method", "outcome"],
            registry=self.registry,
        )
        self.request_seconds = Histogram(
            "dra_driver_request_duration_seconds",
            "How long calls of the kubelet took, failed ones included.",
            ["driver", "method", "outcome"],
            buckets=REQUEST_SECONDS,
            registry=self.registry,
        )
        self.in_flight = Gauge(
            "dra_driver_requests_in_flight",
            "Calls of the kubelet that run now.",
            ["driver", "method"],
            registry=self.registry,
        )
        self.claims = Counter(
            "dra_driver_claims",
            "Claims dealt with; outcome recorded: answered from a verified record.",
            ["driver", "operation", "outcome"],
            registry=self.registry,
        )
        self.publish_failures = Counter(
            "dra_driver_publish_failures",
            "Failed attempts to bring the ResourceSlices up to date.",
            ["driver"],
            registry=self.registry,
        )
        self.discovery_seconds = Histogram(
            "dra_driver_discovery_duration_seconds",
            "How long a look at the hardware took.",
            buckets=REQUEST_SECONDS,
            registry=self.registry,
        )
        self.quarantined = Counter(
            "dra_driver_records_quarantined",
            "Claim records that could not be read and were put aside.",
            ["driver"],
            registry=self.registry,
        )
        self.collected = Counter(
            "dra_driver_claims_collected",
            "Claims that the kubelet never unprepared and the driver cleaned up by itself.",
            ["driver"],
            registry=self.registry,
        )

    def present(
        self, name: str, text: str, labels: tuple[str, ...], read: Callable[[], Mapping[tuple[str, ...], float]]
    ) -> None:
        """Register a gauge that is read at each scrape."""
        self.registry.register(Present(name, text, labels, read))

    def call_started(self, driver: str, method: str) -> None:
        """As ``kubelet.calls.CallObserver``."""
        self.in_flight.labels(driver, method).inc()

    def call_finished(self, call: FinishedCall) -> None:
        """As ``kubelet.calls.CallObserver``."""
        self.in_flight.labels(call.driver, call.method).dec()
        self.requests.labels(call.driver, call.method, call.outcome).inc()
        self.request_seconds.labels(call.driver, call.method, call.outcome).observe(call.seconds)
