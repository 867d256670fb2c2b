"""An agent to be killed: starts the engine of a profile and prints its pid when it is warm.

Run as `python launch_agent.py FOLDER PORT`.
"""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))

from launch_kit import engine_profile, rig


async def main(folder: Path, port: int) -> None:
    async with rig(folder, engine_profile(port)) as r:
        print(await r.start(), flush=True)
        await asyncio.Event().wait()


if __name__ == "__main__":
    asyncio.run(main(Path(sys.argv[1]), int(sys.argv[2])))
