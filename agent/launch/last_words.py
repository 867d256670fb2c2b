"""The line of an engine's output that most likely says why it ended.

An engine of several processes ends with "Engine core initialization failed. See root cause above": the first
process says that another one has failed, some hundred lines after that one has said why.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

MAX_CHARS = 200
#: More of a line is not looked at: it may be a prompt, and the patterns below are slow on long words.
_LOOKED_AT_CHARS = 600
#: So many last lines are asked for a word about an error; the cause behind one may stand further up.
NEAR_LINES = 60
#: Who says this only passes on that another process has failed.
_POINTER = re.compile(r"root cause|(?:stack ?trace|error message|log)s? above", re.IGNORECASE)
#: What vLLM writes in front: the process, and for a line of its logging also level, time and source.
_PROCESS = re.compile(r"^\([\w.-]+ pid=\d+\) ?")
_LEVEL = re.compile(r"^[A-Z]+ \S+ \S+ \[[^\]]+\] ?")
#: The last line of a traceback: the exception's class and, as a rule, its text.
_RAISED = re.compile(r"^(?:[A-Za-z_]\w*\.)*\w{0,60}(?:Error|Exception)\w{0,30}(?::|$)")
#: An exception whose text is in the lines below: none beside it, or pydantic's count.
_GOES_ON = re.compile(r"(?:Error|Exception)\w*:?$|\d+ validation errors? for \S+$")


def last_words(lines: Sequence[str]) -> str:
    """At most MAX_CHARS of `lines`, which this engine has said since its start; empty where it said nothing.

    The last of the newest lines that names an error; where that one points to another, the last exception
    above it that does not; without any, the last line.
    """
    kept = [line[:_LOOKED_AT_CHARS].rstrip() for line in lines if line.strip()]
    near = [line for line in kept[-NEAR_LINES:] if "error" in line.lower()]
    chosen = near[-1] if near else kept[-1] if kept else ""
    if _POINTER.search(chosen):
        chosen = _cause(kept) or chosen
    chosen = chosen.strip()
    return chosen if len(chosen) <= MAX_CHARS else chosen[: MAX_CHARS - 3] + "..."


def _cause(lines: Sequence[str]) -> str:
    """The last exception that points nowhere, with the name of its process; empty where there is none."""
    for at in range(len(lines) - 1, -1, -1):
        process, text = _split(lines[at])
        if _RAISED.match(text) and not _POINTER.search(text):
            below = _below(lines[at + 1 :], process) if _GOES_ON.search(text) else ""
            return f"{process}{text} {below}"
    return ""


def _below(lines: Sequence[str], process: str) -> str:
    """The indented lines that go on with what a process has begun to say, as one."""
    said = []
    for line in lines:
        whose, text = _split(line)
        if whose != process or not text.startswith(" "):
            break
        said.append(text.strip())
    return " ".join(said)


def _split(line: str) -> tuple[str, str]:
    """The process that says it, and what it says."""
    found = _PROCESS.match(line)
    process = found[0] if found else ""
    return process, _LEVEL.sub("", line[len(process) :])
