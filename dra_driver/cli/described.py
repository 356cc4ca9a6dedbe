"""Options shared by the commands that show what a node would do: which machine, under which node name."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from dra_driver.node.configuration import NodeConfiguration

DEFAULT_DESCRIBED_NODE = "node-a"


def add_machine_flags(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--profile", metavar="NAME", help="a described machine (dra-driver profiles) instead of this one"
    )
    parser.add_argument(
        "--node-name", metavar="NAME", help="name of the node (default: this host, or node-a with --profile)"
    )
    parser.add_argument("--driver-root", metavar="DIR", default="", help="root of the NVIDIA driver (default: search)")
    parser.add_argument("--sys-root", metavar="DIR", default="/sys", help="where sysfs is mounted (default: /sys)")


def configuration(options: argparse.Namespace) -> NodeConfiguration:
    """The node configuration that these options stand for.

    Raises:
        InputError: an option has an impossible value.
    """
    import socket

    from dra_driver.node.configuration import NodeConfiguration, check

    described = options.profile is not None
    name = options.node_name
    if name is None:
        name = DEFAULT_DESCRIBED_NODE if described else socket.gethostname().lower()
    stands_for = NodeConfiguration(
        node_name=name,
        inventory=f"profile:{options.profile}" if described else "nvml",
        driver_root=options.driver_root,
        sys_root=options.sys_root,
        nvidia_cdi_hook=getattr(options, "nvidia_cdi_hook", ""),
        bundled_cdi_hook="",
    )
    check(stands_for)
    return stands_for
