"""The generating half of the embedded engine: a process of its own, as vLLM's EngineCore is. SIMULATED.

It reads one JSON request a line on standard input and writes one JSON line for each token, requests side by
side. It survives its API server, as the real one does: whoever launched it has to clean it up. Only the
standard library is imported, so that it starts in a moment.
"""

from __future__ import annotations

import asyncio
import ctypes
import json
import sys

#: What the kernel shows as its name; 15 characters are all it keeps.
NAME = b"SIM::EngineCore"
#: Without its API server it does nothing and ends by itself after this long, should nobody clean up.
ORPHAN_S = 120.0
WORDS = ("SIMULATED", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten")
_PR_SET_NAME = 15


async def generate(request: dict[str, int], token_s: float) -> None:
    """Write the tokens of one request."""
    for i in range(request["max_tokens"]):
        await asyncio.sleep(token_s)
        word = WORDS[i % len(WORDS)]
        last = i + 1 == request["max_tokens"]
        sys.stdout.write(json.dumps({"id": request["id"], "word": word, "last": last}) + "\n")
        sys.stdout.flush()


async def serve(startup_s: float, token_s: float) -> None:
    """Load, say that it is ready, then answer until standard input ends."""
    await asyncio.sleep(startup_s)
    sys.stdout.write('{"ready": true}\n')
    sys.stdout.flush()
    reader = asyncio.StreamReader()
    await asyncio.get_running_loop().connect_read_pipe(
        lambda: asyncio.StreamReaderProtocol(reader), sys.stdin
    )
    running: set[asyncio.Task[None]] = set()
    while line := await reader.readline():
        task = asyncio.create_task(generate(json.loads(line), token_s))
        running.add(task)
        task.add_done_callback(running.discard)
    await asyncio.sleep(ORPHAN_S)


def main() -> None:
    """Run; arguments are the seconds to load and the seconds a token takes."""
    ctypes.CDLL(None).prctl(_PR_SET_NAME, NAME, 0, 0, 0)
    asyncio.run(serve(float(sys.argv[1]), float(sys.argv[2])))


if __name__ == "__main__":
    main()
