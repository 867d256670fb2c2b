"""Who runs a checklist and answers its questions: named on the command line, or asked on the terminal."""

from __future__ import annotations

import os
import pwd
import sys
import time
from collections.abc import Callable, Mapping, Sequence

from agent.checklist.record import Answer
from agent.errors import ConfigError


def parse_answers(given: Sequence[str]) -> dict[str, str]:
    """`STEP=TEXT`, several of them. Raises ConfigError."""
    answers: dict[str, str] = {}
    for word in given:
        step, equals, text = word.partition("=")
        if not equals or not step or not text.strip():
            raise ConfigError(
                f"--answer {word!r} is not STEP=TEXT", remedy="write --answer coolant-flow=flows"
            )
        if step in answers:
            raise ConfigError(f"--answer {step} is given twice", remedy="keep one of the two")
        answers[step] = one_line(text, "--answer")
    return answers


def parse_settings(given: Sequence[str]) -> dict[str, float]:
    """`STEP.PARAM=NUMBER`, several of them. Raises ConfigError."""
    settings: dict[str, float] = {}
    for word in given:
        key, _, text = word.partition("=")
        try:
            settings[key] = float(text)
        except ValueError:
            raise ConfigError(
                f"--set {word!r} is not STEP.PARAM=NUMBER", remedy="write --set load.duration_s=600"
            ) from None
    return settings


def one_line(text: str, option: str) -> str:
    """Printable text in one line. Raises ConfigError."""
    if not text.isprintable() or not text.strip() or len(text) > 300:
        raise ConfigError(f"{option}: write one line of printable text, at most 300 characters")
    return text.strip()


def login_name() -> str:
    """Who is logged in: behind sudo the user, not root."""
    user = os.environ.get("SUDO_USER", "")
    if user and user.isprintable():
        return user
    try:
        return pwd.getpwuid(os.getuid()).pw_name
    except KeyError:
        return f"uid {os.getuid()}"


class Operator:
    """Answers the questions of a run."""

    def __init__(
        self,
        who: str,
        answers: Mapping[str, str],
        *,
        prompt: Callable[[str], str] | None = None,
        wall_s: Callable[[], float] = time.time,
    ) -> None:
        """`prompt` asks a person; without it only the answers that were given are there."""
        self.who = who
        self._answers = dict(answers)
        self._prompt = prompt
        self._wall_s = wall_s

    def __call__(self, step: str, text: str) -> Answer | None:
        """The answer to a step's question, None where nobody can be asked."""
        said = self._answers.get(step)
        if said is None and self._prompt is not None:
            said = self._prompt(f"{text}\n{self.who}: ")
        return None if said is None else Answer(text=said.strip(), who=self.who, at_wall_s=self._wall_s())


def ask_on_terminal(text: str) -> str:
    """Show a question and read one line. Raises ConfigError at the end of the input."""
    sys.stderr.write(text)
    sys.stderr.flush()
    line = sys.stdin.readline()
    if not line:
        raise ConfigError("no answer: the input has ended", remedy="go on with --resume")
    return line.strip()
