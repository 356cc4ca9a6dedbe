"""The kubelet's own plugin and DRA managers as a test partner; see `main.go` for what it is and how it is spoken to."""

from tests.minikubelet.harness import MiniKubelet, OperationFailed, compiled

__all__ = ["MiniKubelet", "OperationFailed", "compiled"]
