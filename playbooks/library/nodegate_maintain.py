#!/usr/bin/python
"""Ansible module: take a node into maintenance, or drain and resume the head of its group."""

from __future__ import annotations

from ansible.module_utils.basic import AnsibleModule
from ansible.module_utils.nodegate_apply import agent_status
from ansible.module_utils.nodegate_apply.host import Host, HostError
from ansible.module_utils.nodegate_apply.maintain import Maintenance
from ansible.module_utils.nodegate_apply.outcome import begin

DOCUMENTATION = """
module: nodegate_maintain
short_description: take a node out of service for people who work on it
description:
  - C(enter) orders maintenance by the node's own agent and waits until its gates are closed and its engines
    have ended. Requests in flight may end first. A node that is in maintenance already stays as it is.
  - C(drain) closes the gate of one engine, the head of a group, before another member is taken.
  - C(resume) ends such a drain, and no other.
options:
  order:
    description: What is ordered.
    type: str
    choices: [enter, drain, resume]
    required: true
  host:
    description: Address of the agent's read-only interface (api.host of the profile).
    type: str
    default: 127.0.0.1
  port:
    description: Port of the agent's read-only interface (api.port of the profile).
    type: int
    required: true
  engine:
    description: The engine, for C(drain) and C(resume).
    type: str
    default: ""
  reason:
    description: Why, for the agent's journal.
    type: str
    default: ""
  wait_s:
    description: Seconds that requests in flight and the end of the engines may take.
    type: float
    default: 600
  program:
    description: The nodegate program on the node.
    type: str
    default: /opt/nodegate/bin/nodegate
"""

OPTIONS = {
    "order": {"type": "str", "choices": ["enter", "drain", "resume"], "required": True},
    "host": {"type": "str", "default": "127.0.0.1"},
    "port": {"type": "int", "required": True},
    "engine": {"type": "str", "default": ""},
    "reason": {"type": "str", "default": ""},
    "wait_s": {"type": "float", "default": 600},
    "program": {"type": "str", "default": "/opt/nodegate/bin/nodegate"},
}


def main() -> None:
    """Order it and wait for it."""
    module = AnsibleModule(argument_spec=OPTIONS, supports_check_mode=True)
    begin(module)
    given = module.params
    agent = Maintenance(Host(), lambda: agent_status.ask(given["host"], given["port"]), given["program"])
    handover: list[str] = []
    try:
        if given["order"] == "enter":
            done = agent.enter(given["reason"], given["wait_s"], check=module.check_mode)
            handover = [] if module.check_mode else agent.handover()
        elif given["order"] == "drain":
            done = agent.drain(given["engine"], given["reason"], given["wait_s"], check=module.check_mode)
        else:
            done = agent.resume(given["engine"], check=module.check_mode)
    except HostError as cause:
        module.fail_json(msg=str(cause))
    module.exit_json(changed=bool(done), msg=done or "nothing to do", handover=handover)


if __name__ == "__main__":
    main()
