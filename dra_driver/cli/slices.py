"""``dra-driver slices``: the ResourceSlices that a node publishes, without a cluster."""

from __future__ import annotations

import argparse
import sys

from dra_driver.cli.described import add_machine_flags, configuration
from dra_driver.cli.output import Commands, add_format_flag, documents


def register(commands: Commands) -> None:
    command = commands.add_parser(
        "slices",
        help="print the ResourceSlices that this node, or a described machine, would publish",
        description="Prints ResourceSlices as YAML or JSON; they are checked with the API server's own rules first.",
        epilog="Exit status: 0 printed, 1 the driver is not ready (the empty pool is printed), 2 unusable input.",
    )
    add_machine_flags(command)
    add_format_flag(command, "yaml", "json")
    command.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    from dra_driver.devices.allocatable import allocatable_devices
    from dra_driver.devices.gpu import DRIVER
    from dra_driver.inventory.hardware import DriverState
    from dra_driver.kube.slice_objects import slice_objects
    from dra_driver.node.gpu_driver import PublishedSlice
    from dra_driver.node.hardware import hardware

    node = configuration(options)
    inventory, _ = hardware(node)
    machine = inventory.discover()
    devices = allocatable_devices(machine)
    contents = [PublishedSlice(chunk) for chunk in devices.slices()]
    print(documents(slice_objects(contents, DRIVER, node.node_name), options.output))
    for problem in devices.problems:
        print(f"{problem.subject}: {problem.what}: {problem.cause}{_in_brackets(problem.hint)}", file=sys.stderr)
    if machine.state is DriverState.READY:
        return 0
    print(f"no devices: {machine.reason}{_in_brackets(machine.hint)}", file=sys.stderr)
    return 1


def _in_brackets(hint: str | None) -> str:
    return f" ({hint})" if hint else ""
