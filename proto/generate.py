"""Generates ``dra_driver/kubelet/pb`` from the wire contracts beside this file (``make proto``).

A contract lies at the path of its generated module, below this directory: so protoc writes imports that work inside the
package, and the file names in protobuf's process-wide descriptor pool (``dra_driver/kubelet/pb/dra_v1.proto``) can't
collide with those of another package that carries the same Kubernetes APIs.

Only messages and their type stubs are generated. Paths and types of the methods are read from the service descriptors
(``dra_driver.kubelet.wire``), which needs no generated stubs and no match of grpcio's version with the generator's.
"""

from __future__ import annotations

import sys
from importlib.resources import files
from pathlib import Path

from grpc_tools import protoc

CONTRACTS = Path(__file__).resolve().parent
PACKAGE = Path("dra_driver/kubelet/pb")


def generate(destination: Path) -> list[Path]:
    """Writes the modules below ``destination`` (the directory that holds the package) and returns their paths.

    Raises:
        SystemExit: protoc refused a contract; it has said why on stderr.
    """
    contracts = sorted(str(path.relative_to(CONTRACTS)) for path in (CONTRACTS / PACKAGE).glob("*.proto"))
    status = protoc.main(
        [
            "protoc",
            f"--plugin=protoc-gen-mypy={Path(sys.executable).parent / 'protoc-gen-mypy'}",
            f"--proto_path={CONTRACTS}",
            f"--proto_path={files('grpc_tools') / '_proto'}",
            f"--python_out={destination}",
            f"--mypy_out=quiet:{destination}",
            *contracts,
        ]
    )
    if status != 0:
        raise SystemExit(status)
    written = (destination / PACKAGE).glob("*_pb2.py*")
    return sorted(path for path in written if path.suffix in {".py", ".pyi"})


if __name__ == "__main__":
    for module in generate(CONTRACTS.parent):
        print(module.relative_to(CONTRACTS.parent))
