"""The node daemon's configuration: one schema for flags, environment and file.

Each option is a field of :class:`NodeConfiguration`. From it come the flag ``--option-name``, the environment variable
``DRA_DRIVER_OPTION_NAME`` and the key ``optionName`` of the configuration file, which is strict: unknown keys and
wrong types are errors with their place. Precedence: flag, environment, file, default. A dataclass, not pydantic: a
daemon that needs no pydantic saves 5 MiB and 60 ms (docs/performance.md).
"""

from __future__ import annotations

import argparse
import difflib
import re
from collections.abc import Mapping
from dataclasses import MISSING, Field, dataclass, field, fields
from pathlib import Path
from typing import Any

from dra_driver.errors import InputError

ENVIRONMENT_PREFIX = "DRA_DRIVER_"
FILE_KIND = {"apiVersion": "config.dra-driver.io/v1alpha1", "kind": "NodeConfiguration"}


def _option(
    help_text: str, default: Any = MISSING, *, also: tuple[str, ...] = (), choices: tuple[str, ...] = ()
) -> Any:
    """A configuration field: ``also`` names further environment variables, ``choices`` the allowed values."""
    metadata = {"help": help_text, "also": also, "choices": choices}
    return field(metadata=metadata) if default is MISSING else field(default=default, metadata=metadata)


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeConfiguration:
    """Everything that can be set for ``dra-driver node``."""

    node_name: str = _option("name of this node; also the name of its resource pool", also=("NODE_NAME",))
    pod_uid: str = _option(
        "UID of the Pod that runs the driver; makes socket names unique so that two instances can overlap in a rolling "
        "update",
        "",
        also=("POD_UID",),
    )
    inventory: str = _option(
        "'nvml' for the GPUs of this node, or 'profile:NAME[:gpus=N]' for a described machine (dra-driver profiles)",
        "nvml",
    )
    kubeconfig: str = _option("kubeconfig file; empty for the ServiceAccount of the Pod", "", also=("KUBECONFIG",))
    driver_root: str = _option(
        "root of the NVIDIA driver's files as seen by this process; empty to search /, /run/nvidia/driver, "
        "/home/kubernetes/bin/nvidia, each also under /driver-root",
        "",
    )
    host_driver_root: str = _option(
        "the same root as the container runtime on the host sees it; empty when it is the same path", ""
    )
    dev_root: str = _option("folder that holds dev/ with the GPU's device nodes; empty for the driver root, else /", "")
    host_dev_root: str = _option("the same folder as seen on the host; empty when it is the same path", "")
    nvidia_cdi_hook: str = _option(
        "nvidia-cdi-hook as seen on the host; empty for a copy of the bundled one, else to search for it", ""
    )
    bundled_cdi_hook: str = _option(
        "nvidia-cdi-hook in the image; it is copied to the plugin folder, where the host can run it",
        "/usr/bin/nvidia-cdi-hook",
    )
    sys_root: str = _option("where sysfs is mounted", "/sys")
    proc_root: str = _option("where procfs is mounted", "/proc")
    cdi_dir: str = _option("folder of the CDI specs that the container runtime watches", "/var/run/cdi")
    kubelet_plugins_dir: str = _option("the kubelet's plugin folder", "/var/lib/kubelet/plugins")
    kubelet_registry_dir: str = _option("the kubelet's plugin registration folder", "/var/lib/kubelet/plugins_registry")
    pod_resources_socket: str = _option(
        "the kubelet's PodResources socket, asked before something is collected",
        "/var/lib/kubelet/pod-resources/kubelet.sock",
    )
    sockets: str = _option(
        "'two': separate sockets for registration and service; 'one': both on the registration socket",
        "two",
        choices=("two", "one"),
    )
    http_address: str = _option("address of /metrics, /healthz and /readyz (host:port); empty to serve none", ":8080")
    grpc_health_address: str = _option(
        "address of the gRPC health protocol (host:port), with the services liveness and readiness; empty for none",
        "",
    )
    log_format: str = _option("log lines as 'text' or 'json'", "text", choices=("text", "json"))
    log_level: str = _option("least severe level that is logged", "info", choices=("debug", "info", "warning", "error"))
    rediscover_seconds: float = _option("seconds between two looks at the hardware", 30.0)
    reconcile_seconds: float = _option("seconds between two collections of what the kubelet lost", 600.0)
    stop_grace_seconds: float = _option("seconds that running kubelet calls get to finish at stop", 30.0)
    uninstall: bool = _option("remove this node's ResourceSlices at stop (not for rolling updates)", False)

    @property
    def pool_name(self) -> str:
        """A node's devices are one pool, named after it."""
        return self.node_name

    def state_dir(self, driver: str) -> Path:
        """Where the driver's durable records lie: beside its socket, as Kubernetes drivers do."""
        return Path(self.kubelet_plugins_dir) / driver


def flag_name(option: Field[Any]) -> str:
    """``--option-name``."""
    return "--" + option.name.replace("_", "-")


def environment_names(option: Field[Any]) -> tuple[str, ...]:
    """The variables that set the option, the strongest first."""
    return (ENVIRONMENT_PREFIX + option.name.upper(), *option.metadata["also"])


def file_key(option: Field[Any]) -> str:
    """``optionName``, as in the configuration file and in messages."""
    head, *rest = option.name.split("_")
    return head + "".join(part.capitalize() for part in rest)


def options() -> tuple[Field[Any], ...]:
    """The schema, in order."""
    return fields(NodeConfiguration)


def add_flags(parser: argparse.ArgumentParser) -> None:
    """One flag per option, and ``--config`` for the file. Values stay text: all sources are converted alike."""
    parser.add_argument("--config", metavar="FILE", help="configuration file (YAML); flags and environment override it")
    for option in options():
        text = option.metadata["help"]
        default = "" if option.default is MISSING else f" (default: {_shown(option.default)})"
        env = ", ".join(environment_names(option))
        keywords: dict[str, Any] = {
            "dest": f"option_{option.name}",
            "default": None,
            "help": f"{text}{default} [{env}]",
        }
        if _kind(option) is bool:
            keywords |= {"nargs": "?", "const": "true"}
        parser.add_argument(flag_name(option), metavar=_metavar(option), **keywords)


def load(flags: argparse.Namespace, environment: Mapping[str, str]) -> NodeConfiguration:
    """Merge all sources.

    Raises:
        InputError: unreadable file, unknown key, wrong type, missing or impossible value; names the source and the
        option.
    """
    path = flags.config
    from_file = _read_file(Path(path)) if path else {}
    values: dict[str, Any] = {}
    for option in options():
        flag = getattr(flags, f"option_{option.name}", None)
        if flag is not None:
            values[option.name] = _convert(option, flag, source=f"flag {flag_name(option)}")
            continue
        name = next((name for name in environment_names(option) if environment.get(name)), None)
        if name is not None:
            values[option.name] = _convert(option, environment[name], source=f"environment variable {name}")
        elif option.name in from_file:
            values[option.name] = from_file[option.name]
        elif option.default is MISSING:
            raise InputError(
                f"{option.name.replace('_', ' ')} is not set",
                hint=f"give {flag_name(option)} or set {' or '.join(reversed(environment_names(option)))}",
            )
    configuration = NodeConfiguration(**values)
    check(configuration)
    return configuration


def _kind(option: Field[Any]) -> type:
    return {"str": str, "float": float, "bool": bool}[str(option.type)]


def _metavar(option: Field[Any]) -> str:
    choices: tuple[str, ...] = option.metadata["choices"]
    if choices:
        return "|".join(choices)
    return {str: "TEXT", float: "SECONDS", bool: "true|false"}[_kind(option)]


def _shown(default: Any) -> str:
    return "none" if default == "" else str(default).lower() if isinstance(default, bool) else str(default)


def _convert(option: Field[Any], value: str, *, source: str) -> Any:
    kind = _kind(option)
    if kind is bool:
        if value.lower() in ("true", "1", "yes"):
            return True
        if value.lower() in ("false", "0", "no"):
            return False
        raise InputError(f"{value!r} is not true or false", source=source)
    if kind is float:
        try:
            number = float(value)
        except ValueError:
            raise InputError(f"{value!r} is not a number of seconds", source=source) from None
        return _checked(option, number, source=source)
    return _checked(option, value, source=source)


def _checked(option: Field[Any], value: Any, *, source: str, line: int | None = None) -> Any:
    choices: tuple[str, ...] = option.metadata["choices"]
    if choices and value not in choices:
        raise InputError(
            f"{value!r} is not one of {', '.join(choices)}", source=source, line=line, path=file_key(option)
        )
    if isinstance(value, float) and not 0 < value <= 86_400:
        raise InputError(
            f"{value:g} is not between 0 and 86400 seconds", source=source, line=line, path=file_key(option)
        )
    return value


def _read_file(path: Path) -> dict[str, Any]:
    """Options of a configuration file by field name, strictly typed; every error names file and line."""
    import yaml

    source = str(path)
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "is not UTF-8 text"
        raise InputError(f"can't read the configuration file: {reason}", source=source) from None
    try:
        node = yaml.compose(text, Loader=yaml.SafeLoader)
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark
        raise InputError(
            f"is not YAML: {error.problem}",
            source=source,
            line=mark.line + 1 if mark else None,
            column=mark.column + 1 if mark else None,
        ) from None
    except yaml.reader.ReaderError as error:
        line = text.count("\n", 0, error.position) + 1
        raise InputError(
            f"is not YAML: character {chr(error.character)!r} is not allowed", source=source, line=line
        ) from None
    if not isinstance(node, yaml.MappingNode):
        raise InputError("expected a mapping of options", source=source, line=1)
    by_key = {file_key(option): option for option in options()}
    constructor = yaml.SafeLoader("")
    seen: set[str] = set()
    values: dict[str, Any] = {}
    for key_node, value_node in node.value:
        line = key_node.start_mark.line + 1
        key = key_node.value if isinstance(key_node, yaml.ScalarNode) else None
        if key is None:
            raise InputError("an option's name must be text", source=source, line=line)
        if key in seen:
            raise InputError("is set twice", source=source, line=line, path=key)
        seen.add(key)
        # Every option is a plain value, so nothing is built from tags, anchors and nested values.
        if not isinstance(value_node, yaml.ScalarNode):
            raise InputError("expected a plain value, not a list or a mapping", source=source, line=line, path=key)
        try:
            value = constructor.construct_object(value_node)
        except (yaml.YAMLError, ValueError):
            raise InputError(
                f"{value_node.value!r} is not a value of YAML type {value_node.tag.removeprefix(_YAML_TAG)}",
                source=source,
                line=line,
                path=key,
                hint="put text in quotes",
            ) from None
        if key in FILE_KIND:
            if value != FILE_KIND[key]:
                raise InputError(f"{value!r} is not {FILE_KIND[key]}", source=source, line=line, path=key)
            continue
        if key not in by_key:
            near = difflib.get_close_matches(key, by_key, n=1)
            raise InputError(
                "unknown option",
                source=source,
                line=line,
                path=key,
                hint=f"did you mean {near[0]}?" if near else f"known options: {', '.join(by_key)}",
            )
        option = by_key[key]
        kind = _kind(option)
        if kind is float and type(value) is int:
            value = float(value)
        if type(value) is not kind:
            wanted = {str: "text", float: "a number of seconds", bool: "true or false"}[kind]
            raise InputError(f"expected {wanted}, not {value!r}", source=source, line=line, path=key)
        values[option.name] = _checked(option, value, source=source, line=line)
    return values


_YAML_TAG = "tag:yaml.org,2002:"
_NODE_NAME = re.compile(r"[a-z0-9]([-a-z0-9.]*[a-z0-9])?")
_PATHS = (
    "driver_root",
    "host_driver_root",
    "dev_root",
    "host_dev_root",
    "nvidia_cdi_hook",
    "bundled_cdi_hook",
    "sys_root",
    "proc_root",
    "cdi_dir",
    "kubelet_plugins_dir",
    "kubelet_registry_dir",
    "pod_resources_socket",
)
_NEVER_EMPTY = ("sys_root", "proc_root", "cdi_dir", "kubelet_plugins_dir", "kubelet_registry_dir")
_OF_A_DRIVER_ROOT = ("host_driver_root", "dev_root", "host_dev_root")


def check(configuration: NodeConfiguration) -> None:
    """Rules that concern values rather than types.

    Raises:
        InputError: the first broken rule, with the option's key.
    """
    keys = {option.name: file_key(option) for option in options()}
    for name, key in keys.items():
        if "\0" in str(getattr(configuration, name)):
            raise InputError("has a NUL character", path=key)
    if len(configuration.node_name) > 253 or not _NODE_NAME.fullmatch(configuration.node_name):
        raise InputError(
            f"{configuration.node_name!r} is not a node name (lower-case letters, digits, '-' and '.', at most 253)",
            path="nodeName",
        )
    if configuration.inventory != "nvml" and not configuration.inventory.startswith("profile:"):
        raise InputError(
            f"{configuration.inventory!r} is neither 'nvml' nor 'profile:NAME'",
            path="inventory",
            hint="dra-driver profiles lists the names",
        )
    for name in ("http_address", "grpc_health_address"):
        address = getattr(configuration, name)
        if address:
            parse_address(address, path=keys[name])
    for name in _PATHS:
        value = getattr(configuration, name)
        if not (value.startswith("/") or (not value and name not in _NEVER_EMPTY)):
            raise InputError(f"{value!r} is not an absolute path", path=keys[name])
    for name in _OF_A_DRIVER_ROOT:
        if getattr(configuration, name) and not configuration.driver_root:
            raise InputError(
                "is set, but the driver root that it belongs to is searched for",
                path=keys[name],
                hint=f"set {keys['driver_root']} too",
            )


def parse_address(address: str, *, path: str = "httpAddress") -> tuple[str, int]:
    """``host:port`` or ``:port`` (all interfaces), ``[::1]:port`` for IPv6.

    Raises:
        InputError: it is not; names the option ``path``.
    """
    host, colon, port = address.rpartition(":")
    if not colon or not re.fullmatch("[0-9]{1,5}", port) or int(port) > 65_535:
        raise InputError(f"{address!r} is not host:port", path=path)
    return host.strip("[]"), int(port)
