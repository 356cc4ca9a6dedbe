"""What hardware a node has: through NVML and sysfs, or as a described profile.

The folder decides which facts are read, from where, and what an unreadable one costs (an attribute, a GPU, never the
node). It knows nothing about Kubernetes: naming devices, attributes and slices is the business of
``dra_driver.devices``.
"""
