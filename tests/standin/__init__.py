"""A stand-in for the NVIDIA driver's management library, for machines without GPUs.

``libnvidia-ml.so.1`` is written in C (``native/``) and compiled when a test first needs it, so that pynvml, go-nvml
and every tool on top of them take their genuine way into it. All state is in one file shared by every process that
loads the library; :class:`Standin` creates it from a described machine, changes it, and injects faults, delays and
events::

    standin = Standin.create(tmp_path / "gpus", profile="dgx-h100")
    standin.fault("nvmlDeviceGetSerial", gpu=3, error="NOT_SUPPORTED")
    subprocess.run(["nvidia-ctk", ...], env={**os.environ, **standin.env})

In the test's own process set ``NVML_STANDIN_STATE`` (``standin.env``); the library reads it at every first nvmlInit.
"""

from tests.standin.build import compiler, library
from tests.standin.state import ERRORS, WHOLE_GPU, Standin

__all__ = ["ERRORS", "WHOLE_GPU", "Standin", "compiler", "library"]
