"""Credentials that change under a running daemon."""

from __future__ import annotations

import json
import os
import stat
import sys
import textwrap
from pathlib import Path
from typing import Any

import pytest
import yaml

from dra_driver.errors import EnvironmentFault
from dra_driver.kube import kubeconfig
from dra_driver.kube.client import ApiClient
from dra_driver.kube.config import ApiConfig, TokenFile
from dra_driver.kube.errors import Unauthorized
from dra_driver.kube.resources import NODES
from tests.kube.fake_apiserver import FakeApiServer


class Clock:
    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


async def test_a_changed_token_file_is_read_after_a_second(tmp_path: Path) -> None:
    path, clock = tmp_path / "token", Clock()
    path.write_text("one")
    tokens = TokenFile(path, clock=clock)
    assert await tokens.authorization() == "Bearer one"

    path.write_text("two!")
    assert await tokens.authorization() == "Bearer one"
    clock.now = 1.0
    assert await tokens.authorization() == "Bearer two!"


async def test_a_token_is_read_each_minute_even_when_the_file_looks_the_same(tmp_path: Path) -> None:
    path, clock = tmp_path / "token", Clock()
    path.write_text("one")
    tokens = TokenFile(path, clock=clock)
    await tokens.authorization()
    before = path.stat()
    with path.open("r+") as same_inode:
        same_inode.write("two")
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))

    clock.now = 59.0
    assert await tokens.authorization() == "Bearer one"
    clock.now = 60.0
    assert await tokens.authorization() == "Bearer two"


async def test_a_token_file_that_is_gone_for_a_moment_costs_nothing(tmp_path: Path) -> None:
    path, clock = tmp_path / "token", Clock()
    path.write_text("one")
    tokens = TokenFile(path, clock=clock)
    await tokens.authorization()
    path.unlink()
    clock.now = 5.0

    assert await tokens.authorization() == "Bearer one"


@pytest.mark.parametrize("content", [None, "", "  \n"], ids=["missing", "empty", "blank"])
async def test_a_token_file_that_never_worked_is_an_error(tmp_path: Path, content: str | None) -> None:
    path = tmp_path / "token"
    if content is not None:
        path.write_text(content)

    with pytest.raises(EnvironmentFault, match=f"token file {path} cannot be used"):
        await TokenFile(path).authorization()


async def test_after_401_the_token_is_read_again_and_the_request_repeated(fake: FakeApiServer, tmp_path: Path) -> None:
    fake.put("nodes", {"metadata": {"name": "n"}})
    path = tmp_path / "token"
    path.write_text("old")
    fake.accepted = {"Bearer old"}
    async with ApiClient(fake.config(credentials=TokenFile(path))) as client:
        await client.get(NODES, "n")
        path.write_text("new")
        fake.accepted = {"Bearer new"}

        assert (await client.get(NODES, "n"))["metadata"]["name"] == "n"
        assert [r.headers["Authorization"] for r in fake.requests] == ["Bearer old", "Bearer old", "Bearer new"]


async def test_a_token_that_stays_refused_is_not_tried_for_ever(fake: FakeApiServer, tmp_path: Path) -> None:
    path = tmp_path / "token"
    path.write_text("old")
    fake.accepted = set()
    async with ApiClient(fake.config(credentials=TokenFile(path))) as client:
        with pytest.raises(Unauthorized, match="get /api/v1/nodes/n: Unauthorized"):
            await client.get(NODES, "n")
    assert len(fake.requests) == 1


PLUGIN = """\
    #!{python}
    import json, os, pathlib, sys
    here = pathlib.Path(__file__).parent
    runs = here / "runs"
    count = len(runs.read_text()) if runs.exists() else 0
    runs.write_text("x" * (count + 1))
    (here / "info").write_text(os.environ["KUBERNETES_EXEC_INFO"])
    if (here / "fail").exists():
        sys.exit("the login expired")
    print(json.dumps({{
        "apiVersion": "client.authentication.k8s.io/v1", "kind": "ExecCredential",
        "status": {{"token": os.environ["PREFIX"] + sys.argv[1] + str(count), {extra} }},
    }}))
"""


def exec_config(tmp_path: Path, server: str, extra: str = "", **fields: Any) -> ApiConfig:
    plugin = tmp_path / "plugin"
    plugin.write_text(textwrap.dedent(PLUGIN).format(python=sys.executable, extra=extra))
    plugin.chmod(plugin.stat().st_mode | stat.S_IXUSR)
    section = {
        "apiVersion": "client.authentication.k8s.io/v1",
        "command": "./plugin",
        "args": ["token-"],
        "env": [{"name": "PREFIX", "value": "my-"}],
        "interactiveMode": "Never",
        **fields,
    }
    path = tmp_path / "config"
    path.write_text(
        yaml.safe_dump(
            {
                "current-context": "c",
                "clusters": [{"name": "c", "cluster": {"server": server}}],
                "users": [{"name": "u", "user": {"exec": section}}],
                "contexts": [{"name": "c", "context": {"cluster": "c", "user": "u"}}],
            }
        )
    )
    return kubeconfig.load(path, environ={})


def runs(tmp_path: Path) -> int:
    return len((tmp_path / "runs").read_text())


async def test_an_exec_plugin_runs_once_for_many_requests_and_again_after_401(
    fake: FakeApiServer, tmp_path: Path
) -> None:
    fake.put("nodes", {"metadata": {"name": "n"}})
    fake.accepted = {"Bearer my-token-0"}
    async with ApiClient(exec_config(tmp_path, fake.url, provideClusterInfo=True)) as client:
        await client.get(NODES, "n")
        await client.get(NODES, "n")
        assert runs(tmp_path) == 1
        fake.accepted = {"Bearer my-token-1"}
        await client.get(NODES, "n")
        assert runs(tmp_path) == 2
    assert json.loads((tmp_path / "info").read_text())["spec"]["cluster"]["server"] == fake.url


async def test_an_expired_plugin_token_is_fetched_again(tmp_path: Path) -> None:
    config = exec_config(tmp_path, "https://a", extra='"expirationTimestamp": "2020-01-01T00:00:00Z"')

    assert await config.credentials.authorization() == "Bearer my-token-0"
    assert await config.credentials.authorization() == "Bearer my-token-1"


async def test_a_failing_plugin_is_named_with_its_own_words(tmp_path: Path) -> None:
    config = exec_config(tmp_path, "https://a", installHint="log in with: login --again")
    (tmp_path / "fail").touch()

    with pytest.raises(EnvironmentFault) as caught:
        await config.credentials.authorization()

    for part in (f"{tmp_path}/config: users[0].user.exec", "the login expired", "login --again"):
        assert part in str(caught.value)


async def test_a_plugin_that_does_not_exist_is_named(tmp_path: Path) -> None:
    config = exec_config(tmp_path, "https://a", command="no-such-plugin-program")

    with pytest.raises(EnvironmentFault, match="credential plugin no-such-plugin-program failed"):
        await config.credentials.authorization()


async def test_an_authentication_provider_with_a_valid_token_works(tmp_path: Path) -> None:
    path = tmp_path / "config"
    provider = {"name": "gcp", "config": {"access-token": "abc", "expiry": "2999-01-01T00:00:00Z"}}
    path.write_text(
        yaml.safe_dump(
            {
                "current-context": "c",
                "clusters": [{"name": "c", "cluster": {"server": "https://a"}}],
                "users": [{"name": "u", "user": {"auth-provider": provider}}],
                "contexts": [{"name": "c", "context": {"cluster": "c", "user": "u"}}],
            }
        )
    )

    assert await kubeconfig.load(path, environ={}).credentials.authorization() == "Bearer abc"
