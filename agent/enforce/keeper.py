"""Keeps the kernel's permissions as the published answers say.

A 200 renews an engine's permission, any other answer takes it at once, and no answer changes nothing: the
permission then ends by itself, at most `enforce.timeout_s` after the last 200, as it does when this helper
ends. A restart of the agent that takes less closes nothing.
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
#: An answer that is older when the permission is to be written (this process was stopped) counts as none.
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

    def load(self) -> None:
        """Load the table, with the permission of every engine that is open now. Raises SourceError."""
        words, asked_s = self._ask_all()
        if self._late(asked_s):
            words = dict.fromkeys(words, Word.SILENT)
        self._load(words)

    def round(self) -> None:
        """Ask once and write what has changed or is due; what nft refuses is tried again in the next."""
        words, asked_s = self._ask_all()
        due = self._written_s is None or asked_s - self._written_s >= self._timeout_s / _RENEWALS
        if not due and all(word is self._words.get(name) for name, word in words.items()):
            return
        if self._late(asked_s):
            return
        try:
            self._write(words, asked_s)
        except SourceError as cause:
            # Most likely somebody has flushed the rules, this table with them.
            self._mend(words, cause)
        else:
            self._trouble = ""

    @property
    def _timeout_s(self) -> float:
        return self._profile.enforce.timeout_s

    def _ask_all(self) -> tuple[dict[str, Word], float]:
        """The agent's words and when the first was asked for; after one silence nobody else is asked."""
        asked_s = self._clock()
        words = dict.fromkeys(self._profile.engines, Word.SILENT)
        for name in words:
            words[name] = self._ask(name)
            if words[name] is Word.SILENT:
                break
        return words, asked_s

    def _late(self, asked_s: float) -> bool:
        return self._clock() - asked_s > ANSWER_MAX_AGE_S

    def _load(self, words: Mapping[str, Word]) -> None:
        opened = [name for name, word in words.items() if word is Word.OPEN]
        at_s = self._clock()
        self._apply(ruleset(self._profile, [self._port(name) for name in opened]))
        log.info("table loaded: %s", ", ".join(self._said(name, word) for name, word in words.items()))
        self._words = dict(words)
        self._given_s = dict.fromkeys(opened, at_s)
        self._written_s = at_s

    def _write(self, words: Mapping[str, Word], asked_s: float) -> None:
        opened = [name for name, word in words.items() if word is Word.OPEN]
        # A silence leaves a permission to its end. After that it is taken like any other: a transaction that
        # has something to say of every engine finds out whether the table is still there.
        closed = [name for name, word in words.items() if word is Word.CLOSED or self._over(name, word)]
        at_s = self._clock()
        ports = [self._port(name) for name in opened], [self._port(name) for name in closed]
        if any(ports):
            self._apply(changes(*ports, self._timeout_s))
        for name, word in words.items():
            if word is not self._words.get(name):
                log.info("%s", self._said(name, word))
        self._words = dict(words)
        self._given_s |= dict.fromkeys(opened, at_s)
        for name in closed:
            self._given_s.pop(name, None)
        self._written_s = asked_s

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

    def _over(self, name: str, word: Word) -> bool:
        """Whether a silent engine's permission has come to its end."""
        given_s = self._given_s.get(name)
        return word is Word.SILENT and (given_s is None or self._clock() - given_s >= self._timeout_s)

    def _port(self, name: str) -> int:
        return self._profile.engines[name].port

    def _said(self, name: str, word: Word) -> str:
        return f"{name} (port {self._port(name)}) {word}"
