"""Lines of a log that may show what users asked and were answered, taken out (pure).

What writes them: vLLM's request log (`--enable-log-requests`, at level DEBUG the prompt itself, and
`--enable-log-outputs`), vllm/entrypoints/logger.py; SGLang's `--log-requests`, which shows objects; and the
dump of a failing step. A line without a beginning of its own that follows such a line belongs to it.
"""

from __future__ import annotations

import re

_SHOWS = re.compile(
    r"Received request\b|Generated response\b|Request \S+ details:"
    r"|Rece(?:ive|ived)(?: OpenAI)?: obj=|Finish(?: OpenAI)?: obj=|Dumping (?:input|scheduler)"
    r"|\b(?:prompt|output|input)_?(?:token_?)?ids\b|(?:Generate|Embedding|Completion|Responses?)(?:Req|Request)\w*\("
    r"|[\"']?\b(?:prompts?|messages|content|input_text|output_text|generated_text|text|outputs?)\b[\"']?\s*[:=]\s*"
    r"(?:\\?[\"'\[]|b['\"])",
    re.IGNORECASE,
)
_BEGINS = re.compile(
    r"\s*(?:\x1b\[[\d;]*m)*(?:\(\w+[^)]{0,60}\)\s*)?"
    r"(?:(?:DEBUG|INFO|WARNING|ERROR|CRITICAL|TRACE)\b|\[?\d{4}-\d\d-\d\d|\[?\d\d:\d\d|[A-Z]\d{4} "
    r"|Traceback|\S+Error\b)"
)
#: Longer lines are no messages of an engine; what they hold nobody has looked at.
_LONGEST_CHARS = 4000


def without_prompts(text: str) -> tuple[str, int]:
    """The text without such lines, and how many there were; one line stands for those that were taken out."""
    kept: list[str] = []
    dropped = run = 0
    for line in text.splitlines():
        belongs = run > 0 and not _BEGINS.match(line)
        if belongs or _SHOWS.search(line) or len(line) > _LONGEST_CHARS:
            run += 1
            continue
        if run:
            kept.append(_left_out(run))
            dropped, run = dropped + run, 0
        kept.append(line)
    if run:
        kept.append(_left_out(run))
    return "\n".join(kept) + ("\n" if kept else ""), dropped + run


def _left_out(lines: int) -> str:
    return f"({lines} lines that may show requests are left out)"
