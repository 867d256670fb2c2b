#!/usr/bin/python
"""The NCCL topology file of a node, made by the nodegate that is installed there, and /etc/nccl.conf."""

from __future__ import annotations

DOCUMENTATION = r"""
module: nodegate_topology
short_description: NCCL topology file and nccl.conf
description:
  - The file is made of the machine as it is, and only if that is the machine that was recorded
    (C(topology.expected)); it replaces the old one when it passes C(nodegate topo verify).
  - The action plugin of the same name adds the text of nccl.conf.
options:
  profile:
    description: The node profile as plain data.
    type: dict
    required: true
  rendered:
    description: The node profile as text.
    type: str
    required: true
  node_args:
    description: C(--node) and C(--scenario) of nodegate, for a node that is replayed.
    type: str
    default: ''
  nccl_conf:
    description: Text of nccl.conf; from the action plugin.
    type: str
    default: ''
  program:
    description: The nodegate program on the node.
    type: path
    default: /opt/nodegate/bin/nodegate
author: nodegate
"""

EXAMPLES = r"""
- name: Topology
  nodegate_topology:
    profile: "{{ nodegate.profile }}"
    rendered: "{{ nodegate.rendered }}"
"""

RETURN = r"""
drift:
  description: What differed.
  type: list
  returned: always
"""

from ansible.module_utils.basic import AnsibleModule  # noqa: E402
from ansible.module_utils.nodegate_apply.host import Host, HostError  # noqa: E402
from ansible.module_utils.nodegate_apply.outcome import begin, finish  # noqa: E402
from ansible.module_utils.nodegate_apply.setting import settle  # noqa: E402
from ansible.module_utils.nodegate_apply.topology import TopologyFile, wanted_topology  # noqa: E402

OPTIONS = {
    "profile": {"type": "dict", "required": True},
    "rendered": {"type": "str", "required": True},
    "node_args": {"type": "str", "default": ""},
    "nccl_conf": {"type": "str", "default": ""},
    "program": {"type": "path", "default": "/opt/nodegate/bin/nodegate"},
}


def main() -> None:
    """Settle it."""
    module = AnsibleModule(argument_spec=OPTIONS, supports_check_mode=True)
    begin(module)
    values = module.params
    host = Host()
    if module.check_mode and not host.exists(values["program"]):
        module.exit_json(changed=False, drift=[], msg="cannot be told before nodegate is installed")
    file = TopologyFile(host, values["program"], values["rendered"], values["node_args"])
    try:
        wanted = wanted_topology(host, values["profile"]["topology"]["nccl_file"], values["nccl_conf"], file)
    except HostError as cause:
        module.fail_json(msg=str(cause))
    finish(module, settle(wanted, check=module.check_mode))


if __name__ == "__main__":
    main()
