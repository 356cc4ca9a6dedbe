"""How hardware becomes DRA devices: names, attributes, capacity, order, and the split into slices.

Decides what a ResourceSlice says about a GPU. Knows the model and the inventory's values; must not know the API
server, the kubelet or claims.
"""
