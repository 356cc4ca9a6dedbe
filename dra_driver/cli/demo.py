"""``dra-driver demo``: the whole flow on this machine, without GPU, cluster or root.

The daemon is the real one with real sockets and files, in a temporary folder. Stand-ins play the API server, the
kubelet and, in one line, the scheduler.
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dra_driver.cli.output import Commands, documents, table

if TYPE_CHECKING:
    import asyncio

    from dra_driver.kube.standin import ApiServerStandIn
    from dra_driver.model.prepared import ClaimRef
    from dra_driver.node.configuration import NodeConfiguration

NODE = "node-a"
SLICES = "/apis/resource.k8s.io/v1/resourceslices"
CLAIMS = "/apis/resource.k8s.io/v1/namespaces/default/resourceclaims"


def register(commands: Commands) -> None:
    command = commands.add_parser(
        "demo",
        help="show the whole flow on this machine: no GPU, cluster or root needed",
        description="Runs the node daemon on a described machine and takes one claim through its life.",
    )
    command.add_argument("--profile", metavar="NAME", default="dgx-h100", help="described machine (default: dgx-h100)")
    command.add_argument(
        "--example", metavar="FILE", help="manifest with the claim template (default: examples/one-gpu.yaml)"
    )
    command.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    import asyncio
    import tempfile

    from dra_driver.node import logs

    # What the daemon would log is told here in other words.
    logs.set_up(style="text", level="error")
    template = claim_template(Path(options.example) if options.example else example_file("one-gpu.yaml"))
    # The kubelet's socket paths may have 107 bytes: a deep TMPDIR would not do.
    with tempfile.TemporaryDirectory(prefix="dra-", dir="/tmp") as folder:
        asyncio.run(show(Path(folder), options.profile, template))
    return 0


def example_file(name: str) -> Path:
    """A manifest of ``examples/``: in the source tree, or as installed beside the program."""
    import sys

    from dra_driver.errors import InputError

    places = (Path(__file__).parents[2] / "examples", Path(sys.prefix) / "share" / "dra-driver" / "examples")
    for place in places:
        if (place / name).is_file():
            return place / name
    raise InputError(f"{name} is in none of {', '.join(map(str, places))}", hint="give a manifest with --example")


def claim_template(path: Path) -> dict[str, Any]:
    """The first ResourceClaimTemplate of a manifest.

    Raises:
        InputError: unreadable, or there is none.
    """
    import yaml

    from dra_driver.errors import InputError

    try:
        found = list(yaml.safe_load_all(path.read_text()))
    except (OSError, UnicodeDecodeError, yaml.YAMLError) as error:
        raise InputError(f"can't be read: {error}", source=str(path)) from None
    for item in found:
        if isinstance(item, dict) and item.get("kind") == "ResourceClaimTemplate":
            return {"file": path, **item}
    raise InputError("has no ResourceClaimTemplate", source=str(path))


async def show(folder: Path, profile: str, template: dict[str, Any]) -> None:
    """Run daemon and stand-ins, and tell what happens."""
    import asyncio

    from dra_driver.devices.gpu import DRIVER
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
            await _claim_through_its_life(folder, configuration, api, kubelet, template)
        finally:
            stop.set()
            await daemon
    _say("Done: the driver has stopped and nothing is left behind.")


async def _claim_through_its_life(
    folder: Path, configuration: NodeConfiguration, api: ApiServerStandIn, kubelet: Any, template: dict[str, Any]
) -> None:
    import json
    import time

    from dra_driver.devices.gpu import DRIVER

    _say(f"3. A Pod wants what {template['file'].name} asks for; the scheduler's part is played by hand")
    ref, results = await _allocated_claim(api, template)
    for result in results:
        print(f"claim {ref}: request {result['request']!r} gets device {result['device']} of pool {result['pool']}")

    _say("4. The kubelet calls NodePrepareResources")
    started = time.perf_counter()
    answer = (await kubelet.prepare(DRIVER, [ref]))[ref.uid]
    first = time.perf_counter() - started
    if isinstance(answer, str):
        print(f"refused: {answer}")
        return
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


async def _allocated_claim(api: ApiServerStandIn, template: dict[str, Any]) -> tuple[ClaimRef, list[dict[str, str]]]:
    """A claim made from the template, allocated first fit: one device per request, in publishing order."""
    from dra_driver.devices.gpu import DRIVER
    from dra_driver.model.prepared import ClaimRef

    devices = [device["name"] for item in api.items(SLICES) for device in item["spec"].get("devices") or ()]
    spec = template["spec"]["spec"]
    wanted = [
        request["name"]
        for request in spec["devices"]["requests"]
        for _ in range(request.get("exactly", {}).get("count", 1))
    ]
    results = [
        {"request": request, "driver": DRIVER, "pool": NODE, "device": device}
        for request, device in zip(wanted, devices, strict=False)
    ]
    claim = await api.add(
        CLAIMS,
        {
            "apiVersion": "resource.k8s.io/v1",
            "kind": "ResourceClaim",
            "metadata": {"name": f"{template['metadata']['name']}-demo", "namespace": "default"},
            "spec": spec,
            "status": {
                "allocation": {"devices": {"results": results}},
                "reservedFor": [{"resource": "pods", "name": "demo", "uid": "demo-pod"}],
            },
        },
    )
    metadata = claim["metadata"]
    return ClaimRef("default", metadata["name"], metadata["uid"]), results


async def _first(daemon: asyncio.Task[None], wanted: Any) -> Any:
    """The wanted result; if the daemon ends before it, its error."""
    import asyncio

    waiting = asyncio.ensure_future(wanted)
    await asyncio.wait({daemon, waiting}, return_when=asyncio.FIRST_COMPLETED)
    if not waiting.done():
        waiting.cancel()
        daemon.result()
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
    import sys

    return sys.stdout.isatty()
