"""``dra-driver cdi``: what containers would get for this node's devices."""

from __future__ import annotations

import argparse
import sys

from dra_driver.cli.described import add_machine_flags, configuration
from dra_driver.cli.output import Commands, add_format_flag, documents


def register(commands: Commands) -> None:
    command = commands.add_parser(
        "cdi",
        help="print the CDI spec that containers would get for this node's devices, or a described machine's",
        description="Prints one CDI spec with every device of the node, as claims would get them.",
        epilog="Exit status: 0 printed, 1 devices that can't be given to a container are named, 2 unusable.",
    )
    add_machine_flags(command)
    command.add_argument("--device", metavar="NAME", action="append", help="only this device (repeatable)")
    command.add_argument(
        "--nvidia-cdi-hook", metavar="PATH", default="", help="nvidia-cdi-hook on the host (default: search)"
    )
    add_format_flag(command, "yaml", "json")
    command.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    from dra_driver.cdi.spec import CLASS, VENDOR, CdiDevice, Spec, as_json
    from dra_driver.devices.allocatable import allocatable_devices
    from dra_driver.errors import EnvironmentFault, InputError
    from dra_driver.node.hardware import hardware

    inventory, edits = hardware(configuration(options))
    machine = inventory.discover()
    devices = allocatable_devices(machine)
    if not devices.by_name:
        raise EnvironmentFault(f"this node has no devices: {machine.reason or 'no GPU was found'}", hint=machine.hint)
    wanted = dict.fromkeys(options.device or devices.by_name)
    unknown = [name for name in wanted if name not in devices.by_name]
    if unknown:
        raise InputError(
            f"there is no device {', '.join(map(repr, unknown))}", hint=f"there are: {', '.join(devices.by_name)}"
        )
    common = edits.common()
    found, missing = [], []
    for name in wanted:
        try:
            found.append(CdiDevice(name=name, edits=edits.gpu(devices.by_name[name].gpu)))
        except EnvironmentFault as fault:
            missing.append(f"{name}: {fault}")
    if found:
        print(documents([as_json(Spec(kind=f"{VENDOR}/{CLASS}", devices=tuple(found), common=common))], options.output))
    for line in (*edits.warnings, *missing):
        print(line, file=sys.stderr)
    return 1 if missing else 0
