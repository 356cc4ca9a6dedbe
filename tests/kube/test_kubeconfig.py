"""Kubeconfigs and ServiceAccounts become configurations, and what is wrong is named by file and field."""

from __future__ import annotations

import base64
import copy
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

from dra_driver.errors import InputError
from dra_driver.kube import kubeconfig
from dra_driver.kube.config import ApiConfig

GOOD: dict[str, Any] = {
    "apiVersion": "v1",
    "kind": "Config",
    "current-context": "one",
    "clusters": [{"name": "c", "cluster": {"server": "https://api.example:6443/"}}],
    "users": [{"name": "u", "user": {"token": "secret"}}],
    "contexts": [
        {"name": "one", "context": {"cluster": "c", "user": "u", "namespace": "team"}},
        {"name": "anonymous", "context": {"cluster": "c"}},
    ],
}


def write(path: Path, content: Any) -> Path:
    path.write_text(content if isinstance(content, str) else yaml.safe_dump(content))
    return path


def changed(change: Callable[[dict[str, Any], dict[str, Any]], object]) -> dict[str, Any]:
    config = copy.deepcopy(GOOD)
    change(config["clusters"][0]["cluster"], config["users"][0]["user"])
    return config


async def header(config: ApiConfig) -> str | None:
    return await config.credentials.authorization()


async def test_reads_server_token_and_namespace(tmp_path: Path) -> None:
    config = kubeconfig.load(write(tmp_path / "config", GOOD), environ={})

    assert config.server == "https://api.example:6443"
    assert config.namespace == "team"
    assert await header(config) == "Bearer secret"


async def test_a_named_context_wins_over_the_current_one(tmp_path: Path) -> None:
    config = kubeconfig.load(write(tmp_path / "config", GOOD), context="anonymous", environ={})

    assert (await header(config), config.namespace) == (None, "default")


async def test_basic_authentication(tmp_path: Path) -> None:
    def basic(_: Any, user: dict[str, Any]) -> None:
        user.clear()
        user.update(username="ann", password="pw")

    config = kubeconfig.load(write(tmp_path / "config", changed(basic)), environ={})

    assert await header(config) == "Basic " + base64.b64encode(b"ann:pw").decode()


async def test_a_token_file_is_relative_to_the_kubeconfig_and_wins_over_token(tmp_path: Path) -> None:
    (tmp_path / "token").write_text("from-file\n")
    config = kubeconfig.load(
        write(tmp_path / "config", changed(lambda _, user: user.update(tokenFile="token"))), environ={}
    )

    assert await header(config) == "Bearer from-file"


def test_certificates_as_files_and_as_data(tmp_path: Path) -> None:
    for name in ("ca.pem", "c.pem", "k.pem"):
        (tmp_path / name).write_text(name)

    def files(cluster: dict[str, Any], user: dict[str, Any]) -> None:
        cluster["certificate-authority"] = "ca.pem"
        user.update({"client-certificate": "c.pem", "client-key-data": base64.b64encode(b"KEY").decode()})

    tls = kubeconfig.load(write(tmp_path / "config", changed(files)), environ={}).tls

    assert (tls.ca_file, tls.cert_file, tls.key_data, tls.key_file) == (
        tmp_path / "ca.pem",
        tmp_path / "c.pem",
        b"KEY",
        None,
    )


def test_tls_server_name_proxy_and_insecure(tmp_path: Path) -> None:
    def options(cluster: dict[str, Any], _: Any) -> None:
        cluster.update(
            {"tls-server-name": "kubernetes", "proxy-url": "http://proxy:3128", "insecure-skip-tls-verify": True}
        )

    config = kubeconfig.load(write(tmp_path / "config", changed(options)), environ={"HTTPS_PROXY": "http://other"})

    assert (config.server_name, config.proxy, config.tls.insecure) == ("kubernetes", "http://proxy:3128", True)


def test_impersonation_becomes_headers(tmp_path: Path) -> None:
    def impersonate(_: Any, user: dict[str, Any]) -> None:
        user.update({"as": "ann", "as-groups": ["a", "b"], "as-user-extra": {"reason": ["test"]}})

    config = kubeconfig.load(write(tmp_path / "config", changed(impersonate)), environ={})

    assert config.headers == (
        ("Impersonate-User", "ann"),
        ("Impersonate-Group", "a"),
        ("Impersonate-Group", "b"),
        ("Impersonate-Extra-reason", "test"),
    )


async def test_of_several_files_the_first_to_say_something_wins_and_missing_ones_are_skipped(tmp_path: Path) -> None:
    first = write(
        tmp_path / "first",
        {"users": [{"name": "u", "user": {"token": "first"}}], "current-context": "anonymous"},
    )
    second = write(tmp_path / "second", GOOD)
    environ = {"KUBECONFIG": f"{first}:{tmp_path}/absent:{second}"}

    assert await header(kubeconfig.load(environ=environ)) is None
    assert await header(kubeconfig.load(environ=environ, context="one")) == "Bearer first"


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        pytest.param("{a: [", ":2:1: is not YAML", id="not-yaml"),
        pytest.param("- a", "is not a kubeconfig: a mapping was expected", id="a-list"),
        pytest.param("", "current-context: is not set (the file has no contexts)", id="empty"),
        pytest.param(
            GOOD | {"current-context": "two"},
            'current-context: context "two" does not exist (known contexts: anonymous, one)',
            id="unknown-context",
        ),
        pytest.param(
            GOOD | {"clusters": []},
            'contexts[0].context.cluster: cluster "c" does not exist (the file has no clusters)',
            id="unknown-cluster",
        ),
        pytest.param(GOOD | {"users": [{"user": {}}]}, "users[0].name: is missing", id="user-without-name"),
        pytest.param(GOOD | {"users": {"u": {}}}, "users: must be a list", id="users-as-mapping"),
        pytest.param(changed(lambda c, _: c.pop("server")), "clusters[0].cluster.server: is missing", id="no-server"),
        pytest.param(
            changed(lambda c, _: c.update(server="api:6443")), '"api:6443" is not an http(s) URL', id="bad-server"
        ),
        pytest.param(
            changed(lambda _, u: u.update({"client-certificate-data": "%%"})),
            "users[0].user.client-certificate-data: is not base64",
            id="bad-base64",
        ),
        pytest.param(
            changed(lambda _, u: u.update({"client-certificate-data": "QUJD"})),
            "users[0].user.client-key: is missing although there is a client certificate",
            id="certificate-without-key",
        ),
        pytest.param(
            changed(lambda _, u: u.update(tokenFile="absent")), "users[0].user.tokenFile: file ", id="no-token-file"
        ),
        pytest.param(
            changed(lambda _, u: u.update(token=5)), "users[0].user.token: must be a string, not int", id="token-number"
        ),
        pytest.param(
            changed(lambda c, _: c.update({"insecure-skip-tls-verify": True, "certificate-authority-data": "QUJD"})),
            "insecure-skip-tls-verify: cannot be combined with a certificate authority",
            id="insecure-with-ca",
        ),
        pytest.param(
            changed(lambda c, _: c.update({"proxy-url": "socks5://p"})), "SOCKS proxies are not supported", id="socks"
        ),
        pytest.param(
            changed(lambda _, u: u.update(token="", exec={"command": "x"})),
            "users[0].user.exec.apiVersion: is missing",
            id="exec-without-version",
        ),
    ],
)
def test_what_is_wrong_is_named(tmp_path: Path, content: Any, expected: str) -> None:
    path = write(tmp_path / "config", content)

    with pytest.raises(InputError) as caught:
        kubeconfig.load(path, environ={})

    assert expected in str(caught.value)
    assert str(path) in str(caught.value)


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=f"{tmp_path}/none: cannot be read: No such file"):
        kubeconfig.load(tmp_path / "none", environ={})


def account(path: Path) -> Path:
    path.mkdir()
    (path / "token").write_text("pod-token")
    (path / "ca.crt").write_text("CA")
    (path / "namespace").write_text("dra")
    return path


@pytest.mark.parametrize(
    ("host", "server"), [("10.0.0.1", "https://10.0.0.1:443"), ("fd00::1", "https://[fd00::1]:443")]
)
async def test_in_a_pod_the_service_account_is_used(tmp_path: Path, host: str, server: str) -> None:
    environ = {"KUBERNETES_SERVICE_HOST": host, "KUBERNETES_SERVICE_PORT": "443", "HOME": str(tmp_path)}
    config = kubeconfig.load(environ=environ, service_account=account(tmp_path / "sa"))

    assert (config.server, config.namespace, config.tls.ca_file) == (server, "dra", tmp_path / "sa" / "ca.crt")
    assert await header(config) == "Bearer pod-token"


def test_the_pod_comes_before_the_home_folder_and_after_kubeconfig(tmp_path: Path) -> None:
    (tmp_path / ".kube").mkdir()
    home = write(tmp_path / ".kube" / "config", GOOD)
    sa = account(tmp_path / "sa")
    pod = {"KUBERNETES_SERVICE_HOST": "h", "KUBERNETES_SERVICE_PORT": "1", "HOME": str(tmp_path)}

    assert kubeconfig.load(environ=pod, service_account=sa).server == "https://h:1"
    assert kubeconfig.load(environ={"HOME": str(tmp_path)}, service_account=sa).server == "https://api.example:6443"
    assert (
        kubeconfig.load(environ=pod | {"KUBECONFIG": str(home)}, service_account=sa).server
        == "https://api.example:6443"
    )


def test_no_configuration_at_all_says_what_to_do(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="pass --kubeconfig, set KUBECONFIG, or run in a Pod"):
        kubeconfig.load(environ={"HOME": str(tmp_path)}, service_account=tmp_path)


def test_a_service_account_without_its_ca_is_named(tmp_path: Path) -> None:
    sa = account(tmp_path / "sa")
    (sa / "ca.crt").unlink()

    with pytest.raises(InputError, match=r"file ca\.crt is missing"):
        kubeconfig.in_cluster(
            environ={"KUBERNETES_SERVICE_HOST": "h", "KUBERNETES_SERVICE_PORT": "1"}, service_account=sa
        )
