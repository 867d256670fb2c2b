"""Redaction: nothing that identifies the machine stays, and what was equal stays equal."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st
from node_kit import UUID, bmc_document, demo_node, host_document, small_documents, write_node
from nodes import profile_path

from agent.node_profile import GPU_UUID
from agent.profile_loader import load_profile
from agent.sources import capture as recorder
from agent.sources.node_folder import load_node_folder
from agent.sources.redact import Redactor, without_serial_number
from agent.sources.replay import replay_sources

GPU = "GPU-6513270e-269e-4d37-b2a7-4de452e6b438"


@pytest.mark.parametrize(
    ("text", "pattern"),
    [
        (GPU, GPU_UUID),
        ("root=UUID=6513270e-269e-4d37-b2a7-4de452e6b438 ro", r"root=UUID=[0-9a-f-]{36} ro"),
        ("a0:88:c2:01:02:03", r"02(:[0-9a-f]{2}){5}"),
        ("a088:c203:0010:0011", r"([0-9a-f]{4}:){3}[0-9a-f]{4}"),
        ("fe80:0000:0000:0000:a288:c2ff:fe01:0203", r"fe80:0000:0000:0000(:[0-9a-f]{4}){4}"),
        ("0000:0000:0000:0000:0000:ffff:0a01:0203", r"(0000:){5}ffff(:[0-9a-f]{4}){2}"),
        ("serial 1650623040150.", r"serial \d{13}\."),
        ("eth0: host rack7-node3 up", r"eth0: host node-[0-9a-f]{6} up"),
    ],
)
def test_identifiers_are_replaced_in_their_own_shape(text: str, pattern: str) -> None:
    redactor = Redactor(host="rack7-node3", serials=["1650623040150"])
    replaced = redactor.text(text)
    assert replaced != text
    assert re.fullmatch(pattern, replaced)
    assert redactor.text(text) == replaced
    assert Redactor(host="rack7-node3", serials=["1650623040150"]).text(text) != replaced


@pytest.mark.parametrize(
    "text",
    [
        "0000:18:00.0", "NVRM: Xid (PCI:0000:52:00): 79", "580.159.04", "96.00.A5.00.1A",
        "00000000-0000-0000-0000-000000000000", "0000:0000:0000:0000:0000:0000:0000:0000",
        "00:00:00:00:00:00",
        "4: ACTIVE", "my-rack7-node3", "rack7-node34", "31650623040150",
    ],
)  # fmt: skip
def test_the_rest_stays(text: str) -> None:
    assert Redactor(host="rack7-node3", serials=["1650623040150"]).text(text) == text


def test_same_identifier_in_other_case_is_the_same() -> None:
    redactor = Redactor()
    assert redactor.text(GPU.upper())[4:] == redactor.text(GPU)[4:]


@given(st.text(), st.text(), st.lists(st.text(), max_size=3))
def test_any_text(text: str, host: str, serials: list[str]) -> None:
    Redactor(host=host, serials=serials).text(text)


def test_a_redacted_capture_holds_none_of_it_and_still_fits_its_profile(tmp_path: Path) -> None:
    sources = replay_sources(demo_node(), None).sources
    recording, profile = recorder.redact(recorder.record(sources), (demo_node() / "profile.yaml").read_text())
    recorder.write(recording, tmp_path / "out", profile)
    folder = load_node_folder(tmp_path / "out")
    whole = "\n".join(path.read_text() for path in sorted((tmp_path / "out").rglob("*")) if path.is_file())
    secrets = [gpu.uuid for gpu in sources.nvml.inventory()] + [
        gpu.serial for gpu in sources.nvml.inventory()
    ]
    secrets += [sources.clock.boot_id(), "h200-roce", "02:00:5e:10:00:10", "0200:5e03:0010:0010", "c633:6410"]
    assert [secret for secret in secrets if secret and secret in whole] == []
    uuids = [gpu["identity"]["uuid"] for gpu in folder.nvml["gpus"]]
    assert all(uuid in (profile or "") for uuid in uuids) and len(set(uuids)) == 8
    assert folder.meta.boot_id == (folder.files or {})["proc/sys/kernel/random/boot_id"]
    assert folder.meta.name == (folder.files or {})["proc/sys/kernel/hostname"]
    assert folder.meta.redacted


@pytest.mark.parametrize("name", ["b300-roce", "b300-x16", "h20-roce", "gb10", "h200-ib", "h200-roce"])
def test_keys_and_loopback_addresses_of_a_profile_stay(name: str) -> None:
    text = profile_path(name).read_text() + "\napi: {host: 127.0.0.1, port: 19470}\n"
    recording, profile = recorder.redact(recorder.record(replay_sources(demo_node(), None).sources), text)
    assert recording.meta["redacted"]

    def keys(value: object) -> object:
        return {key: keys(item) for key, item in value.items()} if isinstance(value, dict) else None

    redacted = yaml.safe_load(profile or "")
    assert keys(redacted["host"]) == keys(yaml.safe_load(text)["host"])
    assert redacted["api"]["host"] == "127.0.0.1"


@pytest.mark.parametrize("host", ["vm", "localhost", ""])
def test_short_host_names_are_replaced_where_they_stand_alone(host: str) -> None:
    redactor = Redactor(host=host)
    assert redactor.text("vm.swappiness on localhost") == "vm.swappiness on localhost"
    assert re.fullmatch("node-[0-9a-f]{6}", redactor.host)


def test_pins_and_the_name_in_the_profile_are_replaced_by_the_same_things(tmp_path: Path) -> None:
    documents = small_documents()
    identity = documents["nvml.json"]["gpus"][0]["identity"]
    identity["serial"] = "1650623040150"
    sources = replay_sources(write_node(tmp_path / "node", documents), None).sources
    text = (
        "node: rack7.example  # third from below\ngpus:\n  pins:\n"
        f'    0: {{uuid: {UUID}, serial: "1650623040150"}}\n'
        f"    1:\n      uuid: {GPU}\n      serial: 1650623099999\n"
    )
    recording, profile = recorder.redact(recorder.record(sources), text)
    loaded = yaml.safe_load(profile or "")
    seen = recording.nvml["gpus"][0]["identity"]
    assert loaded["gpus"]["pins"][0] == {"uuid": seen["uuid"], "serial": seen["serial"]}
    assert seen["serial"] != "1650623040150" and seen["uuid"] != UUID
    assert loaded["node"] == recording.meta["name"]
    absent = loaded["gpus"]["pins"][1]
    assert absent["uuid"] != GPU and re.fullmatch(GPU_UUID, absent["uuid"])
    assert re.fullmatch(r"\d{13}", str(absent["serial"])) and str(absent["serial"]) != "1650623099999"


def test_names_of_bmc_peers_and_stores_are_replaced_everywhere_alike(tmp_path: Path) -> None:
    host = host_document()
    host["reach"] = {"rank1.rack7.example:29500": host["reach"]["198.51.100.2:29500"]}
    tree = {
        "proc/self/mounts": "store7.example:/models /models nfs4 ro 0 0",
        f"{DEVICE}/class": "0x020000",
        CONFIG: {"hex": config_with_serial_number().hex()},
        VPD: {"hex": (b"\x82\x03\x00CX8\x90\x10\x00SN\x0cMT2541X00042RV\x01\x00\x78").hex()},
    }
    documents = {
        **small_documents(), "host.json": host, "bmc.json": bmc_document(), "tree.json": tree,
    }  # fmt: skip
    documents["links.json"] = {f"{DEVICE}/iommu_group": "../../../../kernel/iommu_groups/7"}
    sources = replay_sources(write_node(tmp_path / "node", documents), None).sources
    text = (
        "node: rack7\nplatform: h200\ngpus: {count: 1}\nfabric: {kind: none}\n"
        "nvlink: {links_per_gpu: 0, fabric: false, domains: []}\n"
        "bmc: {redfish: {url: https://bmc-rack7.example}}\n"
        "host: {mounts: [{path: /models, source: store7.example:/models}]}\n"
        "engines: {main: {gpus: [0], port: 8000, peers: [{host: rank1.rack7.example, port: 29500}]}}\n"
    )
    profile = tmp_path / "profile.yaml"
    profile.write_text(text)
    recording = recorder.record(sources, profile=load_profile(profile).profile)
    redacted, shown = recorder.redact(recording, text)
    recorder.write(redacted, tmp_path / "out", shown)
    whole = "\n".join(path.read_text() for path in (tmp_path / "out").iterdir() if path.is_file())
    secrets = (
        "rank1",
        "bmc-rack7",
        "store7",
        "BMC-4711-XYZ",
        "192.0.2.17",
        b"MT2541X00042".hex(),
        "0102030405",
    )
    assert [secret for secret in secrets if secret in whole] == []
    [peer] = (redacted.host or {})["reach"]
    assert peer.rpartition(":")[0] in (shown or "") and peer.endswith(":29500")
    assert bytes.fromhex(redacted.tree.files[CONFIG]["hex"])[:0x104] == config_with_serial_number()[:0x104]
    folder = load_node_folder(tmp_path / "out")
    assert (folder.bmc or {})["node"]["/redfish/v1/Chassis/1"] == {"error": "TIMEOUT"}


DEVICE = "sys/bus/pci/devices/0000:18:00.0"
CONFIG, VPD = f"{DEVICE}/config", f"{DEVICE}/vpd"


def config_with_serial_number() -> bytes:
    """PCI configuration space whose first extended capability is the Device Serial Number."""
    data = bytearray(0x110)
    data[0:4] = b"\xb3\x15\x23\x10"
    data[0x100:0x104] = (0x0001_0003).to_bytes(4, "little")
    data[0x104:0x10C] = bytes(range(1, 9))
    return bytes(data)


def test_only_the_serial_number_of_configuration_space_is_taken_out() -> None:
    data = config_with_serial_number()
    assert without_serial_number(data) == data[:0x104] + bytes(8) + data[0x10C:]
    for other in (b"", data[:64], data[:0x102], bytes(0x110)):
        assert without_serial_number(other) == other
    loop = data[:0x100] + (0x100 << 20 | 1).to_bytes(4, "little")
    assert without_serial_number(loop) == loop
