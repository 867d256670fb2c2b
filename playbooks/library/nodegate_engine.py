#!/usr/bin/python
"""Engines of a node: environment or image as pinned, and the model's folder readable."""

from __future__ import annotations

DOCUMENTATION = r"""
module: nodegate_engine
short_description: engines' environments, images and model folders
description:
  - Makes each engine's Python environment beside the old one and turns a link to it; a running engine keeps
    the one that it was started from until it is restarted.
options:
  profile:
    description: The node profile as plain data.
    type: dict
    required: true
  sources:
    description: For each engine C(requirements), C(wheelhouse) or C(archive), paths on the node.
    type: dict
    default: {}
author: nodegate
"""

EXAMPLES = r"""
- name: Engines
  nodegate_engine:
    profile: "{{ nodegate.profile }}"
"""

RETURN = r"""
drift:
  description: What differed.
  type: list
  returned: always
"""

from ansible.module_utils.basic import AnsibleModule  # noqa: E402
from ansible.module_utils.nodegate_apply.engine import GROUP, reload_units, wanted_engines  # noqa: E402
from ansible.module_utils.nodegate_apply.host import Host, HostError  # noqa: E402
from ansible.module_utils.nodegate_apply.outcome import begin, finish  # noqa: E402
from ansible.module_utils.nodegate_apply.setting import settle  # noqa: E402


def main() -> None:
    """Settle it."""
    module = AnsibleModule(
        argument_spec={
            "profile": {"type": "dict", "required": True},
            "sources": {"type": "dict", "default": {}},
        },
        supports_check_mode=True,
    )
    begin(module)
    host = Host()
    try:
        wanted = wanted_engines(host, module.params["profile"], module.params["sources"])
    except HostError as cause:
        module.fail_json(msg=str(cause))
    report = settle(wanted, check=module.check_mode, groups={GROUP: lambda: reload_units(host)})
    finish(module, report)


if __name__ == "__main__":
    main()
