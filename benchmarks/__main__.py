"""``python -m benchmarks [NAME…]``: run all benchmarks or the named ones."""

from __future__ import annotations

import importlib
import sys

NAMES = ("prepare",)

for name in sys.argv[1:] or NAMES:
    if name not in NAMES:
        sys.exit(f"unknown benchmark {name!r}; there are: {', '.join(NAMES)}")
    importlib.import_module(f"benchmarks.{name}").main()
