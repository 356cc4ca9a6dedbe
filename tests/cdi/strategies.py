"""Random specs that obey the rules of the CDI specification."""

from __future__ import annotations

from hypothesis import strategies as st

from dra_driver.cdi.spec import CdiDevice, ContainerEdits, DeviceNode, Hook, IntelRdt, Mount, NetDevice, Spec

texts = st.text(st.characters(codec="utf-8", exclude_characters="\0"), max_size=12)
paths = texts.map(lambda text: f"/{text}")
variable_names = st.text("ABCDEFGHIJKLMNOPQRSTUVWXYZ_0123456789", min_size=1, max_size=6)
environments = st.dictionaries(variable_names, texts, max_size=3).map(
    lambda pairs: tuple(f"{name}={value}" for name, value in pairs.items())
)
uint32 = st.integers(0, 2**32 - 1)
device_names = st.from_regex(r"[A-Za-z0-9]([A-Za-z0-9_.:-]{0,8}[A-Za-z0-9])?", fullmatch=True)
names = st.from_regex(r"[A-Za-z]([A-Za-z0-9.-]{0,8}[A-Za-z0-9])?", fullmatch=True).filter(
    lambda name: ".." not in name and ".-" not in name and "-." not in name
)
annotation_pairs = st.dictionaries(
    st.from_regex(r"([a-z]{1,5}\.[a-z]{1,5}/)?[A-Za-z0-9]([A-Za-z0-9_.-]{0,5}[A-Za-z0-9])?", fullmatch=True),
    texts,
    max_size=2,
).map(lambda pairs: tuple(sorted(pairs.items())))

device_nodes = st.builds(
    DeviceNode,
    path=paths,
    host_path=st.just("") | paths,
    type=st.sampled_from(["", "b", "c", "u", "p"]),
    major=uint32,
    minor=uint32,
    file_mode=st.none() | st.integers(0, 0o7777),
    permissions=st.sampled_from(["", "r", "rw", "rwm", "none"]),
    uid=st.none() | uint32,
    gid=st.none() | uint32,
)
mounts = st.builds(
    Mount,
    host_path=paths,
    container_path=paths,
    options=st.lists(st.sampled_from(["ro", "nosuid", "nodev", "rbind"]), max_size=3).map(tuple),
    type=st.sampled_from(["", "bind"]),
)
hooks = st.builds(
    Hook,
    hook_name=st.sampled_from(
        ["prestart", "createRuntime", "createContainer", "startContainer", "poststart", "poststop"]
    ),
    path=paths,
    args=st.lists(texts, max_size=3).map(tuple),
    env=environments,
    timeout=st.none() | st.integers(1, 1000),
)
rdt = st.builds(
    IntelRdt,
    clos_id=st.sampled_from(["", "/", "gold"]),
    l3_cache_schema=st.sampled_from(["", "L3:0=ff"]),
    mem_bw_schema=st.sampled_from(["", "MB:0=70"]),
    schemata=st.lists(texts.filter(bool), max_size=2).map(tuple),
    enable_monitoring=st.booleans(),
)
edits = st.builds(
    ContainerEdits,
    env=environments,
    device_nodes=st.lists(device_nodes, max_size=2).map(tuple),
    net_devices=st.lists(
        st.tuples(names, names), max_size=2, unique_by=(lambda pair: pair[0], lambda pair: pair[1])
    ).map(lambda pairs: tuple(NetDevice(host_interface_name=a, name=b) for a, b in pairs)),
    hooks=st.lists(hooks, max_size=2).map(tuple),
    mounts=st.lists(mounts, max_size=3).map(tuple),
    intel_rdt=st.none() | rdt,
    additional_gids=st.lists(uint32, max_size=2).map(tuple),
)
devices = st.builds(CdiDevice, name=device_names, edits=edits.filter(bool), annotations=annotation_pairs)
specs = st.builds(
    Spec,
    kind=st.builds(lambda vendor, cls: f"{vendor}/{cls}", names, names),
    devices=st.lists(devices, min_size=1, max_size=3, unique_by=lambda device: device.name).map(tuple),
    common=edits,
    annotations=annotation_pairs,
)
