"""What the events of a run become: phases, failures, hosts nobody reached; and what is taken out of text."""

from __future__ import annotations

import io
from typing import Any

import pytest
from rich.console import Console

from agent.errors import ConfigError
from agent.fleet.bringup import reason
from agent.fleet.lock import locked
from agent.fleet.progress import HostState, Progress
from agent.fleet.secret_values import Redactor, is_secret_name, named_secrets
from agent.fleet.show import Moving, summary_rows


def start(host: str, role: str = "", task: str = "Do it") -> dict[str, Any]:
    return {"event": "runner_on_start", "event_data": {"host": host, "role": role, "task": task}}


def end(host: str, kind: str = "ok", **result: Any) -> dict[str, Any]:
    return {"event": f"runner_on_{kind}", "event_data": {"host": host, "task": "Do it", "res": result}}


def stats(**data: dict[str, int]) -> dict[str, Any]:
    return {"event": "playbook_on_stats", "event_data": data}


def fed(progress: Progress, *events: dict[str, Any]) -> list[str]:
    return [line for i, event in enumerate(events) for line in progress.feed(event, float(i))]


def test_phases_come_from_roles_and_from_names() -> None:
    progress = Progress.of(["a"])
    lines = fed(
        progress,
        start("a", "bios"),
        end("a", changed=True),
        start("a", "bios", "Another"),
        end("a"),
        start("a", task="PHASE | settle"),
        end("a", "skipped"),
        stats(processed={"a": 1}, changed={"a": 1}),
    )
    assert lines == ["a: bios: 1 changed (4.0 s)", "a: settle: ok (2.0 s)"]
    assert summary_rows(progress, 99.0) == [("a", "ok", "settle", "1", "6.0", "")]


def test_a_host_that_is_given_up_with_its_batch_is_not_done() -> None:
    batch, given_up = {"event": "playbook_on_play_start"}, {"event": "playbook_on_no_hosts_remaining"}
    progress = Progress.of(["canary", "bad", "other"])
    fed(
        progress,
        batch,
        start("canary", "verify"),
        end("canary"),
        batch,
        start("bad", "nic"),
        start("other", "nic"),
    )
    fed(progress, end("bad", "failed", msg="why"), end("other"), given_up)
    fed(progress, stats(processed={"canary": 1, "bad": 1, "other": 1}, failures={"bad": 1}))
    assert [host.state for host in progress.hosts.values()] == [
        HostState.OK,
        HostState.FAILED,
        HostState.FAILED,
    ]
    assert progress.hosts["bad"].why == "why"
    assert progress.hosts["other"].why.startswith("stopped here as another host of its batch failed")


def test_a_failure_stops_its_host_and_says_why_on_one_line() -> None:
    progress = Progress.of(["a", "b", "c"])
    lines = fed(
        progress,
        start("a", "nic"),
        start("b", "nic"),
        end("a", "failed", msg="first\n line\x1b[31m"),
        start("a", "", "Stop"),
        end("a", "failed", msg="a: phase nic: put it right"),
        end("b", "unreachable", msg="Connection refused"),
        stats(processed={"a": 1, "b": 1}, failures={"a": 1}, dark={"b": 1}),
    )
    assert lines[0] == "a: nic: FAILED: first line\\x1b[31m"
    assert lines[1] == "a: nic: FAILED: a: phase nic: put it right"
    states = {name: host.state for name, host in progress.hosts.items()}
    assert states == {"a": HostState.FAILED, "b": HostState.UNREACHABLE, "c": HostState.NOT_REACHED}
    assert "run again with --limit b" in progress.hosts["b"].why
    assert "left alone" in progress.hosts["c"].why


def test_a_failure_that_the_play_has_dealt_with_is_none() -> None:
    progress = Progress.of(["a"])
    fed(progress, start("a", "nic"), end("a", "failed", msg="odd"), start("a", "gpu"))
    assert progress.hosts["a"].state is HostState.RUNNING
    fed(progress, end("a"), stats(processed={"a": 1}, rescued={"a": 1}))
    assert (progress.hosts["a"].state, progress.hosts["a"].why) == (HostState.OK, "")


def test_an_ignored_failure_is_none() -> None:
    event = end("a", "failed", msg="no matter")
    event["event_data"]["ignore_errors"] = True
    assert fed(Progress.of(["a"]), start("a", "nic"), event) == []


def test_the_moving_table_shows_what_runs_and_what_failed_first() -> None:
    progress = Progress.of([f"h{i}" for i in range(40)])
    fed(progress, start("h37", "nic"), start("h38", "gpu"), end("h38", "failed", msg="x"))
    console = Console(file=io.StringIO(), width=120, height=14, force_terminal=True)
    view = Moving(progress, console)
    view.update(["h38: gpu: FAILED: x"], 3.0)
    view.close()
    shown = console.file.getvalue()  # type: ignore[attr-defined]
    assert "h38: gpu: FAILED: x" in shown and "0 of 40 done" in shown
    assert shown.index("h37") > 0 and "h9" not in shown


@pytest.mark.parametrize(
    ("name", "secret"),
    [("nodegate_bmc_password", True), ("ANSIBLE_BECOME_PASS", True), ("hf_token", True), ("api_key", True),
     ("vault_password_file", False), ("ANSIBLE_VAULT_PASSWORD_FILE", False), ("key", False)],
)  # fmt: skip
def test_names_of_secrets(name: str, secret: bool) -> None:
    assert is_secret_name(name) is secret


def test_secrets_are_taken_out_in_every_form() -> None:
    values = list(named_secrets({"a": {"b_password": "qu\"o'te"}, "user": "root", "pin_token": 123456}))
    assert values == ["qu\"o'te", "123456"]
    redactor = Redactor(values)
    for text in ("x qu\"o'te y", "x qu\\\"o'te y", "x qu\"o''te y", "x 123456 y"):
        assert redactor.text(text) == "x (secret) y"
    data = {"password": "short", "list": ["123456", 5], "note": "ok", "password_file": "/etc/key"}
    assert redactor.data(data) == {
        "password": "(secret)",
        "list": ["(secret)", 5],
        "note": "ok",
        "password_file": "/etc/key",
    }
    assert Redactor(["abc"]).text("abc") == "abc", "too short to be told from harmless text"


def test_the_lock_is_on_the_site_and_ends_with_the_run(tmp_path) -> None:
    hosts = tmp_path / "hosts.yml"
    hosts.touch()
    refused = pytest.raises(ConfigError, match="another fleet run on this inventory is going on")
    with locked([tmp_path]), refused, locked([hosts]):
        pass
    with locked([hosts, tmp_path]):
        pass


def test_why_ansible_did_not_begin() -> None:
    said = (
        "[WARNING]: odd\n[ERROR]: 'taks' is not a valid attribute for a Play\nOrigin: x.yml:1:3\n\n1 - hosts"
    )
    assert reason(said) == "'taks' is not a valid attribute for a Play Origin: x.yml:1:3 1 - hosts"
    assert reason("") == ""


def test_secrets_in_texts_of_files_are_known() -> None:
    vault = {
        "nodegate_group_keys": {"main": "Gk0123=="},
        "nodegate_engine_env": {"main": "# theirs\nHF_TOKEN='Ek-4567'\n"},
        "nodegate_pdu_credentials": {"left": 'username: "admin"\npassword: "Pd-89ab"\n'},
    }
    said = Redactor(named_secrets(vault)).text("Gk0123== Ek-4567 Pd-89ab admin")
    assert said == "(secret) (secret) (secret) admin"
