"""``dra-driver demo``: the whole flow on this machine, without GPU, cluster or root.

The daemon is the real one with real sockets and files, in a temporary folder. Stand-ins play the API server, the
kubelet and, in one line, the scheduler.
"""

from __future__ import annotations

import argparse
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dra_driver.cli.output import Commands, documents, table

if TYPE_CHECKING:
    import asyncio

    from dra_driver.kube.standin import ApiServerStandIn
    from dra_driver.model.prepared import ClaimRef
    from dra_driver.model.resource import ResourceClaimTemplate
    from dra_driver.node.configuration import NodeConfiguration

NODE = "node-a"
SLICES = "/apis/resource.k8s.io/v1/resourceslices"
CLAIMS = "/apis/resource.k8s.io/v1/namespaces/default/resourceclaims"
INTERRUPTED = 130
"""Exit status after Ctrl-C, as the shell has it."""


def register(commands: Commands) -> None:
    command = commands.add_parser(
        "demo",
        help="show the whole flow on this machine: no GPU, cluster or root needed",
        description="Runs the node daemon on a described machine and takes one claim through its life.",
        epilog="Exit status: 0 done, 1 the driver refused the claim, 2 unusable input.",
    )
    command.add_argument("--profile", metavar="NAME", default="dgx-h100", help="described machine (default: dgx-h100)")
    command.add_argument(
        "--example", metavar="FILE", help="manifest with the claim template (default: examples/one-gpu.yaml)"
    )
    command.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    import asyncio
    import tempfile

    from dra_driver.errors import EnvironmentFault, InputError
    from dra_driver.inventory.profile import DescribedInventory
    from dra_driver.node import logs

    # What the daemon would log is told here in other words.
    logs.set_up(style="text", level="error")
    machine = DescribedInventory(options.profile, node_name=NODE).discover()
    path = Path(options.example) if options.example else example_file("one-gpu.yaml")
    claim = WantedClaim.of(path, claim_template(path), len(machine.gpus))
    if len(claim.results) > len(machine.gpus):
        raise InputError(
            f"asks for {len(claim.results)} devices, {options.profile} has {len(machine.gpus)}",
            source=str(path),
            hint="choose a larger machine with --profile",
        )
    # The kubelet's socket paths may have 107 bytes: a deep TMPDIR would not do.
    place = "/tmp"
    try:
        folder = tempfile.TemporaryDirectory(prefix="dra-", dir=place)
    except OSError as error:
        raise EnvironmentFault(f"can't make a folder in {place}: {error.strerror or error}") from None
    with folder:
        return asyncio.run(show(Path(folder.name), options.profile, claim))


@dataclass(frozen=True, slots=True)
class WantedClaim:
    """What a template asks for.

    Attributes:
        file: the manifest.
        name: of the claim.
        spec: the claim's, as JSON.
        results: one allocation result per device, still without the device's name.
        config: the claim's configuration, as an allocation carries it.
        judged: whether selectors or constraints would have to be evaluated.
    """

    file: Path
    name: str
    spec: dict[str, Any]
    results: tuple[dict[str, Any], ...]
    config: tuple[dict[str, Any], ...]
    judged: bool

    @classmethod
    def of(cls, file: Path, template: ResourceClaimTemplate, devices: int) -> WantedClaim:
        """What the template asks for on a machine with so many devices; of alternatives the first."""
        from dra_driver.devices.gpu import DRIVER
        from dra_driver.model import codec

        wanted = template.spec.spec.devices
        results: list[dict[str, Any]] = []
        judged = bool(wanted.constraints)
        for request in wanted.requests:
            detail = request.exactly or next(iter(request.first_available), None)
            if detail is None:
                continue
            name = request.name if request.exactly else f"{request.name}/{request.first_available[0].name}"
            result: dict[str, Any] = {"request": name, "driver": DRIVER, "pool": NODE}
            if request.exactly and request.exactly.admin_access:
                result["adminAccess"] = True
            results += [result] * (devices if detail.allocation_mode == "All" else detail.count)
            judged |= bool(detail.selectors)
        spec = codec.encode(template.spec.spec)
        config = tuple({"source": "FromClaim", **item} for item in spec.get("devices", {}).get("config", ()))
        return cls(file, f"{template.metadata.name}-demo", spec, tuple(results), config, judged)


def example_file(name: str) -> Path:
    """A manifest of ``examples/``: in the source tree, or as installed beside the program."""
    import sys

    from dra_driver.errors import InputError

    places = (Path(__file__).parents[2] / "examples", Path(sys.prefix) / "share" / "dra-driver" / "examples")
    for place in places:
        if (place / name).is_file():
            return place / name
    raise InputError(f"{name} is in none of {', '.join(map(str, places))}", hint="give a manifest with --example")


def claim_template(path: Path) -> ResourceClaimTemplate:
    """The first ResourceClaimTemplate of a manifest.

    Raises:
        InputError: unreadable, or there is none.
    """
    import yaml

    from dra_driver.errors import InputError
    from dra_driver.model import codec
    from dra_driver.model.resource import ResourceClaimTemplate

    try:
        found = list(yaml.safe_load_all(path.read_text(encoding="utf-8")))
    except OSError as error:
        raise InputError(f"can't be read: {error.strerror or error}", source=str(path)) from None
    except (UnicodeDecodeError, yaml.YAMLError, ValueError) as error:
        raise InputError(f"is not YAML: {' '.join(str(error).split())}", source=str(path)) from None
    for item in found:
        if isinstance(item, dict) and item.get("kind") == "ResourceClaimTemplate":
            return codec.decode(ResourceClaimTemplate, item, source=str(path), strict=True)
    raise InputError(
        "has no ResourceClaimTemplate", source=str(path), hint="examples/one-gpu.yaml is a manifest with one"
    )


async def show(folder: Path, profile: str, claim: WantedClaim) -> int:
    """Run daemon and stand-ins, and tell what happens; returns the exit status."""
    import asyncio

    from dra_driver.devices.gpu import DRIVER
    from dra_driver.errors import EnvironmentFault
    from dra_driver.kube.standin import ApiServerStandIn
    from dra_driver.kubelet.standin import KubeletStandIn
    from dra_driver.node.configuration import NodeConfiguration
    from dra_driver.node.daemon import Daemon

    async with ApiServerStandIn() as api, KubeletStandIn(folder / "registry") as kubelet:
        await api.add("/api/v1/nodes", {"apiVersion": "v1", "kind": "Node", "metadata": {"name": NODE}})
        configuration = NodeConfiguration(
            node_name=NODE,
            inventory=f"profile:{profile}",
            kubeconfig=str(_kubeconfig(folder, api.url)),
            cdi_dir=str(folder / "cdi"),
            kubelet_plugins_dir=str(folder / "plugins"),
            kubelet_registry_dir=str(folder / "registry"),
            pod_resources_socket=str(folder / "pod-resources.sock"),
            http_address="",
            stop_grace_seconds=1.0,
        )
        _say(f"1. The driver starts on a described machine ({profile}) and publishes what it found")
        stop = asyncio.Event()
        daemon = asyncio.create_task(Daemon(configuration).run(stop))
        try:
            await _first(daemon, api.wait_for(lambda objects: any(path.startswith(SLICES) for path in objects)))
            _print_slices(api, profile)
            _say("2. The kubelet finds the driver's socket and registers it")
            plugin = await _first(daemon, kubelet.registered(DRIVER))
            print(f"{plugin.driver} serves {plugin.version} on {_below(folder, plugin.endpoint)}")
            prepared = await _claim_through_its_life(folder, configuration, api, kubelet, claim)
        except EnvironmentFault:
            if stop.is_set():  # by a signal, and the driver hung up
                return INTERRUPTED
            raise
        finally:
            stop.set()
            await daemon
    _say("Done: the driver has stopped and nothing is left behind.")
    return 0 if prepared else 1


async def _claim_through_its_life(
    folder: Path, configuration: NodeConfiguration, api: ApiServerStandIn, kubelet: Any, claim: WantedClaim
) -> bool:
    """Returns whether the driver prepared the claim."""
    import json
    import time

    from dra_driver.devices.gpu import DRIVER

    _say(f"3. A Pod wants what {claim.file.name} asks for; the scheduler's part is played by hand")
    ref, results = await _allocated_claim(api, claim)
    for result in results:
        print(f"claim {ref}: request {result['request']!r} gets device {result['device']} of pool {result['pool']}")
    if claim.judged:
        print("(selectors and constraints are not evaluated here: devices are taken in order)")

    _say("4. The kubelet calls NodePrepareResources")
    started = time.perf_counter()
    answer = (await kubelet.prepare(DRIVER, [ref]))[ref.uid]
    first = time.perf_counter() - started
    if isinstance(answer, str):
        print(f"refused: {answer}")
        return False
    started = time.perf_counter()
    await kubelet.prepare(DRIVER, [ref])
    again = time.perf_counter() - started
    for device in answer:
        print(f"{device.device} for {', '.join(device.requests)}: CDI device {', '.join(device.cdi_ids)}")
    print(f"answered in {first * 1e3:.1f} ms; asked again, from the verified record, in {again * 1e3:.1f} ms")

    _say("5. The container runtime reads the CDI spec")
    for file in sorted(Path(configuration.cdi_dir).glob("*.json")):
        print(f"# {_below(folder, str(file))}")
        print(documents([json.loads(file.read_text())], "yaml"))
    print("(a described machine has no device nodes: the container gets variables that say so)")

    _say("6. The Pod ends: NodeUnprepareResources")
    errors = await kubelet.unprepare(DRIVER, [ref])
    left = [*Path(configuration.cdi_dir).glob("*.json"), *configuration.state_dir(DRIVER).glob("claims/*.json")]
    print(errors[ref.uid] or f"unprepared; CDI specs and records left: {len(left)}")
    return True


async def _allocated_claim(api: ApiServerStandIn, claim: WantedClaim) -> tuple[ClaimRef, list[dict[str, Any]]]:
    """The claim as the API server has it once it is allocated: devices in publishing order."""
    from dra_driver.model.prepared import ClaimRef

    devices = [device["name"] for item in api.items(SLICES) for device in item["spec"].get("devices") or ()]
    results = [{**result, "device": device} for result, device in zip(claim.results, devices, strict=False)]
    stored = await api.add(
        CLAIMS,
        {
            "apiVersion": "resource.k8s.io/v1",
            "kind": "ResourceClaim",
            "metadata": {"name": claim.name, "namespace": "default"},
            "spec": claim.spec,
            "status": {
                "allocation": {"devices": {"results": results, "config": list(claim.config)}},
                "reservedFor": [{"resource": "pods", "name": "demo", "uid": "demo-pod"}],
            },
        },
    )
    metadata = stored["metadata"]
    return ClaimRef("default", metadata["name"], metadata["uid"]), results


async def _first(daemon: asyncio.Task[None], wanted: Any) -> Any:
    """The wanted result.

    Raises:
        DraDriverError: the daemon ended before it; its own error, if it had one.
    """
    import asyncio

    from dra_driver.errors import EnvironmentFault

    waiting = asyncio.ensure_future(wanted)
    await asyncio.wait({daemon, waiting}, return_when=asyncio.FIRST_COMPLETED)
    if not waiting.done():
        waiting.cancel()
        await asyncio.wait({waiting})
        daemon.result()
        raise EnvironmentFault("the driver has stopped")
    return waiting.result()


def _print_slices(api: ApiServerStandIn, profile: str) -> None:
    columns = ("productName", "resource.kubernetes.io/pciBusID", "resource.kubernetes.io/numaNode", "nvlinkCount")
    rows = []
    for item in api.items(SLICES):
        spec = item["spec"]
        print(f"ResourceSlice {item['metadata']['name']}: pool {spec['pool']['name']}, {len(spec['devices'])} devices")
        for device in spec["devices"]:
            values = [next(iter(device["attributes"].get(name, {"": "-"}).values())) for name in columns]
            rows.append((device["name"], device["capacity"]["memory"]["value"], *map(str, values)))
    print(table(("DEVICE", "MEMORY", *(column.rpartition("/")[2] for column in columns)), rows))
    print(f"(everything: dra-driver slices --profile {profile})")


def _kubeconfig(folder: Path, url: str) -> Path:
    path = folder / "kubeconfig"
    config = {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": "demo", "cluster": {"server": url}}],
        "users": [{"name": "demo", "user": {}}],
        "contexts": [{"name": "demo", "context": {"cluster": "demo", "user": "demo"}}],
        "current-context": "demo",
    }
    path.write_text(documents([config], "yaml"))
    return path


def _below(folder: Path, path: str) -> str:
    return path.replace(str(folder), "<demo>")


def _say(text: str) -> None:
    print(f"\n\033[1m{text}\033[0m" if _is_terminal() else f"\n{text}")


def _is_terminal() -> bool:
    import os
    import sys

    return sys.stdout.isatty() and not os.environ.get("NO_COLOR")
