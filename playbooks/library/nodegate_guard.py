"""Ansible module: may this node be disturbed? Takes traffic away first if it is told to."""

from __future__ import annotations

from ansible.module_utils.basic import AnsibleModule
from ansible.module_utils.nodegate_apply import agent_status
from ansible.module_utils.nodegate_apply.guard import Guard
from ansible.module_utils.nodegate_apply.host import Host, HostError

DOCUMENTATION = """
module: nodegate_guard
short_description: keep a serving node from being disturbed
description:
  - C(take) fails while an engine's gate is open, unless C(drain) is true. Then the node enters maintenance, its
    engines are stopped once their requests are done, and nothing serves any more.
  - C(give) ends a maintenance that C(take) began, and starts the engines again. Others' maintenance is kept.
options:
  action:
    description: take the node out of service, or give it back.
    type: str
    choices: [take, give]
    required: true
  host:
    description: Address of the agent's read-only interface (api.host of the profile).
    type: str
    default: 127.0.0.1
  port:
    description: Port of the agent's read-only interface (api.port of the profile).
    type: int
    required: true
  drain:
    description: Whether a serving node is drained.
    type: bool
    default: false
  reason:
    description: What it is taken out for.
    type: str
    default: provisioning
  wait_s:
    description: Seconds that requests in flight may take.
    type: float
    default: 300
  program:
    description: The nodegate program on the node.
    type: str
    default: /opt/nodegate/bin/nodegate
"""


def main() -> None:
    """Take or give back."""
    module = AnsibleModule(
        argument_spec={
            "action": {"type": "str", "choices": ["take", "give"], "required": True},
            "host": {"type": "str", "default": "127.0.0.1"},
            "port": {"type": "int", "required": True},
            "drain": {"type": "bool", "default": False},
            "reason": {"type": "str", "default": "provisioning"},
            "wait_s": {"type": "float", "default": 300},
            "program": {"type": "str", "default": "/opt/nodegate/bin/nodegate"},
        },
        supports_check_mode=True,
    )
    given = module.params
    guard = Guard(Host(), lambda: agent_status.ask(given["host"], given["port"]), given["program"])
    try:
        if given["action"] == "take":
            done = guard.take(given["drain"], given["reason"], given["wait_s"], check=module.check_mode)
        else:
            done = guard.give(check=module.check_mode)
    except HostError as cause:
        module.fail_json(msg=str(cause))
    module.exit_json(changed=bool(done), msg=done or "nothing to do")


if __name__ == "__main__":
    main()
