#!/usr/bin/python
"""Which process each running engine has, by systemd and by the agent; and whether it is still the same."""

from __future__ import annotations

DOCUMENTATION = r"""
module: nodegate_engines
short_description: processes of the engines of a node
description:
  - Reads only. The main process of C(nodegate-engine@NAME.service), else the one that the agent tells.
options:
  host:
    description: Address of the agent's HTTP interface.
    type: str
    default: 127.0.0.1
  port:
    description: Its port.
    type: int
    required: true
  engines:
    description: Names of the engines.
    type: list
    elements: str
    required: true
  before:
    description: What an earlier look gave in C(pids); an engine that has another process now is a failure.
    type: dict
    default: {}
author: nodegate
"""

EXAMPLES = r"""
- name: Engines
  nodegate_engines:
    port: 9470
    engines: [main]
"""

RETURN = r"""
pids:
  description: Process of each running engine.
  type: dict
  returned: always
"""

from ansible.module_utils.basic import AnsibleModule  # noqa: E402
from ansible.module_utils.nodegate_apply import agent_status  # noqa: E402
from ansible.module_utils.nodegate_apply.agent_service import engine_pids, unit_pids  # noqa: E402
from ansible.module_utils.nodegate_apply.host import Host, HostError  # noqa: E402
from ansible.module_utils.nodegate_apply.outcome import begin  # noqa: E402


def main() -> None:
    """Look, compare."""
    module = AnsibleModule(
        argument_spec={
            "host": {"type": "str", "default": "127.0.0.1"},
            "port": {"type": "int", "required": True},
            "engines": {"type": "list", "elements": "str", "required": True},
            "before": {"type": "dict", "default": {}},
        },
        supports_check_mode=True,
    )
    begin(module)
    values = module.params
    try:
        own = unit_pids(Host(), values["engines"])
    except HostError as cause:
        module.fail_json(msg=str(cause))
    pids = {**engine_pids(agent_status.ask(values["host"], values["port"])), **own}
    lost = [
        f"engine {name} had process {pid} and has {pids.get(name, 'none')}: it was not to be disturbed"
        for name, pid in values["before"].items()
        if pids.get(name) != int(pid)
    ]
    if lost:
        module.fail_json(msg="; ".join(lost), pids=pids)
    module.exit_json(changed=False, pids=pids)


if __name__ == "__main__":
    main()
