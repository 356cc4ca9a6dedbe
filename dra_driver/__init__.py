"""dra-driver: GPUs for Kubernetes' Dynamic Resource Allocation, and an offline claim checker."""

__version__ = "0.1.0"
