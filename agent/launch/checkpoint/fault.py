"""What is wrong with a file of a checkpoint, in one line."""

from __future__ import annotations

from pathlib import Path

from agent.errors import LaunchError, SourceUnavailable
from agent.sources.launch_reading import Problem, Severity

#: Said of every file that is not what it must be.
COPY_AGAIN = "copy the file again from where the checkpoint comes from"


def printable(text: str) -> str:
    """Text from a file as one line that no terminal takes for a command."""
    return "".join(letter if letter.isprintable() else "?" for letter in text)


class CheckpointFault(LaunchError):
    """A file of the checkpoint is wrong; `text` says what, `remedy` what to do."""

    def __init__(self, path: Path, text: str, remedy: str = COPY_AGAIN) -> None:
        """One line with the file in front."""
        self.path = path
        self.text = text = printable(text)
        self.remedy = remedy
        super().__init__(f"{path}: {text}; {remedy}")

    def problem(self) -> Problem:
        """As a problem that refuses the launch."""
        return Problem(Severity.ERROR, str(self.path), self.text, self.remedy)


def unreadable(path: Path, cause: OSError) -> SourceUnavailable:
    """Nothing is known of a file that cannot be read: that is no verdict on it."""
    return SourceUnavailable(f"{path} cannot be read: {cause.strerror or cause}")
