"""Kubernetes' values and objects: what they are, how they are written, and what the API server would say about them.

Decided here: exact quantities and versions, names, the objects of ``resource.k8s.io/v1`` as immutable values with their
JSON (older API versions are read into v1), and the API server's validation ahead of a write. Must not know: anything
else of this project but its errors; no file, clock or network.
"""
