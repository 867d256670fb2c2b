"""Lines of a log that may show what users asked and were answered, taken out (pure).

What writes them: vLLM's request log (`--enable-log-requests`, at level DEBUG the prompt itself, and
`--enable-log-outputs`), vllm/entrypoints/logger.py; SGLang's `--log-requests`, which shows objects; and the
dump of a failing step. A line without a beginning of its own that follows such a line belongs to it; in
systemd's journal, which dates every line, a line of the same process does.
"""

from __future__ import annotations

import re

_SHOWS = re.compile(
    r"Received request\b|Generated response\b|Request \S+ details:"
    r"|Rece(?:ive|ived)(?: OpenAI)?: obj=|Finish(?: OpenAI)?: obj=|Dumping (?:input|scheduler)"
    r"|\b(?:prompt|output|input)_?(?:token_?)?ids\b|(?:Generate|Embedding|Completion|Responses?)(?:Req|Request)\w*\("
    r"|\b(?:prompts?|messages|content|input_text|output_text|generated_text|text|outputs?)\b\\*[\"']?\s*[:=]\s*"
    r"(?:\\*[\"'\[]|b['\"])"
    r"|\bprompt\s*[:=]\s*(?!None\b|\d)\S",
    re.IGNORECASE,
)
_BEGINS = re.compile(
    r"\s*(?:\x1b\[[\d;]*m)*(?:\(\w+[^)]{0,60}\)\s*)?"
    r"(?:(?:DEBUG|INFO|WARNING|ERROR|CRITICAL|TRACE)\b|\[?\d{4}-\d\d-\d\d|\[?\d\d:\d\d|[A-Z]\d{4} "
    r"|Traceback|\S+Error\b|\{\"(?:ts|time|timestamp|asctime|level|levelname|severity)\": )"
)
#: What journalctl and systemctl put before each line; the group is the process. systemd's lines are whole.
_JOURNAL = re.compile(
    r"(?:\d{4}-\d\d-\d\dT\S+|[A-Z][a-z]{2} [ \d]\d \d\d:\d\d:\d\d) \S+ ([^\s:\[]+(?:\[\d+\])?): ?"
)
_SYSTEMD = re.compile(r"systemd(?:\[1\])?$")
#: What holds requests whatever stands in it, as the key of a document.
PROMPT_KEYS = frozenset(
    {
        "prompt", "prompts", "messages", "prompt_token_ids", "input_ids", "output_ids", "input_text",
        "output_text", "generated_text",
    }
)  # fmt: skip
#: Longer lines are no messages of an engine; what they hold nobody has looked at.
_LONGEST_CHARS = 4000


def without_prompts(text: str, *, cut: bool = False) -> tuple[str, int]:
    """The text without such lines, and how many there were; one line stands for those that were taken out.

    `cut`: its beginning is not there, so that its first lines may belong to one that shows a request; they
    are kept in a log whose lines have no beginnings that are known here.
    """
    kept: list[str] = []
    dropped = run = 0
    # At line feeds alone: a prompt may hold whatever else ends a line in Unicode.
    lines = text.removesuffix("\n").split("\n") if text else []
    #: By process (empty: a log of one): whether its last line was taken out.
    hidden = {"": cut and any(map(_BEGINS.match, lines))}
    process = ""
    for line in lines:
        process, said = _of_process(line, process)
        belongs = hidden.get(process, False) and not _BEGINS.match(said)
        hidden[process] = belongs or _SHOWS.search(said) is not None or len(line) > _LONGEST_CHARS
        if hidden[process]:
            run += 1
            continue
        if run:
            kept.append(_left_out(run))
            dropped, run = dropped + run, 0
        kept.append(line)
    if run:
        kept.append(_left_out(run))
    return "\n".join(kept) + ("\n" if kept else ""), dropped + run


def _of_process(line: str, before: str) -> tuple[str, str]:
    """The process that a line is of (that of the line before, where it does not say), and what it said."""
    found = _JOURNAL.match(line)
    if found is None:
        return before, line
    process = found.group(1)
    said = line[found.end() :]
    return process, f"INFO {said}" if _SYSTEMD.match(process) else said


def _left_out(lines: int) -> str:
    return f"({lines} lines that may show requests are left out)"
