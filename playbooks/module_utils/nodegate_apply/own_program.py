"""The nodegate program on the node, asked about a profile that may not be in its place yet."""

from __future__ import annotations

import pathlib
import shlex
import tempfile
from collections.abc import Sequence

from .host import Host, HostError, Output

_ASK_S = 120.0
_LONGEST = 600
#: What of the agent's arguments is about the node and not about the service.
_OF_THE_NODE = ("--node", "--scenario")


def node_words(agent_args: str) -> list[str]:
    """The options of a replayed node among the agent's arguments, for other commands."""
    words = shlex.split(agent_args)
    found = []
    for at, word in enumerate(words):
        name, equals, value = word.partition("=")
        if name in _OF_THE_NODE:
            found += [name, value if equals else words[at + 1] if at + 1 < len(words) else ""]
    return found


def first_line(done: Output) -> str:
    """What nodegate said, which puts its errors on one line, the telling part first."""
    lines = [line for line in f"{done.err}\n{done.out}".splitlines() if line.strip()]
    text = next((line for line in lines if not line.startswith("SIMULATED")), f"exit status {done.status}")
    return text.removeprefix("nodegate: ")[:_LONGEST]


def ask_nodegate(
    host: Host, program: str, words: Sequence[str], rendered: str, agent_args: str = ""
) -> Output:
    """Run nodegate with this profile. Raises HostError when it is not there or does not end."""
    if not host.exists(program):
        raise HostError(f"{program}: is not there; run the role agent with tasks_from install first")
    with tempfile.TemporaryDirectory(prefix="nodegate-ask-") as folder:
        profile = pathlib.Path(folder, "profile.yaml")
        profile.write_text(rendered, encoding="utf-8")
        return host.run([program, *words, "--profile", str(profile), *node_words(agent_args)], _ASK_S)
