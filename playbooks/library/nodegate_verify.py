"""Ansible module: is this node proven by the agent that runs on it?"""

from __future__ import annotations

from ansible.module_utils.basic import AnsibleModule
from ansible.module_utils.nodegate_apply import agent_status
from ansible.module_utils.nodegate_apply.guard import Guard
from ansible.module_utils.nodegate_apply.host import Host, HostError
from ansible.module_utils.nodegate_apply.outcome import begin

DOCUMENTATION = """
module: nodegate_verify
short_description: ask the agent whether the node is proven
description:
  - Reads /status of the agent on the node.
  - Passes when the agent runs the wanted profile, no check fails or is unknown, and every gate is open.
  - With C(give_back), a maintenance that M(nodegate_guard) began is ended once every check passes; nothing
    else is ever changed.
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
  give_back:
    description: Whether a maintenance of M(nodegate_guard) is ended.
    type: bool
    default: false
  details:
    description: Whether every finding is given back, not only a line for each check.
    type: bool
    default: false
  program:
    description: The nodegate program on the node.
    type: str
    default: /opt/nodegate/bin/nodegate
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
            "give_back": {"type": "bool", "default": False},
            "details": {"type": "bool", "default": False},
            "program": {"type": "str", "default": "/opt/nodegate/bin/nodegate"},
        },
        supports_check_mode=True,
    )
    begin(module)
    given = module.params

    def ask() -> dict[str, object] | None:
        return agent_status.ask(given["host"], given["port"])

    def prove(ready: bool) -> agent_status.Proof:
        return agent_status.wait_for(
            lambda: agent_status.judge(ask(), given["profile_hash"], ready=ready), given["wait_s"]
        )

    guard = Guard(Host(), ask, given["program"])
    held = guard.holds()
    proof = prove(given["ready"] and not held)
    gave = held and given["give_back"] and proof.good and not module.check_mode
    if gave:
        try:
            guard.give()
        except HostError as cause:
            module.fail_json(msg=str(cause))
        proof = prove(given["ready"])
    lines = [*proof.problems, *proof.waiting]
    result: dict[str, object] = {"changed": gave, "warned": proof.warnings}
    if given["details"]:
        result["findings"] = proof.findings
    if lines:
        more = f" (and {len(lines) - 1} more, see `problems`)" if len(lines) > 1 else ""
        module.fail_json(msg=lines[0] + more, problems=lines, **result)
    module.exit_json(msg="proven", **result)


if __name__ == "__main__":
    main()
