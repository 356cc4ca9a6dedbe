"""``dra-driver demo`` with other machines and manifests, and when it is interrupted."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path

import pytest

from dra_driver.cli.main import main

EXAMPLES = Path(__file__).parents[2] / "examples"
REFUSED = """
apiVersion: resource.k8s.io/v1
kind: ResourceClaimTemplate
metadata: {name: shared}
spec:
  spec:
    devices:
      requests: [{name: gpu, exactly: {deviceClassName: gpu.nvidia.com}}]
      config:
      - opaque:
          driver: gpu.nvidia.com
          parameters: {apiVersion: resource.nvidia.com/v1beta1, kind: GpuConfig, sharing: {strategy: Unheard}}
"""

Printed = pytest.CaptureFixture[str]


@pytest.fixture(autouse=True)
def called_by_its_name(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "argv", ["dra-driver"])


@pytest.mark.parametrize(
    ("example", "results"),
    [
        pytest.param("two-gpus-one-pcie-root", ["'gpus' gets device gpu-0", "'gpus' gets device gpu-1"], id="count"),
        pytest.param("first-available", ["'compute/one-large' gets device gpu-0"], id="first-alternative"),
        pytest.param("admin-access", [f"'all' gets device gpu-{minor}" for minor in range(4)], id="all"),
    ],
)
def test_claims_of_other_shapes(capsys: Printed, example: str, results: list[str]) -> None:
    assert main(["demo", "--profile", "t4", "--example", str(EXAMPLES / f"{example}.yaml")]) == 0
    printed = capsys.readouterr().out
    assert [line.partition(": request ")[2] for line in printed.splitlines() if ": request " in line] == [
        f"{result} of pool node-a" for result in results
    ]
    assert "unprepared; CDI specs and records left: 0" in printed


def test_a_refused_claim_is_told_and_status_1(capsys: Printed, tmp_path: Path) -> None:
    (tmp_path / "shared.yaml").write_text(REFUSED)
    assert main(["demo", "--example", str(tmp_path / "shared.yaml")]) == 1
    (refusal,) = [line for line in capsys.readouterr().out.splitlines() if line.startswith("refused: ")]
    assert "Unheard" in refusal


@pytest.mark.parametrize(
    ("content", "message"),
    [
        pytest.param("a: [", "is not YAML: ", id="not-yaml"),
        pytest.param("kind: Pod", "has no ResourceClaimTemplate (examples/one-gpu.yaml is", id="other-kind"),
        pytest.param(
            "{apiVersion: resource.k8s.io/v1, kind: ResourceClaimTemplate, metadata: {name: x}, spec: {spec: 1}}",
            "spec.spec: ",
            id="other-shape",
        ),
        pytest.param(
            REFUSED.replace("deviceClassName: gpu.nvidia.com}", "deviceClassName: gpu.nvidia.com, count: 9}"),
            "asks for 9 devices, dgx-h100 has 8 (choose a larger machine with --profile)",
            id="too-many",
        ),
    ],
)
def test_manifests_that_can_not_be_used(capsys: Printed, tmp_path: Path, content: str, message: str) -> None:
    file = tmp_path / "claim.yaml"
    file.write_text(content)
    assert main(["demo", "--example", str(file)]) == 2
    printed = capsys.readouterr()
    assert printed.out == ""
    assert printed.err.startswith(f"dra-driver: {file}: {message}")
    assert printed.err.count("\n") == 1


def test_interrupting_ends_it_quietly() -> None:
    program = [sys.executable, "-u", "-m", "dra_driver", "demo"]
    with subprocess.Popen(program, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as demo:
        assert demo.stdout is not None
        next(line for line in demo.stdout if "registers it" in line)
        demo.send_signal(signal.SIGINT)
        _, errors = demo.communicate()
    assert (demo.returncode, errors) in {(130, ""), (0, "")}, "0: it had done everything already"
