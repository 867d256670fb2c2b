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
  - Packages are not changed under an engine that serves, unless O(drain) is true; then it is drained first.
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
  api_host:
    description: Address of the agent's read-only interface (api.host of the profile).
    type: str
    default: 127.0.0.1
  api_port:
    description: Its port; unset = no agent is asked.
    type: int
  drain:
    description: Whether a serving node is drained before packages are changed.
    type: bool
    default: false
  drain_wait_s:
    description: Seconds that requests in flight may take.
    type: float
    default: 600
  program:
    description: The nodegate program on the node.
    type: str
    default: /opt/nodegate/bin/nodegate
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
from ansible.module_utils.nodegate_apply.agent_status import ask  # noqa: E402
from ansible.module_utils.nodegate_apply.boot_unit import after_boot  # noqa: E402
from ansible.module_utils.nodegate_apply.gpu import gpu_groups, wanted_gpu  # noqa: E402
from ansible.module_utils.nodegate_apply.guard import Guard  # noqa: E402
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
            "api_host": {"type": "str", "default": "127.0.0.1"},
            "api_port": {"type": "int"},
            "drain": {"type": "bool", "default": False},
            "drain_wait_s": {"type": "float", "default": 600},
            "program": {"type": "str", "default": "/opt/nodegate/bin/nodegate"},
        },
        supports_check_mode=True,
    )
    begin(module)
    given = module.params
    host = Host(given["sys_root"])
    after_boot(host, "gpu")
    wanted = wanted_gpu(given["profile"], host, check=module.check_mode)
    guard = Guard(host, lambda: ask(given["api_host"], given["api_port"]), given["program"])

    def free() -> None:
        if given["api_port"] is not None:
            guard.take(given["drain"], "packages of the GPU driver", given["drain_wait_s"], check=False)

    groups = gpu_groups(host)
    report = settle(wanted, check=module.check_mode, settled=given["settled"], groups=groups, free=free)
    finish(module, report)


if __name__ == "__main__":
    main()
