"""Ansible module: may this node be disturbed? Takes traffic away first if it is told to."""

from __future__ import annotations

from ansible.module_utils.basic import AnsibleModule
from ansible.module_utils.nodegate_apply import agent_status
from ansible.module_utils.nodegate_apply.guard import Guard
from ansible.module_utils.nodegate_apply.host import Host, HostError
from ansible.module_utils.nodegate_apply.outcome import begin

DOCUMENTATION = """
module: nodegate_guard
short_description: keep a serving node from being disturbed
description:
  - Fails while an engine's gate is open, unless C(drain) is true. Then the node enters maintenance and its
    engines are stopped once their requests are done. M(nodegate_verify) gives it back.
options:
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
  what:
    description: What is about to be done; given back as it is, so that later tasks see what was asked for.
    type: dict
    default: {}
  program:
    description: The nodegate program on the node.
    type: str
    default: /opt/nodegate/bin/nodegate
"""


def main() -> None:
    """Take the node out of service if it serves."""
    module = AnsibleModule(
        argument_spec={
            "host": {"type": "str", "default": "127.0.0.1"},
            "port": {"type": "int", "required": True},
            "drain": {"type": "bool", "default": False},
            "reason": {"type": "str", "default": "provisioning"},
            "wait_s": {"type": "float", "default": 300},
            "what": {"type": "dict", "default": {}},
            "program": {"type": "str", "default": "/opt/nodegate/bin/nodegate"},
        },
        supports_check_mode=True,
    )
    begin(module)
    given = module.params
    guard = Guard(Host(), lambda: agent_status.ask(given["host"], given["port"]), given["program"])
    try:
        done = guard.take(given["drain"], given["reason"], given["wait_s"], check=module.check_mode)
    except HostError as cause:
        module.fail_json(msg=str(cause))
    module.exit_json(changed=bool(done), msg=done or "nothing serves here", what=given["what"])


if __name__ == "__main__":
    main()
