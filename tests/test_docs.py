"""The pages agree with the code: generated ones are current, named tests and files exist, the README's output is
real."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from docs.generate import PAGES, REFERENCE

ROOT = Path(__file__).parent.parent
HAND_WRITTEN = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]


@pytest.mark.parametrize("name", PAGES)
def test_reference_page_is_current(name: str) -> None:
    assert (REFERENCE / name).read_text() == PAGES[name](), "run: python docs/generate.py"


@pytest.mark.parametrize("page", HAND_WRITTEN, ids=lambda page: page.name)
def test_links_lead_somewhere(page: Path) -> None:
    links = re.findall(r"\]\(([^)#]+?)(?:#[^)]*)?\)", page.read_text())
    missing = [link for link in links if not link.startswith("http") and not (page.parent / link).exists()]
    assert missing == []


def test_every_pain_names_a_test_that_exists() -> None:
    text = (ROOT / "docs" / "pains.md").read_text()
    rows = re.findall(r"^\| (\d+) \|.*\|$", text, re.MULTILINE)
    assert [int(row) for row in rows] == list(range(1, 27))
    for path, name in re.findall(r"`(tests/[\w/]+\.py)::(\w+)`", text):
        assert re.search(rf"def {name}\(", (ROOT / path).read_text()), f"{path} has no {name}"


def test_the_readme_shows_what_the_demo_prints() -> None:
    printed = subprocess.run(
        [sys.executable, "-m", "dra_driver", "demo"], cwd=ROOT, capture_output=True, text=True, check=True
    ).stdout
    shown = re.search(r"```text\n(.*?)```", (ROOT / "README.md").read_text(), re.DOTALL)
    assert shown is not None
    assert _without_chance(shown[1].strip()) == _without_chance(printed.strip())


def _without_chance(text: str) -> str:
    """UIDs, random name suffixes and times differ from run to run; so does the version, which a UID's first digit
    decides."""
    text = re.sub(r"cdiVersion: 0\.[35]\.0", "cdiVersion: VERSION", text)
    text = re.sub(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}", "UID", text)
    text = re.sub(r"(gpu\.nvidia\.com-node-a-)[0-9a-f]{5}", r"\1SUFFIX", text)
    return re.sub(r"\d+\.\d ms", "N ms", text)
