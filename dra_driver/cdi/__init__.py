"""What a container must get for a device: nodes, mounts, hooks and environment, as Container Device Interface (CDI)
specs.

The folder decides which files of an NVIDIA driver a container needs (`discovery`), how the answer is kept true while
the node changes (`edits`), how a spec file is written so that a runtime never reads half of it (`files`), and which
specs are valid (`validate`). It knows GPUs and files; it does not know claims, Pods or the kubelet.

The order of reading: `spec` (the values), `edits` (where they come from), `render` and `files` (where they go).
"""
