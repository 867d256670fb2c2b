"""When permissions are given, renewed and taken: a fake kernel, a fake agent and a clock by hand."""

from __future__ import annotations

import logging
import re
from collections.abc import Callable

import pytest
from server_kit import HandTime, profile

from agent.enforce.keeper import ANSWER_MAX_AGE_S, Keeper, Word
from agent.errors import SourceUnavailable
from agent.node_profile import NodeProfile

TIMEOUT_S = 3.0
_STATEMENT = re.compile(r"(add|delete) element inet nodegate open \{ (\d+)(?: timeout (\d+)ms)? \}")


class Kernel:
    """The set `open` as nf_tables keeps it, and the table's comings and goings."""

    def __init__(self, time: HandTime) -> None:
        self.time = time
        self.ends: dict[int, float] | None = None
        self.transactions = 0
        self.broken = ""

    def apply(self, text: str) -> None:
        if self.broken:
            raise SourceUnavailable(self.broken)
        self.transactions += 1
        if "chain input" in text:
            found = re.findall(r"(\d+) timeout (\d+)ms", text)
            self.ends = {int(port): self.time.now_s + int(ms) / 1000 for port, ms in found}
            return
        if self.ends is None:
            raise SourceUnavailable("nft: No such file or directory")
        ends = {port: end for port, end in self.ends.items() if end > self.time.now_s}
        for what, port, ms in _STATEMENT.findall(text):
            if what == "add":
                ends.setdefault(int(port), self.time.now_s + int(ms) / 1000)
            else:
                del ends[int(port)]
        self.ends = ends

    @property
    def open(self) -> set[int]:
        return {port for port, end in (self.ends or {}).items() if end > self.time.now_s}


class Bench:
    def __init__(self) -> None:
        self.time = HandTime()
        self.kernel = Kernel(self.time)
        self.words = {"glm": Word.OPEN, "kimi": Word.CLOSED}
        self.asked: list[str] = []
        self.on_ask: Callable[[], None] = lambda: None
        plain = profile(("glm", "kimi"))
        enforce = {"enabled": True, "timeout_s": TIMEOUT_S}
        of = NodeProfile.model_validate({**plain.model_dump(), "enforce": enforce})
        self.glm, self.kimi = (of.engines[name].port for name in ("glm", "kimi"))
        self.keeper = Keeper(of, self.ask, self.kernel.apply, self.time)

    def ask(self, engine: str) -> Word:
        self.asked.append(engine)
        self.on_ask()
        return self.words[engine]

    def run(self, seconds: float, period_s: float = 0.1) -> None:
        for _ in range(round(seconds / period_s)):
            self.time.now_s += period_s
            self.keeper.round()


@pytest.fixture
def bench() -> Bench:
    made = Bench()
    made.keeper.load()
    return made


def test_the_table_is_loaded_with_what_is_open(bench: Bench) -> None:
    assert bench.kernel.open == {bench.glm}
    assert bench.kernel.transactions == 1


def test_a_permission_is_renewed_before_it_ends_and_not_at_every_look(bench: Bench) -> None:
    for _ in range(100):
        bench.run(0.1)
        assert bench.kernel.open == {bench.glm}
    assert 8 <= bench.kernel.transactions <= 12


def test_an_answer_that_is_not_200_closes_at_the_next_look(bench: Bench) -> None:
    bench.words = {"glm": Word.CLOSED, "kimi": Word.OPEN}
    bench.run(0.1)
    assert bench.kernel.open == {bench.kimi}


def test_silence_closes_by_itself_and_no_sooner(bench: Bench) -> None:
    bench.run(0.1)
    bench.words["glm"] = Word.SILENT
    bench.run(TIMEOUT_S - 0.2)
    assert bench.kernel.open == {bench.glm}, "a restart of the agent is bridged"
    bench.run(0.3)
    assert bench.kernel.open == set()
    bench.words["glm"] = Word.OPEN
    bench.run(0.1)
    assert bench.kernel.open == {bench.glm}


def test_a_table_that_is_loaded_during_a_silence_keeps_what_is_left(bench: Bench) -> None:
    """Somebody flushes the rules while the agent is restarted."""
    bench.words["glm"] = Word.SILENT
    bench.run(0.2)
    bench.kernel.ends = None
    bench.run(TIMEOUT_S / 3 + 0.2)
    assert bench.kernel.open == {bench.glm}
    bench.run(TIMEOUT_S - TIMEOUT_S / 3 - 0.3)
    assert bench.kernel.open == set(), "and no more than that"


@pytest.mark.parametrize(("left_s", "lasts_s"), [(2.0, 2.0), (900.0, TIMEOUT_S), (0.0, 0.0)])
def test_helper_and_agent_are_restarted_together(bench: Bench, left_s: float, lasts_s: float) -> None:
    bench.words["glm"] = Word.SILENT
    bench.keeper.load(lambda: {bench.glm: left_s, 9: 60.0})
    assert bench.kernel.open == ({bench.glm} if lasts_s else set())
    assert (bench.kernel.ends or {}).get(bench.glm, bench.time.now_s) == bench.time.now_s + lasts_s
    bench.words["glm"] = Word.CLOSED
    bench.keeper.load(lambda: {bench.glm: left_s})
    assert bench.kernel.open == set(), "a word counts more than what is left"


def test_slow_answers_close_and_open_nothing_late(bench: Bench) -> None:
    """What closes a gate is never too late; each answer has an age of its own."""

    def slowly() -> None:
        bench.time.now_s += ANSWER_MAX_AGE_S * 0.6

    bench.words, bench.on_ask = {"glm": Word.CLOSED, "kimi": Word.OPEN}, slowly
    bench.keeper.round()
    assert bench.kernel.open == {bench.kimi}


def test_after_one_silence_nobody_else_is_asked(bench: Bench) -> None:
    bench.words["glm"] = Word.SILENT
    bench.asked.clear()
    bench.run(0.1)
    assert bench.asked == ["glm"]


def test_without_the_helper_it_ends_by_itself(bench: Bench) -> None:
    bench.time.now_s += TIMEOUT_S
    assert bench.kernel.open == set()


@pytest.mark.parametrize("glm", list(Word))
def test_a_table_that_was_flushed_is_loaded_again(bench: Bench, glm: Word) -> None:
    bench.words["glm"] = glm
    bench.run(2 * TIMEOUT_S)
    bench.kernel.ends = None
    bench.run(TIMEOUT_S / 3 + 0.2)
    assert bench.kernel.ends is not None
    assert bench.kernel.open == ({bench.glm} if glm is Word.OPEN else set())


def test_trouble_is_said_once_and_tried_again(bench: Bench, caplog: pytest.LogCaptureFixture) -> None:
    bench.kernel.broken = "nft: Operation not permitted"
    with caplog.at_level(logging.WARNING, "nodegate.enforce"):
        bench.run(2 * TIMEOUT_S)
    assert [record.message for record in caplog.records] == [
        "the table cannot be loaded: nft: Operation not permitted"
    ]
    assert bench.kernel.open == set()
    bench.kernel.broken = ""
    bench.run(0.1)
    assert bench.kernel.open == {bench.glm}


def test_an_old_answer_gives_nothing(bench: Bench) -> None:
    """The helper was stopped between the answer and the kernel."""

    def sleep() -> None:
        bench.time.now_s += ANSWER_MAX_AGE_S + 0.1

    bench.words["glm"] = Word.CLOSED
    bench.run(0.1)
    bench.words["glm"], bench.on_ask = Word.OPEN, sleep
    bench.keeper.round()
    assert bench.kernel.open == set()
    bench.keeper.load()
    assert bench.kernel.open == set()
    bench.on_ask = lambda: None
    bench.run(0.1)
    assert bench.kernel.open == {bench.glm}
