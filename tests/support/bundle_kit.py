"""A case for tests of bundles: a captured node, a daemon's folders, commands that answer what a test says."""

from __future__ import annotations

import io
import tarfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import yaml

from agent.bundle.parts import Case, Source
from agent.bundle.sources_list import SOURCES
from agent.profile_loader import load_profile
from agent.sources.command import Output
from agent.sources.replay import replay_sources

ROOT = Path(__file__).parents[2]
NODE = ROOT / "tests/nodes/h200-ib"
NOW_S = 1_796_026_500.0

#: What each command begins with -> what it writes, or how it fails.
Answers = Mapping[str, str | Exception]


class FakeCommands:
    """Stands for this machine's commands; what is not in `answers` writes a line that names it."""

    def __init__(self, answers: Answers | None = None) -> None:
        self.answers = dict(answers or {})
        self.asked: list[list[str]] = []

    def __call__(self, argv: Sequence[str], *, deadline_s: float, key: str, limit_b: int = 1 << 18) -> Output:
        """The answer of the longest beginning that fits."""
        self.asked.append(list(argv))
        line = " ".join(argv)
        fitting = [each for each in self.answers if line.startswith(each)]
        answer = self.answers[max(fitting, key=len)] if fitting else f"output of {argv[0]}\n"
        if isinstance(answer, Exception):
            raise answer
        return Output(0, answer, "", 0.0)


class FakeBmc:
    """Redfish services: documents by path; an exception instead is raised."""

    def __init__(self, documents: Mapping[str, Any]) -> None:
        self.documents = documents

    def get(self, name: str, endpoint: object, path: str) -> Mapping[str, Any]:
        found = self.documents[path]
        if isinstance(found, Exception):
            raise found
        return dict(found)


def profile_with(folder: Path, **parts: object) -> Path:
    """The node's own profile with further keys, as a file."""
    text = yaml.safe_load((NODE / "profile.yaml").read_text())
    path = folder / "profile.yaml"
    path.write_text(yaml.safe_dump({**text, **parts}))
    return path


@contextmanager
def case_of(
    folder: Path, profile: Path | None = None, ask: Callable[..., Output] | None = None, **changes: Any
) -> Iterator[Case]:
    """A case that reads a captured node but counts as this machine, so that commands are asked too."""
    opened = replay_sources(NODE, None)
    opened.start()
    state = folder / "state"
    (state / "log").mkdir(parents=True, exist_ok=True)
    bmc = changes.pop("bmc", None)
    sources = opened.sources if bmc is None else replace(opened.sources, bmc=bmc)
    sources = replace(sources, **{name: changes.pop(name) for name in ("nvml", "kmsg") if name in changes})
    case = Case(
        sources=sources,
        ask=ask or FakeCommands(),
        loaded=load_profile(profile or NODE / "profile.yaml"),
        profile_problem="",
        node_dir=None,
        node="rack4-node2",
        now_wall_s=NOW_S,
        since_wall_s=NOW_S - 86400,
        state_dir=state,
        run_dir=folder / "run",
        log_dir=state / "log",
    )
    try:
        yield replace(case, **changes)
    finally:
        opened.close()


def source(name: str) -> Source:
    """One of the real sources."""
    return next(each for each in SOURCES if each.name == name)


def unpacked(archive: Path) -> dict[str, bytes]:
    """Files of an archive by path, without its folder."""
    with tarfile.open(fileobj=io.BytesIO(archive.read_bytes())) as tar:
        return {
            member.name.partition("/")[2]: tar.extractfile(member).read()  # type: ignore[union-attr]
            for member in tar.getmembers()
        }
