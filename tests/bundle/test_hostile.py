"""What whoever writes logs, folders and secrets may do to get a secret, a prompt or another's file in."""

from __future__ import annotations

import base64
import html
import os
import urllib.parse
from dataclasses import replace
from pathlib import Path

import pytest
from bundle_kit import case_of, unpacked
from markupsafe import escape

from agent.bundle import read_host, read_state
from agent.bundle.clean import Cleaner
from agent.bundle.make import make_bundle
from agent.bundle.parts import NotHere, Piece, as_lines
from agent.bundle.prompts import without_prompts
from agent.bundle.secret_search import Known, SecretSearch, known_secrets
from agent.errors import SourceUnavailable

SECRET = "p4ss/w0rd+\"x'&<y>z"
UNIT = "2026-11-30T09:20:00.123456+00:00 node1 vllm[7]: "
OTHER = "2026-11-30T09:20:00.123457+00:00 node1 nodegate[8]: "


def _cleaner(*secrets: str) -> Cleaner:
    return Cleaner(SecretSearch(Known(secrets, ())))


@pytest.mark.parametrize(
    "form",
    [
        html.escape(SECRET),
        str(escape(SECRET)),
        html.escape(SECRET, quote=False),
        repr(SECRET)[1:-1],
        urllib.parse.quote(SECRET),
        urllib.parse.quote_plus(SECRET),
        base64.urlsafe_b64encode(SECRET.encode()).decode(),
        SECRET.encode().hex().upper(),
    ],
)
def test_a_known_secret_is_found_as_pages_addresses_and_python_write_it(form: str) -> None:
    masked, count = SecretSearch(Known((SECRET,), ())).mask(f"before {form} after\n".encode())
    assert count == 1
    assert masked.rstrip(b" after\n=") == b"before (secret)"


@pytest.mark.parametrize("before", [b"", b"u:", b"me:"])
def test_a_known_secret_is_found_inside_other_base64(before: bytes) -> None:
    encoded = base64.b64encode(before + SECRET.encode() + b":tail")
    masked, count = SecretSearch(Known((SECRET,), ())).mask(encoded)
    assert count == 1
    # What is left are the bits that it shares with what stands beside it.
    left = [part for part in masked.split(b"(secret)") if part]
    assert sum(map(len, left)) <= len(encoded) - len(SECRET)


@pytest.mark.parametrize(
    ("text", "left"),
    [
        ("Authorization: Token abcdef0123", "Authorization: (secret)"),
        ("Authorization: Bearer abc,defgh", "Authorization: Bearer (secret)"),
        ('"password": "ab\'cdefgh", "who": "x"', '"password": "(secret)", "who": "x"'),
        (r'"password": "ab\"cdefgh", "who": "x"', '"password": "(secret)", "who": "x"'),
        ("PASSWORD=ab,cdefgh next", "PASSWORD=(secret) next"),
        ('{"why": "HF_TOKEN=ab\'cdefg", "who": "x"}', '{"why": "HF_TOKEN=(secret)", "who": "x"}'),
        ("https://me:p@ssw0rd@host/x", "https://(secret)@host/x"),
    ],
)
def test_a_secret_with_other_signs_in_it_goes_whole(text: str, left: str) -> None:
    assert SecretSearch(Known((), ())).mask(text.encode())[0].decode() == left


def test_a_file_of_secrets_that_is_too_long_to_read_counts_as_unread(tmp_path: Path) -> None:
    (tmp_path / "long").write_text("x" * 70_000 + "\npassword: beyond-the-end\n")
    assert known_secrets(None, [tmp_path]).unread == ((str(tmp_path / "long"), "is larger than 64 KiB"),)


@pytest.mark.parametrize(
    "text",
    [
        # Every line of an engine's output has a date of its own in systemd's journal.
        f"{UNIT}INFO Received request x: prompt: 'dear\n{OTHER}INFO other\n{UNIT}diary\n{UNIT}INFO end\n",
        "Nov 30 09:20:00 n vllm[7]: INFO prompt: 'dear\nNov 30 09:20:00 n vllm[7]: diary\n",
        # nodegate's own log as JSON, with an engine's last words in it.
        OTHER + '{"ts": "x", "message": "engine ended: {\\"prompt\\": \\"diary\\"}"}\n',
        *(f"INFO Received request x: prompt: 'dear{end}INFO diary'\n" for end in "\r\x0b\x85\u2028"),
        "INFO prompt: dear diary\n",
    ],
)
def test_requests_go_however_a_log_is_written(text: str) -> None:
    kept, dropped = without_prompts(text)
    assert "diary" not in kept
    assert dropped >= 1
    assert ("other" in kept) == ("other" in text)
    assert ("INFO end" in kept) == ("INFO end" in text)


def test_a_log_goes_on_after_a_request_where_lines_are_json_or_systemds() -> None:
    own = '{"ts": "2026-11-30T09:20:01Z", "event": "gate.changed"}'
    lines = (f"{UNIT}INFO prompt: 'x'", f"{OTHER}{own}", f"{UNIT}{own}", f"{own}")
    kept, dropped = without_prompts("\n".join((*lines, UNIT.replace("vllm[7]", "systemd[1]") + "Started.")))
    assert dropped == 1
    assert kept.count("gate.changed") == 3
    assert kept.endswith("Started.\n")


def test_rows_lose_requests_by_their_keys_and_over_line_ends_of_unicode() -> None:
    rows = [{"why": "INFO prompt: 'x\u2028diary'", "who": "a"}, {"evidence": {"prompt": ["diary"], "n": 1}}]
    piece = _cleaner().piece(Piece("journal/history.jsonl", as_lines(rows), log=True, prompts=True))
    assert piece is not None
    assert b"diary" not in piece.data
    assert b'"who": "a"' in piece.data
    assert b'"n": 1' in piece.data
    assert piece.data.count(b"\n") == 2


def test_what_the_two_parts_of_an_engines_output_share_is_in_neither(tmp_path: Path) -> None:
    log = tmp_path / "log"
    log.mkdir()
    (log / "engine-a.log.1").write_bytes(b"ret-1\nits diary, second line\nINFO old\nINFO key half-of-sec")
    (log / "engine-a.log").write_bytes(b"ret-2\nINFO new\n")
    with case_of(tmp_path) as case:
        pieces = list(read_host.read_engine_logs(replace(case, log_dir=log)))
    cleaned = [_cleaner("half-of-secret-2").piece(piece) for piece in pieces]
    shown = {piece.path: piece.data.decode() for piece in cleaned if piece is not None}
    assert shown["engine-logs/engine-a.log"] == "INFO new\n"
    assert shown["engine-logs/engine-a.log.1"] == "(1 lines that may show requests are left out)\nINFO old\n"


def test_links_and_pipes_in_folders_that_engines_can_write_are_not_followed(tmp_path: Path) -> None:
    other = tmp_path / "other"
    other.mkdir()
    (other / "shadow").write_text("root:$6$hash\n")
    log, state = tmp_path / "log", tmp_path / "state"
    (state / "captures").mkdir(parents=True)
    (state / "captures" / "20261130").symlink_to(other)
    (state / "checklists").symlink_to(tmp_path)
    log.mkdir()
    (log / "engine-link.log").symlink_to(other / "shadow")
    os.mkfifo(log / "engine-pipe.log")
    with case_of(tmp_path) as case:
        case = replace(case, log_dir=log, state_dir=state)
        with pytest.raises(
            SourceUnavailable, match=r"engine-link\.log: .*; .*engine-pipe\.log: is not a reg"
        ):
            list(read_host.read_engine_logs(case))
        with pytest.raises(NotHere):
            list(read_state.read_captures(case))
        with pytest.raises(SourceUnavailable, match="is a link"):
            list(read_state.read_checklists(case))


def test_a_name_of_dots_leads_nowhere(tmp_path: Path) -> None:
    with case_of(tmp_path) as case:
        make_bundle(case, (), tmp_path / "...tar.gz", Known((), ()), max_mib=8)
    assert set(unpacked(tmp_path / "...tar.gz")) == {"manifest.json", "README.txt"}


def test_garbled_holds_do_not_keep_the_daemon_from_being_asked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "holds.json").mkdir()
    monkeypatch.setattr(read_state.AdminClient, "get", lambda _self, _path: {"live": True})
    with case_of(tmp_path) as case:
        pieces = read_state.read_status(replace(case, state_dir=tmp_path))
        assert next(pieces).path == "status/status.json"
        with pytest.raises(SourceUnavailable, match=r"holds\.json: "):
            next(pieces)
