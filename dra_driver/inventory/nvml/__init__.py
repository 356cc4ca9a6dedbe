"""The GPUs of this node as the NVIDIA driver tells them, through NVIDIA's own binding (pynvml).

``calls`` is the only place where pynvml is called and its exceptions end; ``session`` loads the library and keeps one
NVML session; ``gpu``, ``fabric``, ``nvlink`` and ``mig`` read one GPU; ``patience`` limits how long a silent GPU is
waited for; ``inventory`` puts a machine together.
"""

from dra_driver.inventory.nvml.inventory import NvmlInventory

__all__ = ["NvmlInventory"]
