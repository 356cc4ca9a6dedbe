"""The daemon on a GPU node: which parts run, with which configuration, and how they are told of each other.

Composes inventory, devices, publishing, the kubelet's service and prepare into one asyncio process. Decides start
and stop order, what is logged and measured; the parts themselves know nothing of each other.
"""
