"""A fake NVIDIA driver installation on disk: what the discovery, real ``nvidia-ctk`` and containers read.

``DriverRootBuilder(directory).build()`` lays out real shared objects, links, programs, sockets and device nodes, and
beside them the parts of /sys and /proc that belong to the same GPUs. Without root, device nodes are empty files and
``FakeDriverRoot.lstat`` answers as if they were nodes; hand it to the code under test.
"""

from tests.driver_root.builder import DriverRootBuilder, FakeDriverRoot, FakeGpu, Layout
from tests.driver_root.elf import shared_object

__all__ = ["DriverRootBuilder", "FakeDriverRoot", "FakeGpu", "Layout", "shared_object"]
