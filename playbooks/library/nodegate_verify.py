"""Ansible module: is this node proven by the agent that runs on it?"""

from __future__ import annotations

from ansible.module_utils.basic import AnsibleModule
from ansible.module_utils.nodegate_apply import agent_status

DOCUMENTATION = """
module: nodegate_verify
short_description: ask the agent whether the node is proven
description:
  - Reads /status of the agent on the node, and changes nothing.
  - Passes when the agent runs the wanted profile, no check fails or is unknown, and every gate is open.
options:
  host:
    description: Address of the agent's read-only interface (api.host of the profile).
    type: str
    default: 127.0.0.1
  port:
    description: Port of the agent's read-only interface (api.port of the profile).
    type: int
    required: true
  profile_hash:
    description: Hash of the profile that the agent must run.
    type: str
    required: true
  wait_s:
    description: Seconds to wait for it.
    type: float
    default: 0
  ready:
    description: Whether gates must be open.
    type: bool
    default: true
"""


def main() -> None:
    """Ask, wait, tell."""
    module = AnsibleModule(
        argument_spec={
            "host": {"type": "str", "default": "127.0.0.1"},
            "port": {"type": "int", "required": True},
            "profile_hash": {"type": "str", "required": True},
            "wait_s": {"type": "float", "default": 0},
            "ready": {"type": "bool", "default": True},
        },
        supports_check_mode=True,
    )
    given = module.params

    def probe() -> agent_status.Proof:
        status = agent_status.ask(given["host"], given["port"])
        return agent_status.judge(status, given["profile_hash"], ready=given["ready"])

    proof = agent_status.wait_for(probe, given["wait_s"])
    lines = [*proof.problems, *proof.waiting]
    result = {"changed": False, "findings": proof.findings, "warned": proof.warnings}
    if lines:
        more = f" (and {len(lines) - 1} more, see `problems`)" if len(lines) > 1 else ""
        module.fail_json(msg=lines[0] + more, problems=lines, **result)
    module.exit_json(msg="proven", **result)


if __name__ == "__main__":
    main()
