"""`nodegate fleet bringup`: one run of a playbook over the hosts of an inventory, by ansible-runner."""

from __future__ import annotations

import os
import signal
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from types import FrameType
from typing import Any

from agent.errors import ConfigError
from agent.fleet.artifacts import Artifacts
from agent.fleet.progress import HostState, Progress
from agent.fleet.secret_values import Redactor, named_secrets
from agent.fleet.shipped import ansible_root
from agent.fleet.show import View

#: After Ctrl-C Ansible gets this long to end its workers; then it is killed with all of them.
GRACE_S = 20.0
#: How often ansible-runner looks whether it is to stop, while Ansible says nothing.
POLL_S = 0.5
#: Python loses an interrupt that comes while an object is freed: Ansible is asked again after this time.
ASK_AGAIN_S = 3.0
EXIT_OK, EXIT_FAILED, EXIT_COULD_NOT_RUN, EXIT_INTERRUPTED = 0, 1, 3, 130


@dataclass(frozen=True)
class Request:
    """What was asked for."""

    inventories: tuple[Path, ...]
    play: Path
    #: Which of the hosts the play is for.
    hosts: str = "all"
    limit: str | None = None
    tags: str | None = None
    check: bool = False
    vault_password_file: Path | None = None
    extra: tuple[str, ...] = ()

    def words(self) -> list[str]:
        """The words for ansible-playbook."""
        words = [word for source in self.inventories for word in ("-i", str(source.resolve()))]
        words += ["--limit", self.limit] if self.limit else []
        words += ["--tags", self.tags] if self.tags else []
        words += ["--check", "--diff"] if self.check else []
        if self.vault_password_file is not None:
            words += ["--vault-password-file", str(self.vault_password_file.resolve())]
        for pair in (f"nodegate_hosts={self.hosts}", *self.extra):
            words += ["-e", pair]
        return [*words, str(self.play)]


def environment(root: Path) -> dict[str, str]:
    """Ansible's settings, where the user has not given others."""
    given = {
        "ANSIBLE_CONFIG": str(root / "ansible.cfg"),
        # ansible-runner would turn it off.
        "ANSIBLE_HOST_KEY_CHECKING": "True",
        "ANSIBLE_NOCOLOR": "1",
    }
    return {name: os.environ.get(name, value) for name, value in given.items()}


def known_secrets(request: Request, vault: Sequence[str]) -> list[str]:
    """Secrets that this run may come across: of the vault, of the environment, of -e."""
    pairs = {name: value for name, _, value in (pair.partition("=") for pair in request.extra)}
    return [*vault, *named_secrets(os.environ), *named_secrets(pairs)]


class Stop:
    """Ctrl-C and SIGTERM: Ansible is asked to end, and killed only if it does not, or at the second time."""

    def __init__(self) -> None:
        """Nothing has been asked yet."""
        self.asked = 0
        self._pid: int | None = None
        self._until_s = 0.0
        self._again_s = 0.0

    def saw(self, event: Mapping[str, Any]) -> None:
        """Note the process of Ansible itself."""
        if isinstance(event.get("pid"), int):
            self._pid = event["pid"]

    def handle(self, _number: int, _frame: FrameType | None) -> None:
        """A signal for this process."""
        self.asked += 1
        if self.asked > 1 or self._pid is None:
            return
        self._until_s = time.monotonic() + GRACE_S
        self._ask()

    def _ask(self) -> None:
        self._again_s = time.monotonic() + ASK_AGAIN_S
        assert self._pid is not None
        try:
            os.kill(self._pid, signal.SIGINT)
        except ProcessLookupError:
            self._pid = None

    def kill_now(self) -> bool:
        """Whether ansible-runner is to kill Ansible with its children; asks it once more when it is time."""
        if not self.asked:
            return False
        if self.asked > 1 or self._pid is None or time.monotonic() > self._until_s:
            return True
        if time.monotonic() > self._again_s:
            self._ask()
        return False


@dataclass
class Run:
    """One run, from the first event to the summary."""

    request: Request
    progress: Progress
    view: View
    artifacts: Artifacts
    redactor: Redactor
    stop: Stop
    #: What Ansible said outside of tasks: why it could not begin.
    said: str = ""

    def on_event(self, event: dict[str, Any]) -> bool:
        """Show and keep one event; ansible-runner keeps none itself, for it knows no secrets."""
        self.stop.saw(event)
        self.artifacts.event(event)
        if event.get("event") in ("verbose", "error", "warning"):
            self.said += f"{event.get('stdout', '')}\n"
        now_s = time.monotonic()
        lines = [self.redactor.text(line) for line in self.progress.feed(event, now_s)]
        for host in self.progress.hosts.values():
            host.why = self.redactor.text(host.why)
        self.view.update(lines, now_s)
        return False

    def on_poll(self) -> bool:
        """Between events: time goes on in a long phase. Whether to kill Ansible."""
        self.view.update((), time.monotonic())
        return self.stop.kill_now()

    def go(self) -> int:
        """Run it to its end; the exit code. The summary is the caller's."""
        # ansible-runner keeps the whole environment beside its command: that folder does not outlive the run.
        with tempfile.TemporaryDirectory(prefix="nodegate-fleet-") as folder:
            runner = self._runner(Path(folder))
            before = {number: signal.signal(number, self.stop.handle) for number in _SIGNALS}
            try:
                runner.run()
            finally:
                for number, handler in before.items():
                    signal.signal(number, handler)
                self.view.close()
        if self.stop.asked:
            self.progress.close(time.monotonic(), "stopped by the operator; run again to go on")
            return EXIT_INTERRUPTED
        return self._verdict(runner.rc)

    def _runner(self, folder: Path) -> Any:
        from ansible_runner.config.runner import RunnerConfig
        from ansible_runner.runner import Runner

        settings = {"pexpect_timeout": POLL_S, "suppress_output_file": True, "suppress_ansible_output": True}
        config = RunnerConfig(
            private_data_dir=str(folder),
            playbook=str(self.request.play),
            envvars=environment(ansible_root()),
            settings=settings,
            quiet=True,
        )
        config.prepare()
        # Of the same environment, also where its bin folder is not on the PATH; relative paths are as typed.
        config.command = [str(Path(sys.executable).with_name("ansible-playbook")), *self.request.words()]
        config.cwd = str(Path.cwd())
        return Runner(config, event_handler=self.on_event, cancel_callback=self.on_poll)

    def _verdict(self, status: int | None) -> int:
        """0 all hosts are done; 1 a host is not; otherwise it could not run: ConfigError says why."""
        states = {host.state for host in self.progress.hosts.values()}
        if self.progress.finished and states - {HostState.WAITING, HostState.NOT_REACHED}:
            return EXIT_OK if states == {HostState.OK} and status == 0 else EXIT_FAILED
        self.progress.close(time.monotonic(), "the run did not begin")
        why = self.redactor.text(reason(self.said)).rstrip(".")
        raise ConfigError(
            why or f"ansible-playbook ended with status {status}",
            where=str(self.artifacts.folder / "output.log"),
            remedy=_KEY if "vault secrets" in why else "put that right and run again",
        )


#: Ansible's own words for no key and for a wrong one both name vault secrets.
_KEY = "give the inventory's key with --vault-password-file FILE (inventories/README.md)"
_SIGNALS = (signal.SIGINT, signal.SIGTERM)


def reason(said: str) -> str:
    """The first error in what Ansible said, as one line."""
    lines = [line.strip() for line in said.splitlines() if line.strip()]
    for i, line in enumerate(lines):
        if "ERROR" in line:
            following = [text for text in lines[i + 1 : i + 3] if not text.startswith("[")]
            return " ".join([line.removeprefix("[ERROR]: ").removeprefix("ERROR! "), *following])[:600]
    return lines[-1][:600] if lines else ""


def run_name() -> str:
    """A name for the folder of this run: time and process."""
    return f"{datetime.now(UTC):%Y%m%dT%H%M%SZ}-{os.getpid()}"
