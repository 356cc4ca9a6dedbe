"""A fight is noticed at the third correction, slowed down, and over after five quiet minutes."""

from __future__ import annotations

from typing import Any

from dra_driver.kube.rivalry import Rivalry


def foreign(version: int) -> dict[str, Any]:
    entries = [{"manager": "other", "time": "2026-01-02"}, {"manager": "dra-driver", "time": "2026-01-01"}]
    return {"metadata": {"name": "slice", "resourceVersion": str(version), "managedFields": entries}}


def test_one_or_two_corrections_are_ordinary() -> None:
    rivalry = Rivalry()
    for version in range(2):
        rivalry.corrected(float(version), foreign(version))

    assert (rivalry.competitor(2.0), rivalry.delay(2.0)) == (None, 0.0)


def test_the_third_names_the_last_writer() -> None:
    rivalry = Rivalry()
    for version in range(3):
        rivalry.corrected(float(version), foreign(version))

    found = rivalry.competitor(3.0)
    assert found is not None
    assert str(found) == '"other" also writes ResourceSlice slice (3 corrections in 5 minutes)'


def test_the_delay_grows_to_its_limit() -> None:
    rivalry, delays = Rivalry(), []
    for version in range(9):
        rivalry.corrected(float(version), foreign(version))
        delays.append(rivalry.delay(float(version)))

    assert delays == [0, 0, 10, 20, 40, 80, 160, 300, 300]


def test_five_quiet_minutes_end_it() -> None:
    rivalry = Rivalry()
    for version in range(4):
        rivalry.corrected(float(version), foreign(version))

    assert (rivalry.competitor(400.0), rivalry.delay(400.0)) == (None, 0.0)


def test_a_correction_that_failed_and_is_repeated_counts_once() -> None:
    rivalry = Rivalry()
    for now in range(5):
        rivalry.corrected(float(now), foreign(1))

    assert rivalry.competitor(5.0) is None
