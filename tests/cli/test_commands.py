"""What the commands print and how they end; in this process, as the entry point runs them."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from dra_driver.cli import main as command_line
from dra_driver.cli.main import main
from dra_driver.errors import InternalError
from dra_driver.inventory import profile
from dra_driver.model.validation import validate_resource_slice
from tests.cluster.apiserver import ApiServer

Printed = pytest.CaptureFixture[str]


def test_slices_are_yaml_documents_that_the_api_server_takes(capsys: Printed) -> None:
    assert main(["slices", "--profile", "dgx-h100", "--node-name", "node-7"]) == 0
    (slice_,) = yaml.safe_load_all(capsys.readouterr().out)
    assert validate_resource_slice(slice_) == []
    assert (slice_["spec"]["nodeName"], slice_["spec"]["pool"]["name"]) == ("node-7", "node-7")
    assert [device["name"] for device in slice_["spec"]["devices"]] == [f"gpu-{minor}" for minor in range(8)]


@pytest.mark.parametrize("name", profile.names())
def test_every_profile_gives_slices(capsys: Printed, name: str) -> None:
    assert main(["slices", "--profile", name, "-o", "json"]) == 0
    slice_ = json.loads(capsys.readouterr().out)
    assert validate_resource_slice(slice_) == []
    assert len(slice_["spec"]["devices"]) == profile.describe(name).gpu_count


def test_slices_of_a_node_without_a_driver_are_an_empty_pool_and_the_reason(capsys: Printed, tmp_path: Path) -> None:
    assert main(["slices", "--driver-root", str(tmp_path), "-o", "json"]) == 1
    printed = capsys.readouterr()
    assert "devices" not in json.loads(printed.out)["spec"]
    assert printed.err.startswith("no devices: no NVIDIA driver found")
    assert str(tmp_path) in printed.err
    assert "(install the NVIDIA driver, or set --driver-root" in printed.err
    assert main(["cdi", "--driver-root", str(tmp_path)]) == 2
    assert "(install the NVIDIA driver, or set --driver-root" in capsys.readouterr().err


def test_cdi_of_one_device(capsys: Printed) -> None:
    assert main(["cdi", "--profile", "t4", "--device", "gpu-1", "-o", "json"]) == 0
    spec = json.loads(capsys.readouterr().out)
    assert spec["kind"] == "k8s.gpu.nvidia.com/claim"
    assert [device["name"] for device in spec["devices"]] == ["gpu-1"]
    assert "DRA_DRIVER_DESCRIBED_MACHINE=profile:t4" in spec["containerEdits"]["env"]


def test_cdi_of_a_device_that_is_named_twice(capsys: Printed) -> None:
    assert main(["cdi", "--profile", "t4", "--device", "gpu-1", "--device", "gpu-1"]) == 0
    assert [device["name"] for device in yaml.safe_load(capsys.readouterr().out)["devices"]] == ["gpu-1"]


def test_cdi_of_all_devices_in_order(capsys: Printed) -> None:
    assert main(["cdi", "--profile", "dgx-a100"]) == 0
    spec = yaml.safe_load(capsys.readouterr().out)
    assert [device["name"] for device in spec["devices"]] == [f"gpu-{minor}" for minor in range(8)]


def test_profiles_as_a_table_and_as_json(capsys: Printed) -> None:
    assert main(["profiles"]) == 0
    heads, *rows = capsys.readouterr().out.splitlines()
    assert heads.split()[:3] == ["NAME", "GPUS", "MODEL"]
    assert [row.split()[0] for row in rows] == list(profile.names())
    assert main(["profiles", "-o", "json"]) == 0
    assert [each["name"] for each in json.loads(capsys.readouterr().out)] == list(profile.names())


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        pytest.param(
            ["slices", "--profile", "t4", "--node-name", "Bad_Name"],
            "dra-driver: nodeName: 'Bad_Name' is not a node name",
            id="node-name",
        ),
        pytest.param(["slices", "--driver-root", "rel"], "dra-driver: driverRoot: 'rel' is not an abs", id="relative"),
        pytest.param(["cdi", "--sys-root", ""], "dra-driver: sysRoot: '' is not an absolute path", id="no-sysfs"),
        pytest.param(["slices", "--profile", "dgx-h1000"], "dra-driver: there is no profile 'dgx-h1000'", id="profile"),
        pytest.param(
            ["slices", "--profile", "t4:gpus=9"],
            "dra-driver: profile 'profile:t4:gpus=9': the number of GPUs must be between 1 and 4",
            id="count",
        ),
        pytest.param(
            ["cdi", "--profile", "t4", "--device", "gpu-9"],
            "dra-driver: there is no device 'gpu-9' (there are: gpu-0, gpu-1, gpu-2, gpu-3)",
            id="device",
        ),
        pytest.param(["slices", "--profile", ""], "dra-driver: there is no profile ''", id="empty-profile"),
        pytest.param(["slices", "--node-name", ""], "dra-driver: nodeName: '' is not a node name", id="empty-name"),
        pytest.param(["demo", "--profile", "nope"], "dra-driver: there is no profile 'nope'", id="demo-profile"),
        pytest.param(["demo", "--example", "/"], "dra-driver: /: can't be read: Is a directory", id="demo-example"),
        pytest.param(["node", "--config", "/nonexistent"], "dra-driver: /nonexistent: can't read the", id="config"),
    ],
)
def test_unusable_input_is_one_line_and_status_2(
    capsys: Printed, monkeypatch: pytest.MonkeyPatch, arguments: list[str], message: str
) -> None:
    monkeypatch.setattr(sys, "argv", ["dra-driver"])
    assert main(arguments) == 2
    printed = capsys.readouterr()
    assert printed.out == ""
    assert printed.err.startswith(message)
    assert printed.err.count("\n") == 1


def test_a_bug_is_called_one(capsys: Printed, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(name: str) -> Any:
        raise InternalError(f"{name} can't be described")

    monkeypatch.setattr(sys, "argv", ["kubectl-dra"])
    monkeypatch.setattr(profile, "describe", broken)
    assert main(["profiles"]) == 2
    assert capsys.readouterr().err.startswith("kubectl dra: bug in dra-driver, please report it: ")


def test_a_reader_that_has_seen_enough_is_no_error() -> None:
    program = f"{sys.executable} -m dra_driver slices --profile dgx-h100 | head -n 1; echo ${{PIPESTATUS[0]}}"
    finished = subprocess.run(["bash", "-c", program], capture_output=True, text=True, check=True)
    assert finished.stdout == "apiVersion: resource.k8s.io/v1\n0\n"
    assert finished.stderr == ""


@pytest.mark.parametrize("buffered", ["", "1"], ids=["buffered", "unbuffered"])
@pytest.mark.parametrize(
    ("redirection", "message"),
    [
        (">/dev/full", "can't write to standard output: No space left on device"),
        (">&-", "standard output is closed (redirect it to /dev/null if it is not wanted)"),
    ],
    ids=["full", "closed"],
)
def test_output_that_can_not_be_written_is_one_error(redirection: str, message: str, buffered: str) -> None:
    program = f"{sys.executable} -m dra_driver profiles {redirection}"
    environment = {**os.environ, "PYTHONUNBUFFERED": buffered}
    finished = subprocess.run(["bash", "-c", program], capture_output=True, text=True, check=False, env=environment)
    assert (finished.returncode, finished.stderr) == (2, f"dra-driver: {message}\n")


@pytest.mark.integration
def test_a_real_api_server_stores_the_slices_of_every_profile_as_printed(capsys: Printed, apiserver: ApiServer) -> None:
    path = "/apis/resource.k8s.io/v1/resourceslices"
    for name in profile.names():
        assert main(["slices", "--profile", name, "--node-name", f"cli-{name}", "-o", "json"]) == 0
        slice_ = json.loads(capsys.readouterr().out)
        status, stored = apiserver.post(path, slice_)
        assert (status, stored.get("spec")) == (201, slice_["spec"]), name
        apiserver.delete(f"{path}/{slice_['metadata']['name']}")


@pytest.mark.parametrize("unused", ["grpc", "aiohttp", "asyncio", "yaml", "pynvml", "google.protobuf"])
def test_help_imports_nothing_that_is_slow(unused: str) -> None:
    program = (
        "import sys\n"
        "from dra_driver.cli.main import main\n"
        "try:\n    main(['--help'])\nexcept SystemExit: pass\n"
        f"assert {unused!r} not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", program], stdout=subprocess.DEVNULL, check=True)


def test_commands_have_a_summary_each(capsys: Printed) -> None:
    with pytest.raises(SystemExit) as ended:
        command_line.main(["--help"])
    assert ended.value.code == 0
    text = capsys.readouterr().out
    for module in command_line.COMMANDS:
        assert f"\n    {module.__name__.rpartition('.')[2]} " in text
