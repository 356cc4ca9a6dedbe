"""``dra-driver`` and ``kubectl dra``: the commands, and how errors reach a person.

Exit status: 0 done, 1 the command found something to report, 2 the input or the environment is unusable.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence

from dra_driver import __version__
from dra_driver.cli import cdi, demo, node, profiles, slices
from dra_driver.errors import DraDriverError, InternalError

COMMANDS = (node, slices, cdi, profiles, demo)


def parser(program: str = "dra-driver") -> argparse.ArgumentParser:
    """The whole command line as one parser; documentation is generated from it."""
    root = argparse.ArgumentParser(
        prog=program,
        description="NVIDIA GPUs for Kubernetes' Dynamic Resource Allocation (DRA).",
        epilog="'dra-driver COMMAND --help' explains a command. As a kubectl plugin the same program is 'kubectl dra'.",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    root.add_argument("--version", action="version", version=f"dra-driver {__version__}")
    commands = root.add_subparsers(title="commands", metavar="COMMAND", dest="command", required=True)
    for module in COMMANDS:
        module.register(commands)
    return root


def main(arguments: Sequence[str] | None = None) -> int:
    """Entry point of both programs."""
    called_as = os.path.basename(sys.argv[0])
    program = "kubectl dra" if called_as.startswith("kubectl") else "dra-driver"
    options = parser(program).parse_args(arguments)
    try:
        status: int = options.run(options)
        sys.stdout.flush()
    except BrokenPipeError:
        # The reader (head, less) has seen enough; nothing of ours went wrong.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except KeyboardInterrupt:
        return 130
    except InternalError as error:
        print(f"{program}: bug in dra-driver, please report it: {error}", file=sys.stderr)
        return 2
    except DraDriverError as error:
        print(f"{program}: {error}", file=sys.stderr)
        return 2
    else:
        return status


if __name__ == "__main__":
    sys.exit(main())
