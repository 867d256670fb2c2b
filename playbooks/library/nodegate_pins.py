#!/usr/bin/python
"""What the installed nodegate sees of GPUs and topology; the action plugin judges and records it."""

from __future__ import annotations

DOCUMENTATION = r"""
module: nodegate_pins
short_description: GPUs and topology of a node, compared with what is recorded
description:
  - The action plugin of the same name compares what this module reads with the profile, and records it in the
    inventory on the controller, on first use with O(accept) alone, a difference only if O(replace) names it.
options:
  rendered:
    description: The node profile as text.
    type: str
    required: true
  node_args:
    description: C(--node) and C(--scenario) of nodegate, for a node that is replayed.
    type: str
    default: ''
  accept:
    description: Record what is not recorded yet.
    type: bool
    default: false
  replace:
    description: Slots, C(topology) or C(all) that may differ from what was recorded.
    type: raw
  file:
    description: Where pins are recorded, on the controller.
    type: path
  program:
    description: The nodegate program on the node.
    type: path
    default: /opt/nodegate/bin/nodegate
author: nodegate
"""

EXAMPLES = r"""
- name: Pins
  nodegate_pins:
    rendered: "{{ nodegate.rendered }}"
    file: "{{ nodegate.pins_file }}"
"""

RETURN = r"""
file:
  description: The file that was written.
  type: str
  returned: changed
"""

import json  # noqa: E402

from ansible.module_utils.basic import AnsibleModule  # noqa: E402
from ansible.module_utils.nodegate_apply.host import Host, HostError  # noqa: E402
from ansible.module_utils.nodegate_apply.outcome import begin  # noqa: E402
from ansible.module_utils.nodegate_apply.own_program import ask_nodegate, first_line  # noqa: E402

OPTIONS = {
    "rendered": {"type": "str", "required": True},
    "node_args": {"type": "str", "default": ""},
    "accept": {"type": "bool", "default": False},
    "replace": {"type": "raw"},
    "file": {"type": "path"},
    "program": {"type": "path", "default": "/opt/nodegate/bin/nodegate"},
}


def main() -> None:
    """Look."""
    module = AnsibleModule(argument_spec=OPTIONS, supports_check_mode=True)
    begin(module)
    values = module.params
    words = ["pins", "show", "--json"]
    if module.check_mode and not Host().exists(values["program"]):
        module.exit_json(changed=False, told=None, msg="cannot be told before nodegate is installed")
    try:
        done = ask_nodegate(Host(), values["program"], words, values["rendered"], values["node_args"])
        told = json.loads(done.out)
    except HostError as cause:
        module.fail_json(msg=str(cause))
    except ValueError:
        module.fail_json(msg=f"{values['program']} pins show: {first_line(done)}")
    module.exit_json(changed=False, told=told)


if __name__ == "__main__":
    main()
