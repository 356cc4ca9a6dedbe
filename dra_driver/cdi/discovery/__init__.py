"""Which files of an installed NVIDIA driver a container needs, as NVIDIA's own toolkit decides (nvidia-ctk 1.20.2).

The result equals that of ``nvidia-ctk cdi generate --mode nvml`` for the same driver root; a test runs both. The
differences are wanted and few: symbolic links are followed inside the driver root (an absolute link does not lead into
our own container), links below /dev/dri/by-path have the container's path, programs are not searched along our own
process's PATH, and a driver root without hook program still gives working containers.

- `tree`: the driver root as a file tree that remembers what was looked at, so that a cached answer can be checked
  cheaply
- `elf`, `ldcache`: the two binary formats that tell a library's name and place
- `libraries`, `links`, `graphics`, `installation`: files to mount
- `nodes`: device nodes of the driver and of one GPU. MIG capability nodes get their place there
- `hooks`: the program that finishes a container (links, linker cache), and its calls
- `edits`: everything put together, without duplicates and in the order of the toolkit
"""
