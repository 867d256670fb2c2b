"""/etc/nccl.conf from the profile (pure): for what is run by hand, nccl-tests say; engines have it anyway.

NCCL takes a variable of the process's environment before one of the file, so the file changes no engine. It
reads `KEY=VALUE` to the letter: no spaces around `=`, and a comment that held a `=` would be a variable.
"""

from __future__ import annotations

from agent.launch.nccl_env import nccl_env, topology_env
from agent.node_profile import NodeProfile

HEAD = "# Written by nodegate from the profile of this node: what its engines are given too.\n"


def nccl_conf(profile: NodeProfile) -> str:
    """The text; empty where the profile says nothing to NCCL. Raises LaunchError."""
    variables = {**nccl_env(profile.fabric, range(profile.gpus.count)), **topology_env(profile.topology)}
    if not variables:
        return ""
    return HEAD + "".join(f"{name}={value}\n" for name, value in sorted(variables.items()))
