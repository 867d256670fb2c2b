"""Secrets by value and by form, and lines that may show requests, are taken out; what is harmless stays."""

from __future__ import annotations

import base64
import json
from pathlib import Path

import pytest
from bundle_kit import profile_with

from agent.bundle.prompts import without_prompts
from agent.bundle.secret_search import Known, SecretSearch, known_secrets
from agent.bundle.sources_list import SOURCES
from agent.profile_loader import load_profile

SECRET = "p\"q'Zürich\\9 x"


@pytest.mark.parametrize(
    "form",
    [
        SECRET,
        json.dumps(SECRET),
        json.dumps(SECRET, ensure_ascii=False),
        json.dumps(json.dumps(SECRET)),
        SECRET.replace("'", "''"),
        base64.b64encode(SECRET.encode()).decode(),
        SECRET.encode().hex(),
    ],
)
def test_a_known_secret_is_found_in_every_form(form: str) -> None:
    search = SecretSearch(Known((SECRET,), ()))
    masked, count = search.mask(f"before {form} after\n".encode())
    assert count == 1
    assert masked.startswith(b"before ")
    assert masked.endswith(b" after\n")
    assert b"9 x" not in masked
    assert not search.has_known(masked)


@pytest.mark.parametrize(
    ("text", "gone"),
    [
        ("Authorization: Bearer abc.def-123", "abc.def-123"),
        ('"X-Auth-Token": "0123abcd"', "0123abcd"),
        ("pull https://mira:hunter22@registry.example/x", "hunter22"),
        ("HF_TOKEN=plain-value-1", "plain-value-1"),
        ("password: 'correct horse'", "correct horse"),
        ('{"Password": "a b c"}', "a b c"),
        ('{\\"api_key\\": \\"zzzz9\\"}', "zzzz9"),
        ("serve --api-key topsecret --port 1", "topsecret"),
        ('["serve", "--api-key", "topsecret"]', "topsecret"),
        ("using hf_ABCDEFGHIJKLMNOPQRST now", "ABCDEFGHIJ"),
        ("jwt eyJhbGciOiJIUzI1NiJ9abc.eyJzdWIiOiIx.sig_x", "eyJzdWIiOiIx"),
        ("-----BEGIN RSA PRIVATE KEY-----\nMIIE\nqq\n-----END RSA PRIVATE KEY-----", "MIIE"),
    ],
)
def test_what_looks_like_a_secret_is_taken_out(text: str, gone: str) -> None:
    masked, count = SecretSearch(Known((), ())).mask(text.encode())
    assert count >= 1
    assert gone.encode() not in masked
    assert b"(secret)" in masked


@pytest.mark.parametrize(
    "text",
    [
        '{"token": null, "password": false, "secret": 3, "api_key": ""}',
        "max_tokens: 4096, prompt tokens: 12, time to first token: 1.2 s",
        "credentials_file: /etc/nodegate/credentials/bmc",
        "key_file: credential:group.key",
        "GPU-1b2c3d4e-0000-4000-8000-000000000001 Serial Number : 1650123456789",
        "NVRM: Xid (PCI:0000:61:00): 79, pid=1, GPU has fallen off the bus.",
        "--ssl-keyfile /etc/ssl/key.pem --tokenizer x",
    ],
)
def test_what_is_harmless_stays(text: str) -> None:
    assert SecretSearch(Known(("info-value",), ())).mask(text.encode()) == (text.encode(), 0)


def test_values_come_from_every_file_of_secrets_and_from_flags(tmp_path: Path) -> None:
    folder = tmp_path / "credentials"
    folder.mkdir()
    (folder / "bmc").write_text("username: admin\npassword: bmc-pass-1\n")
    (folder / "other").write_text("stray-credential\n")
    (tmp_path / "env").write_text(
        "# c\nHF_TOKEN='env-token-1'\nVLLM_LOGGING_LEVEL=DEBUG\nNCCL_X=1\nPIN=123\n"
    )
    (tmp_path / "group").write_text("group-key-base64==\n")
    profile = load_profile(_profile(tmp_path)).profile
    known = known_secrets(profile, [folder, tmp_path / "not-there"])
    assert known.unread == ()
    login = base64.b64encode(b"admin:bmc-pass-1").decode()
    assert set(known.values) == {
        "bmc-pass-1", "stray-credential", "env-token-1", "group-key-base64==", "in-launch-env", "in-flags",
        login,
    }  # fmt: skip


def test_a_file_of_secrets_that_cannot_be_read_is_told_and_one_that_is_not_there_is_not(
    tmp_path: Path,
) -> None:
    profile = load_profile(_profile(tmp_path)).profile
    assert known_secrets(profile, []).unread == ()
    (tmp_path / "env").symlink_to(tmp_path / "env")
    (tmp_path / "group").mkdir()
    unread = dict(known_secrets(profile, []).unread)
    assert "symbolic links" in unread[str(tmp_path / "env")]
    assert unread[str(tmp_path / "group")] == "is not a regular file"


def _profile(folder: Path) -> Path:
    members = [{"node": "a", "address": "10.0.0.1"}, {"node": "b", "address": "10.0.0.2"}]
    group = {"rank": 0, "key_file": str(folder / "group"), "members": members}
    engine = {
        "launch": {
            "command": ["vllm", "serve"], "model": "/m", "env_file": str(folder / "env"),
            "env": {"MY_TOKEN": "in-launch-env", "PLAIN": "stays"},
            "flags": {"api-key": "in-flags"},
        },
        "port": 8000,
        "group": group,
        "gpus": list(range(8)),
    }  # fmt: skip
    return profile_with(
        folder,
        node="a",
        mode="manage",
        bmc={"redfish": {"url": "https://bmc.example", "credentials_file": "credential:bmc"}},
        engines={"main": engine},
    )


@pytest.mark.parametrize(
    "line",
    [
        "INFO 11-30 08:00:01 Received request cmpl-1: params: SamplingParams(n=1), lora_request: None.",
        "DEBUG 11-30 08:00:01 Request cmpl-1 details: prompt: 'dear diary', prompt_token_ids: [1], ...",
        "INFO Generated response cmpl-1 (streaming complete): output: 'dear', output_token_ids: [2]",
        "[2026-11-30 08:00:01 TP0] Receive: obj=GenerateReqInput(text='dear diary', rid='1')",
        "[2026-11-30 08:00:01] Finish: obj=GenerateReqInput(rid='1'), out={'text': 'dear'}",
        '(EngineCore pid=3) ERROR {"messages": [{"role": "user", "content": "dear diary"}]}',
        "ERROR 11-30 Dumping scheduler output for model execution: SchedulerOutput(x)",
    ],
)
def test_lines_that_may_show_requests_go_with_what_belongs_to_them(line: str) -> None:
    text = f"INFO start\n{line}\ndear diary, it went on\n\nINFO 11-30 08:00:02 end of it\n"
    kept, dropped = without_prompts(text)
    assert (
        kept == "INFO start\n(3 lines that may show requests are left out)\nINFO 11-30 08:00:02 end of it\n"
    )
    assert dropped == 3


def test_other_lines_of_an_engine_stay() -> None:
    text = (
        'INFO:     127.0.0.1:51 - "POST /v1/completions HTTP/1.1" 200 OK\n'
        "INFO 11-30 08:00:01 [loggers.py] Engine 000: Avg prompt throughput: 10.0 tokens/s, Running: 1 reqs\n"
        "(EngineCore pid=7) ERROR 11-30 08:00:02 torch.OutOfMemoryError: CUDA out of memory.\n"
        "Traceback (most recent call last):\n  File x, line 1\n    raise RuntimeError\n"
    )
    assert without_prompts(text) == (text, 0)
    assert without_prompts("x" * 5000) == ("(1 lines that may show requests are left out)\n", 1)


def test_shares_make_one_and_names_are_different() -> None:
    assert sum(each.share for each in SOURCES) == pytest.approx(1.0)
    assert len({each.name for each in SOURCES}) == len(SOURCES)
