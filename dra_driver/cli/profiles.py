"""``dra-driver profiles``: the described machines."""

from __future__ import annotations

import argparse
import json

from dra_driver.cli.output import Commands, add_format_flag, table


def register(commands: Commands) -> None:
    command = commands.add_parser(
        "profiles",
        help="list the described machines that stand in for hardware",
        description="Machines known without having one: use them as '--profile NAME' or '--inventory profile:NAME'.",
    )
    add_format_flag(command, "table", "json")
    command.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    from dataclasses import asdict

    from dra_driver.inventory import profile

    summaries = [profile.describe(name) for name in profile.names()]
    if options.output == "json":
        print(json.dumps([asdict(summary) for summary in summaries], indent=2))
        return 0
    rows = (
        (
            summary.name,
            str(summary.gpu_count),
            summary.product_name,
            _gibibytes(summary.memory_bytes),
            "yes" if summary.mig_capable else "no",
            (summary.nvlink or "-") + (", multi-node" if summary.multi_node_nvlink else ""),
            str(summary.numa_nodes),
            str(summary.pcie_roots),
        )
        for summary in summaries
    )
    print(table(("NAME", "GPUS", "MODEL", "MEMORY", "MIG", "NVLINK", "NUMA NODES", "PCIE ROOTS"), rows))
    return 0


def _gibibytes(memory: int | None) -> str:
    return "unified" if memory is None else f"{memory / 2**30:.1f} GiB"
