"""Tests of ``dra_driver.inventory``; the NVML part runs the real pynvml against the stand-in library."""
