#!/usr/bin/python
"""Network settings of a node: NV configuration of its NICs and lossless Ethernet."""

from __future__ import annotations

DOCUMENTATION = r"""
module: nodegate_nic
short_description: Bring the data ports of a node to its profile
description:
  - Compares NV configuration, DCB, ECN, classes, MTU, rings and MaxReadReq with C(fabric) of the profile.
  - Sets what differs and reads all of it again. NV configuration is pending until the next boot.
  - Installs a unit that does the same at every boot, and a timer that records what is there.
options:
  fabric:
    description: The profile's C(fabric).
    type: dict
    required: true
  settled:
    description: The node has been rebooted for it; what still waits for a reboot then is a failure.
    type: bool
    default: false
  sys_root:
    description: Where sysfs is.
    type: str
    default: /sys
author: nodegate
"""

EXAMPLES = r"""
- name: Network settings
  nodegate_nic:
    fabric: "{{ nodegate.profile.fabric }}"
"""

RETURN = r"""
drift:
  description: What differed, each with field, name, before and after.
  type: list
  returned: always
pending:
  description: What takes effect at the next boot.
  type: list
  returned: always
reboot_required:
  description: Whether something is pending.
  type: bool
  returned: always
problems:
  description: Every problem in a line; the first is the message.
  type: list
  returned: failure
"""

from ansible.module_utils.basic import AnsibleModule  # noqa: E402
from ansible.module_utils.nodegate_apply.boot_unit import after_boot  # noqa: E402
from ansible.module_utils.nodegate_apply.host import Host  # noqa: E402
from ansible.module_utils.nodegate_apply.nic_apply import apply_nic  # noqa: E402
from ansible.module_utils.nodegate_apply.outcome import begin, finish  # noqa: E402


def main() -> None:
    """Arguments -> settings -> settle."""
    module = AnsibleModule(
        argument_spec={
            "fabric": {"type": "dict", "required": True},
            "settled": {"type": "bool", "default": False},
            "sys_root": {"type": "str", "default": "/sys"},
        },
        supports_check_mode=True,
    )
    begin(module)
    host = Host(module.params["sys_root"])
    after_boot(host, "nic")
    report = apply_nic(
        host, module.params["fabric"], check=module.check_mode, settled=module.params["settled"]
    )
    finish(module, report)


if __name__ == "__main__":
    main()
