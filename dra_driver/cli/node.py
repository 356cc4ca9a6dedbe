"""``dra-driver node``: the daemon on a GPU node."""

from __future__ import annotations

import argparse
import os

from dra_driver.cli.output import Commands
from dra_driver.node.configuration import add_flags, load


def register(commands: Commands) -> None:
    command = commands.add_parser(
        "node",
        help="run the daemon on a GPU node: publish ResourceSlices, serve the kubelet",
        description="Publishes this node's GPUs as ResourceSlices and prepares claims for the kubelet.",
        epilog="Options may also come from the environment (in brackets) or from the file given with --config.",
    )
    add_flags(command)
    command.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    configuration = load(options, os.environ)
    from dra_driver.node.daemon import run as run_daemon

    return run_daemon(configuration)
