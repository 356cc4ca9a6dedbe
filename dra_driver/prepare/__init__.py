"""From a claim to devices that a container can use, and back.

Decided here: what a ResourceClaim's allocation asks of this node, which opaque configuration applies, in which order
files are written so that a kill at any point leaves something that is found again, who may use a device, and when
leftovers are collected. The claim reader, the inventory, the CDI files, the clock and the boot id are passed in. Must
not know: gRPC, HTTP, NVML.

Reading order: ``claim`` (what is asked), ``config`` and ``kinds`` (how), ``steps`` (what changes on the node),
``records`` (what is remembered), ``service`` (the two calls of the kubelet), ``reconcile`` (what the kubelet lost).
"""
