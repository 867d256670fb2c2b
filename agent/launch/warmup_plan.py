"""What the warm-up asks of an engine (pure): how much at once, how long a prompt, and of which tokens."""

from __future__ import annotations

import random
from collections.abc import Sequence

from agent.launch.arguments import flag_value
from agent.launch.engine_argv import given_arguments
from agent.launch_parts import EngineKind
from agent.node_profile import Engine

#: Requests at once where neither the profile nor the engine's arguments say how many it takes.
FEW_AT_ONCE = 2
#: More short requests at once than this find no shape that fewer did not, and each needs a connection.
MOST_AT_ONCE = 256
#: Token numbers for an engine that does not tokenize: plain text in most vocabularies.
PLAIN_TOKENS = tuple(range(100, 250))
#: Room that a chat template, special tokens or a block that is not whole may take from the longest prompt.
SPARE_TOKENS = 16
#: Its tokens are the alphabet of the long prompts.
ALPHABET = "one two three four five six seven eight nine ten red green blue north south east west sun moon"

_AT_ONCE = {EngineKind.VLLM: "--max-num-seqs", EngineKind.SGLANG: "--max-running-requests"}


def full_concurrency(engine: Engine) -> int:
    """How many short requests at once: as the profile says, else as many as the engine is started for."""
    if engine.warmup.concurrent is not None:
        return engine.warmup.concurrent
    given = flag_value(given_arguments(engine), _AT_ONCE[engine.launch.kind])
    if given is None or not given.isdecimal() or int(given) < 1:
        return FEW_AT_ONCE
    return min(int(given), MOST_AT_ONCE)


def longest_prompt(longest_tokens: int | None, room_tokens: float | None) -> int:
    """Tokens of the longest prompt that leaves room for an answer; 0 when the engine does not say.

    `longest_tokens` is what a model takes, prompt and answer together, `room_tokens` what its cache holds.
    """
    known = [limit for limit in (longest_tokens, room_tokens) if limit is not None]
    if longest_tokens is None:
        return 0
    return max(0, int(min(known)) - SPARE_TOKENS)


def token_prompt(alphabet: Sequence[int], tokens: int, seed: int) -> tuple[int, ...]:
    """A prompt of exactly so many tokens; another seed differs from its first tokens on.

    A prompt that began like an earlier one would be answered from the prefix cache.
    """
    order = list(alphabet or PLAIN_TOKENS)
    chosen = random.Random(seed)  # noqa: S311 (a prompt, no secret)
    head = [chosen.choice(order) for _ in range(min(tokens, SPARE_TOKENS))]
    chosen.shuffle(order)
    body = order * ((tokens - len(head)) // len(order) + 1)
    return (*head, *body[: tokens - len(head)])
