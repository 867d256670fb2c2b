"""The secrets of an engine as its profile has them now, without a plan: its log may be asked for first."""

from __future__ import annotations

from pathlib import Path

from agent.errors import LaunchError
from agent.launch.engine_argv import given_arguments
from agent.launch.env_file import read_env_file
from agent.launch.secret_words import secret_values
from agent.node_profile import Engine


def engine_secrets(engine: Engine) -> tuple[str, ...]:
    """Values of env_file, flags and launch.env. Reads a file: not for the event loop."""
    launch = engine.launch
    try:
        secrets = read_env_file(Path(launch.env_file)) if launch.env_file else {}
    except LaunchError:  # of a file that cannot be read nothing is known; each start says so
        secrets = {}
    return (*secrets.values(), *secret_values(given_arguments(engine), launch.env))
