"""What members tell each other: sealed, for one question only; and what of their profiles must be equal."""

from __future__ import annotations

import hashlib
import hmac
import json
from pathlib import Path
from typing import Any

import group_kit as kit
import pytest
from server_kit import profile

from agent.errors import ConfigError, ParseError
from agent.group.agreement import disagreements, launch_parts, not_compared
from agent.group.key import read_key
from agent.group.memory import GenerationFile
from agent.group.status import WrongKey, canonical, expect, is_nonce, seal, unseal
from agent.profile_loader import profile_from_dict

NONCE = "0123456789abcdef"
ASKED = {"nonce": NONCE, "node": "n1", "engine": "glm", "rank": 1}


def test_a_sealed_status_comes_back_as_it_was() -> None:
    status = kit.says(nonce=NONCE, wall_s=1.5, parts={"launch.flags": "ab"}, waits_for=("gpu.ecc: é",))
    told = unseal(kit.KEY, seal(kit.KEY, status))
    assert told == status
    expect(told, **ASKED)  # type: ignore[arg-type]


def test_another_key_and_any_changed_byte_is_refused() -> None:
    data = seal(kit.KEY, kit.says(nonce=NONCE))
    with pytest.raises(WrongKey):
        unseal(b"another key of the same length..", data)
    answer = json.loads(data)
    for field, value in (("gate", "member"), ("age_s", 0.1), ("generation", "x"), ("nonce", "f" * 16)):
        with pytest.raises(WrongKey):
            unseal(kit.KEY, json.dumps({**answer, "body": {**answer["body"], field: value}}).encode())


GARBAGE: list[Any] = [
    b"", b"null", b"[]", b"{}", b'{"body": 1, "hmac": "x"}', b'{"body": {}, "hmac": 1}', b"\xff\xfe",
    b"[" * 100000, b'{"body": {"a": NaN}, "hmac": "x"}',
]  # fmt: skip


@pytest.mark.parametrize("data", GARBAGE, ids=range(len(GARBAGE)))
def test_what_is_no_answer_is_one_clear_refusal(data: bytes) -> None:
    with pytest.raises(ParseError):
        unseal(kit.KEY, data)


def test_an_honest_answer_to_another_question_is_refused() -> None:
    status = kit.says(nonce=NONCE)
    for wrong in ({"nonce": "f" * 16}, {"node": "n2"}, {"engine": "kimi"}, {"rank": 2}):
        with pytest.raises(ParseError):
            expect(status, **{**ASKED, **wrong})


def test_an_honest_answer_of_another_version_says_so() -> None:
    status = kit.says(schema_version=2)
    with pytest.raises(ParseError, match="another version"):
        unseal(kit.KEY, seal(kit.KEY, status))
    body = {**json.loads(seal(kit.KEY, kit.says()))["body"], "rank": "one"}
    signed = hmac.new(kit.KEY, canonical(body), hashlib.sha256).hexdigest()
    with pytest.raises(ParseError, match="cannot be read"):
        unseal(kit.KEY, json.dumps({"body": body, "hmac": signed}).encode())


@pytest.mark.parametrize(
    ("text", "good"),
    [
        ("0" * 16, True),
        ("f" * 64, True),
        ("0" * 15, False),
        ("0" * 65, False),
        ("F" * 16, False),
        ("", False),
    ],
)
def test_nonces(text: str, good: bool) -> None:
    assert is_nonce(text) is good


def _engine(**launch: Any) -> dict[str, str]:
    members = [{"node": "bench", "address": "10.0.0.1"}, {"node": "n1", "address": "10.0.0.2"}]
    group = {"rank": 0, "members": members, "key_file": "/k"}
    made = profile(group=group, launch={"model": "m", **launch})
    return launch_parts(made, made.engines["glm"], kit.KEY)


def test_parts_differ_where_the_launch_does_and_only_there() -> None:
    base = _engine()

    def differing(**launch: Any) -> set[str]:
        other = _engine(**launch)
        return {name for name in base if base[name] != other[name]}

    assert differing() == set()
    assert differing(flags={"max-num-seqs": 4}) == {"launch.flags"}
    assert differing(args=["--max-num-seqs", "4"]) == {"launch.args"}
    assert differing(env={"NCCL_IB_TC": "104"}) == {"launch.env"}
    assert differing(model="other") == {"launch.model"}
    # A node's own addresses, devices and NUMA nodes.
    own = ["--host", "0.0.0.0", "--numa-bind-nodes", "0", "1", "--port=9000"]
    assert differing(args=own, env={"VLLM_HOST_IP": "10.0.0.1", "NCCL_IB_HCA": "=mlx5_0"}) == set()
    assert differing(args=[*own, "--seed", "1"]) == {"launch.args"}
    assert differing(flags={"numa-bind-nodes": [0, 1], "node-rank": 1}) == set()


def test_hashes_of_parts_are_keyed_so_that_nobody_guesses_at_arguments() -> None:
    made = profile(group={"rank": 0, "members": [{"node": "bench", "address": "a"}, {"node": "b", "address": "b"}], "key_file": "/k"})  # fmt: skip  # noqa: E501
    engine = made.engines["glm"]
    assert launch_parts(made, engine, b"a" * 32) != launch_parts(made, engine, b"b" * 32)


def test_disagreements_name_what_and_who() -> None:
    mine = kit.says(0, parts={"launch.flags": "1", "gpus": "2"}, nccl_version="2.28", checkpoint="c")
    same = kit.says(1, parts=mine.parts, nccl_version="2.28", checkpoint="c")
    assert disagreements(mine, same) == ()
    other = same.model_copy(update={"parts": {"launch.flags": "9"}, "checkpoint": ""})
    first, second = disagreements(mine, other)
    assert first == "gpus, launch.flags of the profile differ from those of n1 (rank 1); make them equal"
    assert second == "checkpoint is c here and not known on n1 (rank 1)"
    unread = other.model_copy(update={"driver": "", "parts": mine.parts})
    assert disagreements(mine, unread) == (), "what has not been read yet differs from nothing"
    assert not_compared(mine) == ("engine version",)


def test_the_key_file_must_be_for_the_agent_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "group.key"

    def refused(match: str, name: str = str(path)) -> None:
        with pytest.raises(ConfigError, match=match) as caught:
            read_key(name)
        assert "secret" not in str(caught.value) and "\n" not in str(caught.value)

    refused("No such file")
    path.write_text("secret-of-all-members\n")
    path.chmod(0o640)
    refused("chmod 0600")
    path.chmod(0o600)
    assert read_key(str(path)) == b"secret-of-all-members"
    path.write_text("secret")
    refused("6 bytes")
    refused("not in a regular file", str(tmp_path))
    monkeypatch.delenv("CREDENTIALS_DIRECTORY", raising=False)
    refused("only under systemd", "credential:group.key")
    monkeypatch.setenv("CREDENTIALS_DIRECTORY", str(tmp_path))
    path.write_text("secret-of-all-members")
    assert read_key("credential:group.key") == b"secret-of-all-members"
    refused("no name of a credential", "credential:../group.key")


def test_the_generation_is_kept_for_this_boot_alone(tmp_path: Path) -> None:
    path = tmp_path / "group-glm.json"
    assert GenerationFile(path, "boot-a").load() == ""
    assert GenerationFile(path, "boot-a").save("a1") == ""
    assert GenerationFile(path, "boot-a").load() == "a1"
    assert GenerationFile(path, "boot-b").load() == ""
    for garbled in ("", "[]", '{"boot_id": "boot-a"}', '{"boot_id": "boot-a", "generation": 7}', "[" * 9999):
        path.write_text(garbled)
        assert GenerationFile(path, "boot-a").load() == ""
    assert "cannot be written" in GenerationFile(tmp_path / "none" / "x.json", "boot-a").save("a1")


@pytest.mark.parametrize(
    ("changes", "text"),
    [
        ({"rank": 2}, "there is no member 2"),
        ({"rank": 1}, "member 1 is n1, and this node is bench"),
        ({"members": [{"node": "bench", "address": "a"}, {"node": "bench", "address": "b"}]}, "node bench"),
        ({"members": [{"node": "bench", "address": "a"}, {"node": "n1", "address": "a"}]}, "address a port"),
        ({"period_s": 6.0}, "less than three pulls"),
        ({"api": "127.0.0.1"}, "answers at 127.0.0.1 alone"),
    ],
)
def test_profiles_that_contradict_themselves_are_refused(changes: dict[str, Any], text: str) -> None:
    members = [{"node": "bench", "address": "10.0.0.1"}, {"node": "n1", "address": "10.0.0.2"}]
    members[1]["data_address"] = "10.1.0.2"
    group = {"rank": 0, "members": members, "key_file": "/k", **changes}
    host = group.pop("api", "0.0.0.0")
    made = profile(group={"rank": 0, "members": members, "key_file": "/k"})
    with pytest.raises(ConfigError, match=text):
        profile_from_dict(
            {
                **made.model_dump(mode="json", exclude_unset=True),
                "api": {"host": host},
                "engines": {"glm": {"gpus": [], "port": 20000, "group": group}},
            }
        )


def test_mode_gate_starts_no_ranks() -> None:
    members = [{"node": "bench", "address": "10.0.0.1"}, {"node": "n1", "address": "10.0.0.2"}]
    with pytest.raises(ConfigError, match="starts the ranks of a group itself"):
        profile(mode="gate", group={"rank": 0, "members": members, "key_file": "/k"})
