#!/usr/bin/python
"""Firmware of the NICs of a node."""

from __future__ import annotations

DOCUMENTATION = r"""
module: nodegate_nic_firmware
short_description: Burn the NIC firmware of the node's profile
description:
  - Compares what flint says of each card of the data ports with C(fabric.nic.images) of the profile.
  - Burns images whose SHA-256, PSID and version are those of the profile, no older one unless asked.
  - The action plugin of the same name copies the images that are needed to the node.
options:
  ports:
    description: The profile's C(fabric.ports).
    type: list
    elements: dict
    required: true
  images:
    description: The profile's C(fabric.nic.images); C(path) is where the image lies on the node.
    type: list
    elements: dict
    required: true
  allow_reset:
    description: Reset a card when its firmware has been burned; its links go down for some seconds.
    type: bool
    default: false
  allow_downgrade:
    description: Burn an older version than the one that is burned.
    type: bool
    default: false
  settled:
    description: The node has been rebooted for it; what still waits for a reboot then is a failure.
    type: bool
    default: false
  query_deadline_s:
    description: Seconds that one query may take.
    type: float
    default: 60.0
  sys_root:
    description: Where sysfs is.
    type: str
    default: /sys
author: nodegate
"""

EXAMPLES = r"""
- name: NIC firmware
  nodegate_nic_firmware:
    ports: "{{ nodegate.profile.fabric.ports }}"
    images: "{{ nodegate.profile.fabric.nic.images }}"
"""

RETURN = r"""
pending:
  description: Cards whose firmware is burned and does not run yet.
  type: list
  returned: always
needed:
  description: PSIDs whose image must be on the node before anything can be burned.
  type: list
  returned: always
"""

from ansible.module_utils.basic import AnsibleModule  # noqa: E402
from ansible.module_utils.nodegate_apply.host import Host  # noqa: E402
from ansible.module_utils.nodegate_apply.nic_firmware import Image  # noqa: E402
from ansible.module_utils.nodegate_apply.nic_firmware_apply import apply_nic_firmware  # noqa: E402
from ansible.module_utils.nodegate_apply.outcome import begin  # noqa: E402


def main() -> None:
    """Arguments -> settings -> settle."""
    module = AnsibleModule(
        argument_spec={
            "ports": {"type": "list", "elements": "dict", "required": True},
            "images": {"type": "list", "elements": "dict", "required": True},
            "allow_reset": {"type": "bool", "default": False},
            "allow_downgrade": {"type": "bool", "default": False},
            "settled": {"type": "bool", "default": False},
            "query_deadline_s": {"type": "float", "default": 60.0},
            "sys_root": {"type": "str", "default": "/sys"},
        },
        supports_check_mode=True,
    )
    begin(module)
    given = module.params
    images = [
        Image(each["board_id"], each["version"], each["match"], each["sha256"], each.get("path"))
        for each in given["images"]
    ]
    result = apply_nic_firmware(
        Host(given["sys_root"]),
        given["ports"],
        images,
        check=module.check_mode,
        settled=given["settled"],
        allow_downgrade=given["allow_downgrade"],
        allow_reset=given["allow_reset"],
        query_s=given["query_deadline_s"],
    )
    if result.pop("problems"):
        module.fail_json(**result)
    module.exit_json(**result)


if __name__ == "__main__":
    main()
