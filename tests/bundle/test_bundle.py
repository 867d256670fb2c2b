"""A bundle: whole though sources hang or give garbage, bounded, without secrets, and never half written."""

from __future__ import annotations

import base64
import errno
import gzip
import hashlib
import json
import os
import resource
import shutil
import threading
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from bundle_kit import NODE, NOW_S, FakeBmc, FakeCommands, case_of, profile_with, source, unpacked

from agent.bundle import archive, make, read_state
from agent.bundle.make import Made, make_bundle
from agent.bundle.parts import MIB, Case, Piece, Source
from agent.bundle.secret_search import Known, known_secrets
from agent.bundle.sources_list import SOURCES
from agent.cli import run_command_line
from agent.errors import ConfigError, DeviceAbsent, SourceTimeout, SourceUnavailable
from agent.journal import Journal
from agent.sources import KmsgRecord
from agent.sources.fault_history import PartFault

SECRETS = ("env-file-secret-1", 'group"key\\1', "bmc-password-1")
INVENTORY = "/redfish/v1/UpdateService/FirmwareInventory"
NOTHING = Known((), ())


@pytest.fixture
def never() -> Iterator[threading.Event]:
    """What a source that hangs waits for; released at the end of the test."""
    event = threading.Event()
    yield event
    event.set()


def _bundle(case: Case, target: Path, sources: tuple[Source, ...] = SOURCES, **options: Any) -> Made:
    options = {"known": NOTHING, "max_mib": 8, **options}
    return make_bundle(case, sources, target, **options)


def _manifest(target: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(unpacked(target)["manifest.json"])
    return found


def _states(target: Path) -> dict[str, str]:
    return {each["name"]: each["state"] for each in _manifest(target)["sources"]}


def test_a_whole_bundle_has_every_source_and_sums_that_fit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    target = tmp_path / "case.tar.gz"
    with _full_case(tmp_path, monkeypatch) as case:
        made = _bundle(case, target)
    assert made.complete
    assert set(_states(target).values()) == {"complete"}
    files = unpacked(target)
    told = {each["path"]: each for part in _manifest(target)["sources"] for each in part["files"]}
    assert set(told) | {"manifest.json", "README.txt"} == set(files)
    for path, each in told.items():
        assert hashlib.sha256(files[path]).hexdigest() == each["sha256"]
        assert len(files[path]) == each["bytes"]
    assert target.stat().st_mode & 0o777 == 0o600
    assert json.loads(files["journal/faults.jsonl"])["place"] == "gpu3"
    assert json.loads(files["redfish/node.json"])[f"{INVENTORY}/BMC"]["Version"] == "1.2.3"
    assert [path.name for path in tmp_path.glob(".case*")] == []


def test_no_source_brings_a_secret_or_a_prompt_in(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    target = tmp_path / "case.tar.gz"
    planted = " ".join([*SECRETS, *(json.dumps(each)[1:-1] for each in SECRETS)])
    prompt = "INFO Received request cmpl-1: prompt: 'my diary', params: x"
    with _full_case(tmp_path, monkeypatch, planted, prompt) as case:
        assert case.loaded is not None
        known = known_secrets(case.loaded.profile, [tmp_path / "credentials"])
        made = _bundle(case, target, known=known)
    assert made.complete
    assert len(made.parts) == len(SOURCES)
    for part in _manifest(target)["sources"]:
        if part["name"] not in ("profile", "capture-now"):
            assert any("secrets masked" in each.get("note", "") for each in part["files"]), part["name"]
    data = gzip.decompress(target.read_bytes())
    for secret in SECRETS:
        raw = secret.encode()
        forms = (
            raw,
            json.dumps(secret)[1:-1].encode(),
            base64.b64encode(raw).rstrip(b"="),
            raw.hex().encode(),
        )
        for form in forms:
            assert form not in data, secret
    assert b"my diary" not in data
    assert _manifest(target)["masked"]["lines_that_may_show_requests"] >= 3
    assert b"gpu fell off" in data  # what is no secret stays


def test_every_source_that_hangs_is_given_up_and_the_bundle_is_written(
    tmp_path: Path, never: threading.Event
) -> None:
    def hang(_case: Case) -> Iterator[Piece]:
        yield Piece("early.txt", b"until then\n")
        never.wait()

    hanging = tuple(replace(each, read=hang, deadline_s=0.05) for each in SOURCES)
    target = tmp_path / "case.tar.gz"
    with case_of(tmp_path) as case:
        made = _bundle(case, target, hanging)
    assert not made.complete
    for part in _manifest(target)["sources"]:
        assert part["why"] == "no answer in 0 s; 1 files until then"
        assert part["state"] == "partial"


def test_a_hanging_part_of_the_machine_costs_its_source_alone(tmp_path: Path, never: threading.Event) -> None:
    class Hanging(FakeCommands):
        def __call__(self, argv: Any, **options: Any) -> Any:
            if argv[0] == "nvidia-smi":
                never.wait()
            return super().__call__(argv, **options)

    target = tmp_path / "case.tar.gz"
    quick = tuple(replace(each, deadline_s=0.1 if each.name == "nvidia" else 30.0) for each in SOURCES)
    with case_of(tmp_path, ask=Hanging()) as case:
        _bundle(case, target, quick)
    states = _states(target)
    assert states["nvidia"] == "missing"
    assert states["units"] == states["kernel"] == states["capture-now"] == "complete"


@pytest.mark.parametrize(
    "error", [ValueError("odd"), SourceTimeout("late"), RecursionError("deep"), OSError(5, "io")]
)
def test_a_source_that_breaks_is_told_and_the_others_are_there(tmp_path: Path, error: Exception) -> None:
    def broken(_case: Case) -> Iterator[Piece]:
        yield Piece("begun.txt", b"x")
        raise error

    target = tmp_path / "case.tar.gz"
    with case_of(tmp_path) as case:
        _bundle(case, target, (replace(source("units"), read=broken), source("profile")))
    units, profile = _manifest(target)["sources"]
    assert str(error) in units["why"]
    assert (units["state"], profile["state"]) == ("partial", "complete")


def test_without_dmesg_the_records_of_the_agents_own_reader_are_there(tmp_path: Path) -> None:
    target = tmp_path / "case.tar.gz"
    refused = FakeCommands({"dmesg": SourceUnavailable("cannot start dmesg"), "journalctl": "of before\n"})
    with case_of(tmp_path, ask=refused, kmsg=_Kmsg("gpu fell off")) as case:
        _bundle(case, target, (source("kernel"),))
    (kernel,) = _manifest(target)["sources"]
    assert kernel["state"] == "partial"
    assert kernel["why"] == "dmesg: cannot start dmesg; here are the records that checks look at"
    files = unpacked(target)
    assert files["kernel/journal.log"] == b"of before\n"
    assert files["kernel/kmsg.txt"].endswith(b"gpu fell off\n")


def test_a_document_with_last_words_stays_one_and_loses_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    target = tmp_path / "case.tar.gz"
    words = "INFO fine\nINFO Received request x: prompt: 'my diary'"
    monkeypatch.setattr(read_state, "AdminClient", lambda _folder: _Admin(words))
    with case_of(tmp_path) as case:
        _bundle(case, target, (source("status"),))
    status = json.loads(unpacked(target)["status/status.json"])
    assert status == {"problems": ["INFO fine\n(1 lines that may show requests are left out)"]}


@pytest.mark.parametrize("redact", [False, True])
def test_a_document_that_cannot_be_cleaned_is_left_out(tmp_path: Path, redact: bool) -> None:
    def deep(_case: Case) -> Iterator[Piece]:
        yield Piece("x/tree.json", b"[" * 200_000, prompts=True)
        yield Piece("fine.txt", b"fine")

    target = tmp_path / "case.tar.gz"
    with case_of(tmp_path) as case:
        made = _bundle(case, target, (replace(source("units"), read=deep),), redact=redact)
    assert not made.complete
    (part,) = _manifest(target)["sources"]
    assert part["left_out"] == [{"path": "x/tree.json", "why": "it could not be cleaned: RecursionError"}]
    assert unpacked(target)["fine.txt"] == b"fine"


def test_garbage_in_every_place_is_told_or_kept_as_it_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with _full_case(tmp_path, monkeypatch) as case:
        assert case.state_dir is not None
        noise = os.urandom(3000)
        for path in case.state_dir.rglob("*"):
            if path.is_file():
                path.write_bytes(noise)
        (case.state_dir / "holds.json").unlink()
        os.mkfifo(case.state_dir / "holds.json")
        bmc = FakeBmc(
            {
                INVENTORY: {"Members": [3, {"@odata.id": 4}, None]},
                "/redfish/v1/Systems": SourceUnavailable("x"),
            }
        )
        junk = FakeCommands(
            {"dmesg": "\x00\ufffd", "nvidia-smi": "\x00\n", "journalctl": SourceUnavailable("too much")}
        )
        odd = replace(case, sources=replace(case.sources, bmc=bmc), ask=junk)
        made = _bundle(odd, tmp_path / "case.tar.gz")
    assert not made.complete
    told = {each["name"]: each["why"] for each in _manifest(tmp_path / "case.tar.gz")["sources"]}
    assert "cannot read the journal" in told["journal"]
    assert "is not a regular file" in told["status"]
    assert "too much" in told["units"]
    assert told["redfish"] == "x"


def test_a_bundle_is_never_larger_than_asked_and_says_what_was_cut(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lines = "\n".join(os.urandom(60).hex() for _ in range(12_000)) + "\nthe newest line\n"
    target = tmp_path / "case.tar.gz"
    with _full_case(tmp_path, monkeypatch) as case:
        assert case.state_dir is not None
        (case.state_dir / "log/engine-main.log").write_text(lines)
        (case.state_dir / "checklists/20261130T081500Z-x/report.html").write_bytes(os.urandom(3 * MIB))
        big = FakeCommands({"nvidia-smi -q": lines, "journalctl": lines, "dmesg": lines})
        made = _bundle(replace(case, ask=big), target, max_mib=1)
    assert target.stat().st_size <= MIB
    assert made.size_bytes == target.stat().st_size
    files = unpacked(target)
    for path in ("engine-logs/engine-main.log", "nvidia/nvidia-smi-q.txt", "kernel/dmesg.log"):
        assert files[path].endswith(b"\nthe newest line\n"), path
        assert len(files[path].splitlines()[0]) == 120, "cut at the beginning of a line"
    parts = {each["name"]: each for each in _manifest(target)["sources"]}
    assert "larger than its share" in parts["checklists"]["why"]
    cut = [each["note"] for each in parts["nvidia"]["files"] if "note" in each]
    assert cut == ["cut: its newest lines"]


def test_a_secret_that_a_cut_goes_through_is_not_shown_by_half(tmp_path: Path) -> None:
    body = "\n".join(f"{at:05d}" + "K" * 58 for at in range(200))
    key = f"-----BEGIN PRIVATE KEY-----\n{body}\n-----END PRIVATE KEY-----\n"
    target = tmp_path / "case.tar.gz"
    with case_of(tmp_path) as case:
        assert case.log_dir is not None
        logs = [case.log_dir / f"engine-{name}.log" for name in ("a", "b")]
        share = int(archive.room(MIB) * source("engine-logs").share) // 2
        for path, before in zip(logs, (40, 6000), strict=True):
            # The share begins in the middle of the key, with and without what is read beyond it.
            after = "INFO fine\n" * ((share + (0 if before == 40 else 30_000) - 6000) // 10)
            path.write_text("INFO old\n" * 9000 + key + after)
        _bundle(case, target, (source("engine-logs"),), max_mib=1)
    data = gzip.decompress(target.read_bytes())
    assert data.count(b"INFO fine") > 5000
    assert b"KKKKKKKK" not in data


def test_sources_of_free_text_are_left_out_while_a_file_of_secrets_cannot_be_read(tmp_path: Path) -> None:
    target = tmp_path / "case.tar.gz"
    with case_of(tmp_path) as case:
        made = _bundle(case, target, known=Known((), (("/etc/x/env", "Permission denied"),)))
    assert not made.complete
    states = _states(target)
    assert {states[name] for name in ("status", "journal", "units", "engine-logs")} == {"missing"}
    assert states["capture-now"] == "complete"
    told = {each["name"]: each["why"] for each in _manifest(target)["sources"]}
    assert told["units"].startswith(
        "left out, for it is not known what to mask: /etc/x/env: Permission denied"
    )


def test_an_older_fault_brings_the_hour_before_it(tmp_path: Path) -> None:
    target = tmp_path / "case.tar.gz"
    with case_of(tmp_path) as case:
        assert case.state_dir is not None
        old_s = NOW_S - 9 * 86400
        _journal(
            case.state_dir,
            {"before": old_s - 60, "long before": old_s - 86400, "long after": old_s + 86400},
            old_s,
        )
        _bundle(case, target, (source("journal"),))
    files = unpacked(target)
    assert files["journal/history.jsonl"] == b""
    around = files["journal/around-newest-fault.jsonl"].decode()
    assert [json.loads(line)["summary"] for line in around.splitlines()] == ["before"]


def test_redaction_replaces_what_identifies_the_machine_everywhere(tmp_path: Path) -> None:
    target = tmp_path / "case.tar.gz"
    nvml = json.loads((NODE / "nvml.json").read_text())
    uuid, serial = (nvml["gpus"][0]["identity"][name] for name in ("uuid", "serial"))
    smi = f"GPU UUID : {uuid}\nSerial Number : {serial}\nHost rack4-node2\n"
    for redact in (False, True):
        with case_of(tmp_path, ask=FakeCommands({"nvidia-smi -q": smi})) as case:
            _bundle(case, target, redact=redact)
        data = gzip.decompress(target.read_bytes())
        assert all((word.encode() in data) is not redact for word in (uuid, serial, "rack4-node2"))
        files = unpacked(target)
        identity = json.loads(files["capture-now/nvml.json"])["gpus"][0]["identity"]
        assert identity["uuid"] in files["nvidia/nvidia-smi-q.txt"].decode(), "the same by the same"
        target.unlink()


def test_a_full_disk_leaves_no_file_and_says_so(tmp_path: Path) -> None:
    target = tmp_path / "case.tar.gz"
    with case_of(tmp_path) as case:
        unlimited = resource.getrlimit(resource.RLIMIT_FSIZE)
        resource.setrlimit(resource.RLIMIT_FSIZE, (2000, unlimited[1]))
        try:
            with pytest.raises(
                ConfigError, match=r"cannot write it: File too large; free space or name another file"
            ):
                _bundle(case, target, (source("capture-now"),))
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, unlimited)
    assert list(tmp_path.glob("*case*")) == []


@pytest.mark.parametrize("where", ["collecting", "writing", "naming"])
def test_ctrl_c_leaves_no_half_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, where: str) -> None:
    def interrupt(*_args: object, **_options: object) -> None:
        raise KeyboardInterrupt

    place = {
        "collecting": (make, "collect"),
        "writing": (archive.os, "fsync"),
        "naming": (archive.os, "link"),
    }
    monkeypatch.setattr(*place[where], interrupt)
    with case_of(tmp_path) as case, pytest.raises(KeyboardInterrupt):
        _bundle(case, tmp_path / "case.tar.gz", (source("profile"),))
    assert list(tmp_path.glob("*case*")) == []


def test_where_files_have_no_links_it_is_renamed_and_nothing_is_overwritten(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def no_links(*_args: object) -> None:
        raise OSError(errno.EPERM, "Operation not permitted")

    monkeypatch.setattr(archive.os, "link", no_links)
    target = tmp_path / "case.tar.gz"
    archive.write(target, b"one")
    with pytest.raises(ConfigError, match="File exists"):
        archive.write(target, b"two")
    assert target.read_bytes() == b"one"
    assert [path.name for path in tmp_path.iterdir()] == ["case.tar.gz"]


@pytest.mark.parametrize(
    ("name", "says"),
    [
        ("case.zip", "is no name of a bundle; name it FILE.tar.gz"),
        ("there.tar.gz", "is there already; name a new file"),
        ("nowhere/case.tar.gz", "its folder is not there"),
    ],
)
def test_a_target_that_will_not_do_is_refused_before_anything_is_asked(
    tmp_path: Path, name: str, says: str, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "there.tar.gz").write_text("evidence")
    assert run_command_line(["bundle", str(tmp_path / name), "--node", str(NODE)]) == 3
    assert says in capsys.readouterr().err
    assert (tmp_path / "there.tar.gz").read_text() == "evidence"


def test_a_captured_node_gives_a_bundle_that_replays_and_says_simulated(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    target = tmp_path / "case.tar.gz"
    assert run_command_line(["bundle", str(target), "--node", str(NODE)]) == 0
    shown = capsys.readouterr().out
    assert "SIMULATED" in shown
    assert "complete" in shown
    assert _manifest(target)["simulated"] is True
    shutil.unpack_archive(target, tmp_path, filter="data")
    folder = tmp_path / "case"
    assert "SIMULATED" in (folder / "README.txt").read_text()
    argv = [
        "check",
        "--node",
        str(folder / "capture-now"),
        "--profile",
        str(folder / "profile.yaml"),
        "--only",
        "gpu.count",
    ]
    assert run_command_line(argv) == 0


def test_what_is_missing_is_exit_code_2(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    target = tmp_path / "case.tgz"
    argv = ["bundle", str(target), "--node", str(NODE), "--run-dir", str(tmp_path / "run")]
    assert run_command_line(argv) == 2
    assert "no daemon answers" in capsys.readouterr().out
    assert _states(target)["status"] == "missing"


def _full_case(
    folder: Path, monkeypatch: pytest.MonkeyPatch, planted: str = "gpu fell off", prompt: str = "INFO fine"
) -> Any:
    """A case in which every source gives something, `planted` in each, `prompt` in what engines wrote."""
    (folder / "credentials").mkdir(exist_ok=True)
    (folder / "credentials/bmc").write_text(f"username: root\npassword: {SECRETS[2]}\n")
    (folder / "env").write_text(f"HF_TOKEN={SECRETS[0]}\n")
    (folder / "credentials/key").write_text(SECRETS[1])
    engine = {
        "gpus": list(range(8)), "port": 8000,
        "launch": {"command": ["vllm", "serve"], "model": "/m", "env_file": str(folder / "env")},
    }  # fmt: skip
    profile = profile_with(
        folder,
        engines={"main": engine},
        bmc={"redfish": {"url": "https://bmc.example", "credentials_file": "credential:bmc"}},
    )
    state = folder / "state"
    for name in ("log", "checklists/20261130T081500Z-x", "captures/20261130T080000Z-main"):
        (state / name).mkdir(parents=True, exist_ok=True)
    (state / "log/engine-main.log").write_text(f"INFO start gpu fell off {planted}\n{prompt}\n")
    (state / "checklists/20261130T081500Z-x/run.json").write_text(json.dumps({"reason": planted}))
    (state / "captures/20261130T080000Z-main/kmsg.txt").write_text(f"{planted}\n")
    (state / "holds.json").write_text(json.dumps({"reason": planted}))
    _journal(state, {planted: NOW_S - 60}, NOW_S - 30, trace=f"{planted}\n{prompt}")
    monkeypatch.setattr(read_state, "AdminClient", lambda _folder: _Admin(planted))
    bmc = FakeBmc(
        {
            INVENTORY: {"Members": [{"@odata.id": f"{INVENTORY}/BMC"}]},
            f"{INVENTORY}/BMC": {"Version": "1.2.3", "Description": planted},
            "/redfish/v1/Systems": DeviceAbsent("no systems"),
        }
    )
    words = {
        "dmesg": planted,
        "nvidia-smi": planted,
        "systemctl": f"{planted}\n{prompt}",
        "journalctl": planted,
    }
    return case_of(
        folder, profile, FakeCommands({name: f"{text}\n" for name, text in words.items()}), bmc=bmc,
        kmsg=_Kmsg(planted),
    )  # fmt: skip


class _Admin:
    def __init__(self, text: str) -> None:
        self._text = text

    def get(self, path: str) -> dict[str, Any]:
        assert path == "/status"
        return {"problems": [self._text]}


class _Kmsg:
    def __init__(self, text: str) -> None:
        self._text = text

    def records(self) -> list[KmsgRecord]:
        return [KmsgRecord(1, 1.0, 3, self._text)]

    def complete_since_mono_s(self) -> float:
        return 0.0


def _journal(state: Path, marks: dict[str, float], fault_s: float, trace: str = "") -> None:
    """A journal with marks at these times and a fault of gpu3."""
    now_s = [fault_s]
    journal = Journal.open(state / read_state.JOURNAL, wall=lambda: now_s[0])
    for summary, now_s[0] in marks.items():
        journal.record_mark("mark", summary)
    now_s[0] = fault_s
    fault = PartFault(
        part="GPU-1",
        place="gpu3",
        check="gpu.lost",
        wall_s=fault_s,
        boot_id="b",
        summary="lost",
        hardware=True,
    )
    journal.record_fault(fault)
    if trace:
        journal.record_trace("engine:main", "crashed", trace)
    assert journal.flush()
    journal.close()
