"""One schema for flags, environment and file; every mistake is named with its place."""

from __future__ import annotations

import argparse
from pathlib import Path

import pytest

from dra_driver.errors import InputError
from dra_driver.node.configuration import NodeConfiguration, add_flags, load, parse_address


def loaded(*arguments: str, **environment: str) -> NodeConfiguration:
    parser = argparse.ArgumentParser()
    add_flags(parser)
    return load(parser.parse_args(arguments), environment)


def test_defaults() -> None:
    configuration = loaded(NODE_NAME="node-a")
    assert configuration == NodeConfiguration(node_name="node-a")
    assert configuration.pool_name == "node-a"
    assert configuration.rediscover_seconds == 30.0
    assert configuration.state_dir("gpu.nvidia.com") == Path("/var/lib/kubelet/plugins/gpu.nvidia.com")


def test_flag_beats_environment_beats_file(tmp_path: Path) -> None:
    file = tmp_path / "node.yaml"
    file.write_text("nodeName: from-file\nlogFormat: json\ncdiDir: /cdi-of-file\nrediscoverSeconds: 5\n")
    configuration = loaded(
        "--config", str(file), "--node-name", "from-flag", NODE_NAME="from-env", DRA_DRIVER_CDI_DIR="/cdi-of-env"
    )
    assert configuration.node_name == "from-flag"
    assert configuration.cdi_dir == "/cdi-of-env"
    assert configuration.log_format == "json"
    assert configuration.rediscover_seconds == 5.0


def test_own_environment_name_beats_the_common_one() -> None:
    assert loaded(NODE_NAME="common", DRA_DRIVER_NODE_NAME="own").node_name == "own"


@pytest.mark.parametrize(("text", "value"), [("", True), ("true", True), ("false", False), ("0", False)])
def test_boolean_flag(text: str, value: bool) -> None:
    assert loaded("--uninstall", *([text] if text else []), NODE_NAME="n").uninstall is value


@pytest.mark.parametrize(
    ("content", "message"),
    [
        pytest.param("nodename: x\n", "node.yaml:1: nodename: unknown option (did you mean nodeName?)", id="misspelt"),
        pytest.param(
            "nodeName: x\nzzz: 1\n", "node.yaml:2: zzz: unknown option (known options: nodeName", id="unknown"
        ),
        pytest.param("nodeName: 7\n", "node.yaml:1: nodeName: expected text, not 7", id="wrong-type"),
        pytest.param(
            "uninstall: maybe\n", "node.yaml:1: uninstall: expected true or false, not 'maybe'", id="not-bool"
        ),
        pytest.param("nodeName: x\nnodeName: y\n", "node.yaml:2: nodeName: is set twice", id="twice"),
        pytest.param("logFormat: xml\n", "node.yaml:1: logFormat: 'xml' is not one of text, json", id="choice"),
        pytest.param("rediscoverSeconds: -1\n", "node.yaml:1: rediscoverSeconds: -1 is not between", id="negative"),
        pytest.param("- a\n", "node.yaml:1: expected a mapping of options", id="list"),
        pytest.param("", "node.yaml:1: expected a mapping of options", id="empty"),
        pytest.param("a: [1\n", "node.yaml:2:1: is not YAML", id="broken"),
        pytest.param(
            "a: 1\n\x01\n", "node.yaml:2: is not YAML: character '\\x01' is not allowed", id="control-character"
        ),
        pytest.param(
            "cdiDir: !!python/object:os.system x\n",
            "node.yaml:1: cdiDir: 'x' is not a value of YAML type python/object:os.system",
            id="foreign-type",
        ),
        pytest.param("cdiDir: !!int x\n", "node.yaml:1: cdiDir: 'x' is not a value of YAML type int", id="tag-lies"),
        pytest.param(
            "nodeName: 2026-99-99\n",
            "node.yaml:1: nodeName: '2026-99-99' is not a value of YAML type timestamp (put text in quotes)",
            id="no-such-day",
        ),
        pytest.param("cdiDir: &a [*a]\n", "node.yaml:1: cdiDir: expected a plain value, not a list", id="recursive"),
        pytest.param("cdiDir: {a: b}\n", "node.yaml:1: cdiDir: expected a plain value, not a list or a", id="mapping"),
        pytest.param("rediscoverSeconds: .nan\n", "node.yaml:1: rediscoverSeconds: nan is not between", id="nan"),
        pytest.param("kind: Other\n", "node.yaml:1: kind: 'Other' is not NodeConfiguration", id="kind"),
    ],
)
def test_mistakes_in_the_file_are_named_with_their_line(tmp_path: Path, content: str, message: str) -> None:
    file = tmp_path / "node.yaml"
    file.write_text(content)
    with pytest.raises(InputError) as caught:
        loaded("--config", str(file), NODE_NAME="n")
    assert str(caught.value).startswith(f"{tmp_path}/{message}")


def test_unreadable_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"none\.yaml: can't read the configuration file: No such file"):
        loaded("--config", str(tmp_path / "none.yaml"), NODE_NAME="n")
    binary = tmp_path / "binary.yaml"
    binary.write_bytes(b"\xff\xfe\x00")
    with pytest.raises(InputError, match="is not UTF-8 text"):
        loaded("--config", str(binary), NODE_NAME="n")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        pytest.param(
            [], "node name is not set (give --node-name or set NODE_NAME or DRA_DRIVER_NODE_NAME)", id="no-name"
        ),
        pytest.param(["--node-name", "Big"], "nodeName: 'Big' is not a node name", id="name"),
        pytest.param(["--node-name", "n", "--inventory", "dgx"], "inventory: 'dgx' is neither", id="inventory"),
        pytest.param(["--node-name", "n", "--http-address", "x"], "httpAddress: 'x' is not host:port", id="address"),
        pytest.param(["--node-name", "n", "--cdi-dir", "cdi"], "cdiDir: 'cdi' is not an absolute path", id="relative"),
        pytest.param(["--node-name", "n", "--cdi-dir", ""], "cdiDir: '' is not an absolute path", id="no-folder"),
        pytest.param(
            ["--node-name", "n", "--pod-resources-socket", "kubelet.sock"],
            "podResourcesSocket: 'kubelet.sock' is not an absolute path",
            id="relative-socket",
        ),
        pytest.param(["--node-name", "n", "--proc-root", "proc"], "procRoot: 'proc' is not an", id="relative-proc"),
        pytest.param(["--node-name", "n", "--cdi-dir", "/a\0"], "cdiDir: has a NUL character", id="nul"),
        pytest.param(
            ["--node-name", "n", "--grpc-health-address", "51515"],
            "grpcHealthAddress: '51515' is not host:port",
            id="health-address",
        ),
        pytest.param(
            ["--node-name", "n", "--http-address", ":\u0661"], "httpAddress: ':\u0661' is not host:port", id="digits"
        ),
        *(
            pytest.param(
                ["--node-name", "n", flag, "/host"],
                f"{key}: is set, but the driver root that it belongs to is searched for (set driverRoot too)",
                id=f"{key}-alone",
            )
            for flag, key in (
                ("--host-driver-root", "hostDriverRoot"),
                ("--dev-root", "devRoot"),
                ("--host-dev-root", "hostDevRoot"),
            )
        ),
        pytest.param(
            ["--node-name", "n", "--rediscover-seconds", "soon"],
            "flag --rediscover-seconds: 'soon' is not a number of seconds",
            id="seconds",
        ),
    ],
)
def test_impossible_values(arguments: list[str], message: str) -> None:
    with pytest.raises(InputError) as caught:
        loaded(*arguments)
    assert str(caught.value).startswith(message)


@pytest.mark.parametrize(
    ("text", "address"), [(":8080", ("", 8080)), ("127.0.0.1:0", ("127.0.0.1", 0)), ("[::1]:9", ("::1", 9))]
)
def test_parse_address(text: str, address: tuple[str, int]) -> None:
    assert parse_address(text) == address
