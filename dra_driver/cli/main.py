"""``dra-driver`` and ``kubectl dra``: the commands, and how errors reach a person.

Exit status: 0 done, 1 the command found something to report, 2 the input or the environment is unusable.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from dra_driver import __version__
from dra_driver.cli import cdi, demo, node, profiles, slices
from dra_driver.errors import DraDriverError, EnvironmentFault, InternalError

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
    try:
        with _flushed_output():
            options = parser(program).parse_args(arguments)
            status: int = options.run(options)
            return status
    except BrokenPipeError:
        return 0  # the reader (head, less) has seen enough; nothing of ours went wrong
    except KeyboardInterrupt:
        return 130
    except InternalError as error:
        print(f"{program}: bug in dra-driver, please report it: {error}", file=sys.stderr)
        return 2
    except DraDriverError as error:
        print(f"{program}: {error}", file=sys.stderr)
        return 2


@contextmanager
def _flushed_output() -> Iterator[None]:
    """What was printed has been written when this ends, or an error says that it was not.

    Raises:
        EnvironmentFault: nothing can be written to standard output, for example because a disk is full.
        BrokenPipeError: nobody reads it any more.
    """
    if sys.stdout is None:
        raise EnvironmentFault("standard output is closed", hint="redirect it to /dev/null if it is not wanted")
    try:
        try:
            yield
        finally:
            sys.stdout.flush()
    except OSError as error:
        if error.filename is not None:
            raise  # of a file, which the command should have mapped: a bug
        # The interpreter flushes once more at its end, and would complain.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        if isinstance(error, BrokenPipeError):
            raise
        raise EnvironmentFault(f"can't write to standard output: {error.strerror or error}") from None


if __name__ == "__main__":
    sys.exit(main())
