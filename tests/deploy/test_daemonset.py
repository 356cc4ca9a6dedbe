"""The shipped DaemonSet, as written: where it runs. What an API server makes of it is tested in ``tests/cluster``."""

from __future__ import annotations

from pathlib import Path

import yaml

DAEMON_SET = Path(__file__).parents[2] / "deploy" / "base" / "daemonset.yaml"


def test_no_label_decides_where_the_driver_runs() -> None:
    """No feature discovery has to be installed first, and no taint keeps the driver from a GPU node."""
    pod = yaml.safe_load(DAEMON_SET.read_text())["spec"]["template"]["spec"]
    assert pod["nodeSelector"] == {"kubernetes.io/os": "linux"}  # the kubelet sets this one itself
    assert "affinity" not in pod
    assert pod["tolerations"] == [{"operator": "Exists"}]
