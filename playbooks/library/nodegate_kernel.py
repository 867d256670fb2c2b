#!/usr/bin/python
"""Linux of a node as its profile says."""

from __future__ import annotations

DOCUMENTATION = r"""
module: nodegate_kernel
short_description: Make Linux what the node's profile says
description:
  - Applies what can be applied of the profile's part C(host), now and for every boot, and reads it back.
  - Kernel arguments are judged by C(/proc/cmdline) and by the menu that GRUB boots from. Nothing is rebooted.
  - A sysctl key that this kernel lacks ends it before anything is written.
options:
  profile:
    description: The parts C(host), C(gpus) and C(fabric) of the node's profile, with all their keys.
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
- name: Kernel
  nodegate_kernel:
    profile: "{{ nodegate.profile }}"
"""

RETURN = r"""
drift:
  description: What was not so, by field of the profile.
  type: list
  returned: always
pending:
  description: What takes effect at the next boot.
  type: list
  returned: always
reboot_required:
  description: Whether anything waits for a reboot.
  type: bool
  returned: always
"""

from ansible.module_utils.basic import AnsibleModule  # noqa: E402
from ansible.module_utils.nodegate_apply.boot_unit import after_boot  # noqa: E402
from ansible.module_utils.nodegate_apply.host import Host  # noqa: E402
from ansible.module_utils.nodegate_apply.kernel import kernel_groups, wanted_kernel  # noqa: E402
from ansible.module_utils.nodegate_apply.outcome import begin, finish  # noqa: E402
from ansible.module_utils.nodegate_apply.setting import settle  # noqa: E402


def main() -> None:
    """Arguments -> settings -> settle."""
    module = AnsibleModule(
        argument_spec={
            "profile": {"type": "dict", "required": True},
            "settled": {"type": "bool", "default": False},
            "sys_root": {"type": "str", "default": "/sys"},
        },
        supports_check_mode=True,
    )
    begin(module)
    given = module.params
    host = Host(given["sys_root"])
    after_boot(host, "kernel")
    wanted = wanted_kernel(given["profile"], host, settled=given["settled"])
    report = settle(wanted, check=module.check_mode, settled=given["settled"], groups=kernel_groups(host))
    finish(module, report)


if __name__ == "__main__":
    main()
