"""Tests of ``dra_driver.inventory.nvml``."""
