"""The line of an engine's output that most likely says why it ended.

An engine of several processes ends with "Engine core initialization failed. See root cause above": the first
process says that another one has failed, some hundred lines after that one has said why. The agent reads when
the first of them has died, so the output may also end anywhere before that line.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

MAX_CHARS = 200
#: More of a line is not looked at: it may be a prompt, and the patterns below are slow on long words.
_LOOKED_AT_CHARS = 600
#: So many last lines are asked for a word about an error; the cause behind one may stand further up.
NEAR_LINES = 60
#: Who says this only passes on that another process has failed (vLLM, SGLang), or is what a peer's end does.
_POINTER = re.compile(
    r"root cause|(?:stack ?trace|error message|log)s? above|died unexpectedly|failed to start"
    r"|hit an exception|scheduler (?:died|is dead)"
    r"|^EOFError$|connection (?:was )?(?:likely )?closed|connection reset by peer|broken pipe"
    r"|remote process exit|^RuntimeError: cancelled$",
    re.IGNORECASE,
)
#: Lines with the word that say nothing: native frames, CUDA's advice, a heading of NCCL's.
_BESIDE = re.compile(r"^frame #\d+|^CUDA kernel errors might|^Last error:|^Traceback \(most|^\[W")
#: vLLM's own words, and uvicorn's, which log answers with 500.
_QUIET = re.compile(r"^(?:DEBUG|INFO|WARNING)(?: \d|:)")
#: What vLLM, Ray and torch write in front: the process; a line of logging has level, time and source, too.
_PROCESS = re.compile(r"^(?:\([\w.-]+(?: [\w.=-]+)? pid=\d+(?:, ip=[\w.:]+)?\) ?)+|^\[rank\d+\]: ?")
_LEVEL = re.compile(r"^[A-Z]+ \S+ \S+ \[[^\]]+\] ?")
#: The last line of a traceback: the exception's class and, as a rule, its text.
_RAISED = re.compile(
    r"^(?:[A-Za-z_]\w*\.)*\w{0,60}(?:Error|Exception)\w{0,30}(?:\(\w{0,60}\))?(?::|$)"
    r"|^(?:[A-Za-z_]\w*\.)+[A-Z]\w{0,60}: "
)
#: An exception whose text is in the lines below: none beside it, or pydantic's count.
_GOES_ON = re.compile(r"(?:Error|Exception)\w*:?$|\d+ validation errors? for \S+$")


def last_words(lines: Sequence[str]) -> str:
    """At most MAX_CHARS of `lines`, which this engine has said since its start; empty where it said nothing.

    The last of the newest lines that names an error; where that one points to another, the last exception
    above it that does not; without any, the last line.
    """
    kept = list(_without_ignored([line[:_LOOKED_AT_CHARS].rstrip() for line in lines if line.strip()]))
    near = [at for at in range(max(0, len(kept) - NEAR_LINES), len(kept)) if _names_error(kept[at])]
    chosen = _whole(kept, near[-1]) if near else kept[-1] if kept else ""
    if near and points_elsewhere(kept[near[-1]]):
        chosen = _cause(kept) or chosen
    chosen = chosen.strip()
    return chosen if len(chosen) <= MAX_CHARS else chosen[: MAX_CHARS - 3] + "..."


def points_elsewhere(line: str) -> bool:
    """Whether a line only passes on that another process has failed."""
    return _POINTER.search(_split(line)[1]) is not None


def _names_error(line: str) -> bool:
    """Whether it says more of an error than that its level is that, which each frame of a traceback has."""
    process, text = _split(line)
    logged = line[len(process) :]
    if not text or text.startswith(" ") or _BESIDE.search(text) or _QUIET.search(logged):
        return False
    return "error" in line.lower() or _RAISED.match(text) is not None


def _without_ignored(lines: Sequence[str]) -> Iterator[str]:
    """The lines less what Python says of exceptions that it has ignored, as objects go at the end."""
    ignoring: set[str] = set()
    for line in lines:
        process, text = _split(line)
        if text.startswith("Exception ignored in"):
            ignoring.add(process)
        elif process in ignoring and text.startswith((" ", "Traceback")):
            continue
        elif process in ignoring and _RAISED.match(text):
            ignoring.discard(process)
        else:
            ignoring.discard(process)
            yield line


def _cause(lines: Sequence[str]) -> str:
    """The last exception that points nowhere, with the name of its process; empty where there is none."""
    for at in range(len(lines) - 1, -1, -1):
        _, text = _split(lines[at])
        if _RAISED.match(text) and not points_elsewhere(text):
            return _whole(lines, at)
    return ""


def _whole(lines: Sequence[str], at: int) -> str:
    """A line; an exception without what logging writes in front, and with its text from the lines below."""
    process, text = _split(lines[at])
    if not _RAISED.match(text):
        return lines[at]
    below = _below(lines[at + 1 :], process) if _GOES_ON.search(text) else ""
    return f"{process}{text} {below}"


def _below(lines: Sequence[str], process: str) -> str:
    """How a process goes on with what it has begun to say: indented, after pydantic's name of a field."""
    said: list[str] = []
    for line in lines:
        whose, text = _split(line)
        if whose != process:
            continue
        if not text.startswith(" ") and (said or not re.fullmatch(r"[\w.]+", text)):
            break
        said.append(text.strip())
    return " ".join(said)


def _split(line: str) -> tuple[str, str]:
    """The process that says it, and what it says."""
    found = _PROCESS.match(line)
    process = found[0] if found else ""
    return process, _LEVEL.sub("", line[len(process) :])
