#!/usr/bin/python
"""Ansible module: run a checklist on this node; one that passes gives the node back."""

from __future__ import annotations

from ansible.module_utils.basic import AnsibleModule
from ansible.module_utils.nodegate_apply.agent_status import ask
from ansible.module_utils.nodegate_apply.checklist import (
    PROGRAM,
    REPORTS,
    Wanted,
    nothing_to_do,
    run_checklist,
)
from ansible.module_utils.nodegate_apply.host import Host, HostError
from ansible.module_utils.nodegate_apply.outcome import begin

DOCUMENTATION = """
module: nodegate_checklist
short_description: run a checklist on this node
description:
  - Runs C(nodegate checklist run NAME) and waits for its end. What it does to the node is the checklist's own
    business; C(post-maintenance) ends maintenance and quarantine when it passes, else it keeps them.
  - Nothing is run on a node that serves and is held by nobody. In check mode nothing is run.
options:
  name:
    description: Name of the checklist.
    type: str
    default: post-maintenance
  who:
    description: Who has it run, and answers its questions.
    type: str
    required: true
  reason:
    description: Why, for the record.
    type: str
    default: ""
  answers:
    description: Answer by step, for questions where no sensor exists.
    type: dict
    default: {}
  settings:
    description: Numbers of the checklist that are lowered, by STEP.PARAM; the record says so.
    type: dict
    default: {}
  resume:
    description: Whether the newest run of it goes on.
    type: bool
    default: false
  more:
    description: Further words for the program.
    type: list
    elements: str
    default: []
  host:
    description: Address of the agent's read-only interface (api.host of the profile).
    type: str
    default: 127.0.0.1
  port:
    description: Port of the agent's read-only interface (api.port of the profile).
    type: int
    required: true
  timeout_s:
    description: Seconds that it may take in all.
    type: float
    default: 14400
  folder:
    description: Folder for the reports on the node.
    type: path
    default: /run/nodegate-reports
  program:
    description: The nodegate program on the node.
    type: path
    default: /opt/nodegate/bin/nodegate
"""

RETURN = """
reports:
  description: Report files on the node.
  type: list
  returned: always
step:
  description: The step that did not end well.
  type: str
  returned: failure
"""

OPTIONS = {
    "name": {"type": "str", "default": "post-maintenance"},
    "who": {"type": "str", "required": True},
    "reason": {"type": "str", "default": ""},
    "answers": {"type": "dict", "default": {}},
    "settings": {"type": "dict", "default": {}},
    "resume": {"type": "bool", "default": False},
    "more": {"type": "list", "elements": "str", "default": []},
    "host": {"type": "str", "default": "127.0.0.1"},
    "port": {"type": "int", "required": True},
    "timeout_s": {"type": "float", "default": 14400},
    "folder": {"type": "path", "default": REPORTS},
    "program": {"type": "path", "default": PROGRAM},
}


def main() -> None:
    """Run it, tell."""
    module = AnsibleModule(argument_spec=OPTIONS, supports_check_mode=True)
    begin(module)
    given = module.params
    if nothing_to_do(ask(given["host"], given["port"])):
        module.exit_json(
            changed=False, msg="it serves and is held by nobody: nothing to do", reports=[], step=""
        )
    if module.check_mode:
        module.exit_json(changed=True, msg=f"would run the checklist {given['name']}", reports=[], step="")
    settings = {key: float(value) for key, value in given["settings"].items()}
    wanted = Wanted(
        given["name"],
        given["who"],
        given["reason"],
        given["answers"],
        settings,
        given["resume"],
        given["more"],
    )
    try:
        ended = run_checklist(
            Host(), wanted, given["timeout_s"], program=given["program"], folder=given["folder"]
        )
    except HostError as cause:
        module.fail_json(msg=str(cause), reports=[], step="")
    result = {"msg": ended.line, "reports": list(ended.reports), "step": ended.step}
    if not ended.passed:
        module.fail_json(**result)
    module.exit_json(changed=True, **result)


if __name__ == "__main__":
    main()
