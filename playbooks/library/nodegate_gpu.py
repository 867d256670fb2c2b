#!/usr/bin/python
"""GPU driver and GPU settings of a node as its profile says."""

from __future__ import annotations

DOCUMENTATION = r"""
module: nodegate_gpu
short_description: Make GPU driver and GPUs what the node's profile says
description:
  - Installs and holds the packages of C(gpus.packages) in one transaction, loads the driver's modules, and
    has its services run now and at every boot.
  - Sets persistence, ECC, MIG and the power limit of each GPU by its UUID, and reads them back.
  - A driver that runs only after a reboot is reported as pending. Nothing is rebooted.
options:
  profile:
    description: The parts C(host), C(gpus), C(nvlink) and C(driver_version) of the profile, with all keys.
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
- name: GPUs
  nodegate_gpu:
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
from ansible.module_utils.nodegate_apply.gpu import gpu_groups, wanted_gpu  # noqa: E402
from ansible.module_utils.nodegate_apply.host import Host  # noqa: E402
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
    wanted = wanted_gpu(given["profile"], host, check=module.check_mode)
    report = settle(wanted, check=module.check_mode, settled=given["settled"], groups=gpu_groups(host))
    finish(module, report)


if __name__ == "__main__":
    main()
