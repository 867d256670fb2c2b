"""What the profile refuses and remarks of pairs, with file and line."""

from __future__ import annotations

from pathlib import Path

import pytest

from agent.daemon_reload import needs_restart
from agent.profile_loader import examine

HEAD = """\
platform: h200
mode: manage
gpus: {power_limit_w: 700}
fabric:
  ports:
    - {device: mlx5_0, netdev: eth2, rate_gbps: 400, gpu: 0}
engines:
  p0:
    {gpus: [0, 1], port: 8001, launch: {model: m, rdma: true, flags: {kv-transfer-config: NixlConnector}}}
  d0:
    {gpus: [2, 3], port: 8002, launch: {model: m, rdma: true, args: [--kv-transfer-config, NixlConnector]}}
pairs:
"""
LINE = HEAD.count("\n") + 1


def _examined(folder: Path, pairs: str, head: str = HEAD):  # type: ignore[no-untyped-def]
    path = folder / "site.yaml"
    path.write_text(head + pairs)
    return examine(path)


@pytest.mark.parametrize(
    ("pairs", "line", "said"),
    [
        ("  d0: {prefill: [p0], decode: [d0]}\n", 0, "is the name of an engine"),
        ("  x: {prefill: [p0], decode: [d9]}\n", 0, "there is no engine d9; engines are: p0, d0"),
        ("  x: {prefill: [p0, d0], decode: [d0]}\n", 0, "engine d0 is already listed under prefill"),
        ("  x: {prefill: [p0, p0], decode: [d0]}\n", 0, "engine p0 is already listed under prefill"),
        (
            "  x:\n    prefill: [p0]\n    decode: [d0]\n    min_decode: 2\n",
            3,
            "asks for 2, and 1 decode engine is listed",
        ),
        ("  x:\n    prefill: [p0]\n    decode: [d0]\n    agent_check_port: 8002\n", 3, "already used by"),
        ("  x: {prefill: [], decode: [d0]}\n", 0, "prefill"),
    ],
)
def test_what_is_refused(pairs: str, line: int, said: str, tmp_path: Path) -> None:
    faults = _examined(tmp_path, pairs).faults
    assert len(faults) == 1, faults
    assert said in str(faults[0])
    assert str(faults[0].where).endswith(f"site.yaml:{LINE + line}")


GOOD = "  x: {prefill: [p0], decode: [d0], agent_check_port: 9500}\n"


def test_a_rank_that_is_no_head_is_refused(tmp_path: Path) -> None:
    group = "group: {rank: 1, key_file: /k, members: [{node: a, address: a}, {node: b, address: b}]}"
    head = "node: b\n" + HEAD.replace("port: 8002,", f"port: 8002, {group},")
    (fault,) = _examined(tmp_path, GOOD, head).faults
    assert "engine d0 is no head of its group" in str(fault)


def test_what_is_remarked(tmp_path: Path) -> None:
    assert not [note for note in _examined(tmp_path, GOOD).notes if "cache" in note]
    (note,) = [
        n for n in _examined(tmp_path, GOOD, HEAD.replace("rdma: true, flags", "flags")).notes if "rdma" in n
    ]
    assert note.startswith("engines.p0: kv-transfer-config hands")
    local = HEAD.replace("rdma: true, flags", "flags").replace("NixlConnector", "OffloadingConnector")
    notes = _examined(tmp_path, GOOD, local).notes
    assert not [note for note in notes if "launch.rdma" in note]
    assert [n.partition(" has none")[0] for n in notes if "has none" in n] == [
        "pairs.x: engine p0",
        "pairs.x: engine d0",
    ]


@pytest.mark.parametrize(
    ("flag", "handed_on"),
    [
        ("kv-transfer-config: LMCacheConnectorV1", False),
        ("kv-transfer-config: 'MultiConnector: NixlConnector, OffloadingConnector'", True),
        ("kv-transfer-config: 'MultiConnector: LMCacheConnectorV1, OffloadingConnector'", False),
        ("kv-transfer-config: /etc/transfer.json", True),
        ("disaggregation-mode: prefill", True),
        ("disaggregation-mode: 'null'", False),
    ],
)
def test_which_settings_hand_caches_on(flag: str, handed_on: bool, tmp_path: Path) -> None:
    head = HEAD.replace("kv-transfer-config: NixlConnector", flag)
    notes = [note for note in _examined(tmp_path, GOOD, head).notes if "has none" in note]
    assert bool(notes) != handed_on


def test_a_reload_takes_other_members_but_no_other_port(tmp_path: Path) -> None:
    old = _examined(tmp_path, GOOD).loaded.profile
    fewer = _examined(tmp_path, GOOD.replace("9500", "9501")).loaded.profile
    assert "agent_check_port of a pair" in str(needs_restart(old, fewer))
    renamed = _examined(tmp_path, GOOD + "  y: {prefill: [p0], decode: [d0]}\n").loaded.profile
    assert needs_restart(old, renamed) is None


def test_the_shipped_launches_of_a_prefill_and_a_decode_engine_make_a_pair(tmp_path: Path) -> None:
    text = HEAD[: HEAD.index("engines:")] + (
        "engines:\n"
        "  p0: {launch: {preset: d5-glm52-prefill-b300, model: /m}}\n"
        "  d0: {launch: {preset: d5-glm52-decode-b300, model: /m}}\n"
        "pairs:\n"
    )
    examined = _examined(tmp_path, GOOD, text)
    assert examined.faults == ()
    assert not [note for note in examined.notes if "cache" in note]
