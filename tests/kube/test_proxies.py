"""Proxy variables mean what they mean for Go programs."""

from __future__ import annotations

import pytest

from dra_driver.kube.proxies import proxy_from_environment

PROXY = "http://proxy:3128"


@pytest.mark.parametrize(
    ("server", "environ", "expected"),
    [
        pytest.param("https://api.example:6443", {}, None, id="nothing-set"),
        pytest.param("https://api.example:6443", {"HTTPS_PROXY": PROXY}, PROXY, id="https"),
        pytest.param("https://api.example:6443", {"https_proxy": "proxy:3128"}, PROXY, id="lower-case-without-scheme"),
        pytest.param("https://api.example:6443", {"HTTP_PROXY": PROXY}, None, id="other-scheme"),
        pytest.param("http://api.example:8080", {"HTTP_PROXY": PROXY}, PROXY, id="http"),
        pytest.param("https://127.0.0.1:6443", {"HTTPS_PROXY": PROXY}, None, id="loopback"),
        pytest.param("https://localhost:6443", {"HTTPS_PROXY": PROXY}, None, id="localhost"),
        pytest.param("https://10.96.0.1", {"HTTPS_PROXY": PROXY, "NO_PROXY": "a.b, 10.0.0.0/8"}, None, id="range"),
        pytest.param("https://192.0.2.1", {"HTTPS_PROXY": PROXY, "NO_PROXY": "10.0.0.0/8"}, PROXY, id="other-range"),
        pytest.param("https://[fd00::1]", {"HTTPS_PROXY": PROXY, "NO_PROXY": "fd00::/16"}, None, id="ipv6-range"),
        pytest.param("https://api.example", {"HTTPS_PROXY": PROXY, "NO_PROXY": "example"}, None, id="domain"),
        pytest.param("https://api.example", {"HTTPS_PROXY": PROXY, "NO_PROXY": ".example"}, None, id="sub-domain"),
        pytest.param("https://example", {"HTTPS_PROXY": PROXY, "NO_PROXY": ".example"}, PROXY, id="only-sub-domains"),
        pytest.param("https://notexample", {"HTTPS_PROXY": PROXY, "NO_PROXY": "example"}, PROXY, id="suffix-only"),
        pytest.param("https://a:6443", {"HTTPS_PROXY": PROXY, "NO_PROXY": "a:6443"}, None, id="same-port"),
        pytest.param("https://a:6443", {"HTTPS_PROXY": PROXY, "NO_PROXY": "a:443"}, PROXY, id="other-port"),
        pytest.param("https://a", {"HTTPS_PROXY": PROXY, "no_proxy": "*"}, None, id="everything"),
    ],
)
def test_proxy(server: str, environ: dict[str, str], expected: str | None) -> None:
    assert proxy_from_environment(server, environ) == expected
