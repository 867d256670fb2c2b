"""Keeps the kernel's permissions as the published answers say.

An open gate's answer renews its permission, any other takes it at once, and no answer changes nothing: the
permission then ends by itself, at most `enforce.timeout_s` after the last good answer, as it does when this
helper ends. As it is renewed at a third of its time, a silence that is shorter than two thirds less a look
closes nothing, also if the table is loaded meanwhile.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from enum import StrEnum

from agent.enforce.ruleset import changes, ruleset
from agent.errors import SourceError
from agent.node_profile import NodeProfile

log = logging.getLogger("nodegate.enforce")
#: A permission is renewed when a third of its time is over, so two renewals may fail.
_RENEWALS = 3
#: A 200 that is older when the permission is to be written (this process was stopped) counts as no answer.
ANSWER_MAX_AGE_S = 2.0


class Word(StrEnum):
    """What the agent says of one engine."""

    OPEN = "open"
    CLOSED = "closed"
    SILENT = "no answer"


class Keeper:
    """The permissions of all engines; `ask` gives the agent's word, `apply` hands a transaction to nft."""

    def __init__(
        self,
        profile: NodeProfile,
        ask: Callable[[str], Word],
        apply: Callable[[str], None],
        clock: Callable[[], float],
    ) -> None:
        """Nothing is asked or written yet; `clock` goes on while the process sleeps."""
        self._profile = profile
        self._ask, self._apply, self._clock = ask, apply, clock
        self._words: dict[str, Word] = {}
        #: When each engine that has a permission was last given it.
        self._given_s: dict[str, float] = {}
        self._written_s: float | None = None
        self._trouble = ""

    def load(self, before: Callable[[], Mapping[int, float]] = dict) -> None:
        """Load the table, with the permission of every engine that is open now. Raises SourceError.

        `before` reads the seconds that a helper before this one has left to each port: an engine of which
        nothing is heard keeps them.
        """
        asked = self._ask_all()
        at_s = self._clock()
        left = before()
        for name, engine in self._profile.engines.items():
            left_s = min(left.get(engine.port, 0.0), self._timeout_s)
            self._given_s[name] = at_s + left_s - self._timeout_s
        self._load(self._words_now(asked))

    def round(self) -> None:
        """Ask once and write what has changed or is due; what nft refuses is tried again in the next."""
        began_s = self._clock()
        words = self._words_now(self._ask_all())
        due = self._written_s is None or began_s - self._written_s >= self._timeout_s / _RENEWALS
        if not due and all(word is self._words.get(name) for name, word in words.items()):
            return
        try:
            self._write(words, began_s)
        except SourceError as cause:
            # Most likely somebody has flushed the rules, this table with them.
            self._mend(words, cause)
        else:
            self._trouble = ""

    @property
    def _timeout_s(self) -> float:
        return self._profile.enforce.timeout_s

    def _ask_all(self) -> dict[str, tuple[Word, float]]:
        """The agent's words, each with when it was asked for; after one silence nobody else is asked."""
        asked = dict.fromkeys(self._profile.engines, (Word.SILENT, 0.0))
        for name in asked:
            asked_s = self._clock()
            asked[name] = self._ask(name), asked_s
            if asked[name][0] is Word.SILENT:
                break
        return asked

    def _words_now(self, asked: Mapping[str, tuple[Word, float]]) -> dict[str, Word]:
        """What the words are worth by now: a late 200 is none, and what closes a gate is never too late."""
        now_s = self._clock()
        return {
            name: Word.SILENT if word is Word.OPEN and now_s - asked_s > ANSWER_MAX_AGE_S else word
            for name, (word, asked_s) in asked.items()
        }

    def _load(self, words: Mapping[str, Word]) -> None:
        at_s = self._clock()
        given_s = {
            name: at_s if word is Word.OPEN else self._given_s[name]
            for name, word in words.items()
            if word is Word.OPEN or self._lasts(name, word, at_s)
        }
        left = {self._port(name): self._timeout_s - (at_s - then_s) for name, then_s in given_s.items()}
        self._apply(ruleset(self._profile, left))
        log.info("table loaded: %s", ", ".join(self._said(name, word) for name, word in words.items()))
        self._words = dict(words)
        self._given_s = given_s
        self._written_s = at_s

    def _write(self, words: Mapping[str, Word], began_s: float) -> None:
        opened = [name for name, word in words.items() if word is Word.OPEN]
        # A silence leaves a permission to its end.
        closed = [name for name, word in words.items() if word is Word.CLOSED]
        at_s = self._clock()
        ports = [self._port(name) for name in opened], [self._port(name) for name in closed]
        # With nothing to say of any port it finds out whether the table is still there.
        self._apply(changes(*ports, self._timeout_s))
        for name, word in words.items():
            if word is not self._words.get(name):
                log.info("%s", self._said(name, word))
        self._words = dict(words)
        self._given_s |= dict.fromkeys(opened, at_s)
        for name in closed:
            self._given_s.pop(name, None)
        self._written_s = began_s

    def _mend(self, words: Mapping[str, Word], cause: SourceError) -> None:
        """Load the table anew after a transaction that failed; the next round tries again if need be."""
        try:
            self._load(words)
        except SourceError as again:
            self._written_s = None
            if str(again) != self._trouble:
                log.warning("the table cannot be loaded: %s", again)
            self._trouble = str(again)
        else:
            log.warning("the table was loaded again: %s", cause)
            self._trouble = ""

    def _lasts(self, name: str, word: Word, at_s: float) -> bool:
        """Whether an engine of which nothing is heard still has a permission."""
        given_s = self._given_s.get(name)
        # nft knows no shorter time than a millisecond.
        return word is Word.SILENT and given_s is not None and at_s - given_s < self._timeout_s - 0.001

    def _port(self, name: str) -> int:
        return self._profile.engines[name].port

    def _said(self, name: str, word: Word) -> str:
        return f"{name} (port {self._port(name)}) {word}"
