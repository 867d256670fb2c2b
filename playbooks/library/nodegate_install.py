#!/usr/bin/python
"""Installs a release of nodegate from an archive that the action plugin of the same name has made."""

from __future__ import annotations

DOCUMENTATION = r"""
module: nodegate_install
short_description: nodegate in an environment of its own
description:
  - The action plugin of the same name works out the release from wheel, wheelhouse and requirements, asks the
    node what it has, and only if that is another one makes the archive, sends it and asks again.
options:
  wheel:
    description: Wheel of nodegate, on the controller.
    type: path
  wheelhouse:
    description: Folder on the controller with all other wheels; unset = pip on the node fetches them.
    type: path
  requirements:
    description: Requirements file on the controller, pinned by version and hash.
    type: path
  cache:
    description: Folder on the controller that keeps archives.
    type: path
  back:
    description: Use the release of before again.
    type: bool
    default: false
  release:
    description: What is to be used, from the action plugin; with O(back) what must be in use.
    type: str
  archive:
    description: The archive on the node; from the action plugin.
    type: path
  sha256:
    description: SHA-256 of the archive; from the action plugin.
    type: str
  link:
    description: What units name.
    type: path
    default: /opt/nodegate
  folder:
    description: Where releases lie.
    type: path
    default: /opt/nodegate.d
author: nodegate
"""

EXAMPLES = r"""
- name: nodegate, offline
  nodegate_install:
    wheel: files/nodegate-1.0.0-py3-none-any.whl
    wheelhouse: files/wheels
"""

RETURN = r"""
release:
  description: Name of the release that is to be used.
  type: str
  returned: always
home:
  description: Its folder on the node.
  type: str
  returned: always
previous:
  description: The release used before, if it is still there.
  type: str
  returned: always
"""

from ansible.module_utils.basic import AnsibleModule  # noqa: E402
from ansible.module_utils.nodegate_apply.host import Host, HostError  # noqa: E402
from ansible.module_utils.nodegate_apply.install import Install, facts  # noqa: E402
from ansible.module_utils.nodegate_apply.outcome import begin, finish  # noqa: E402
from ansible.module_utils.nodegate_apply.setting import settle  # noqa: E402

OPTIONS = {
    **{name: {"type": "path"} for name in ("wheel", "wheelhouse", "requirements", "cache", "archive")},
    **{name: {"type": "str"} for name in ("release", "sha256")},
    "back": {"type": "bool", "default": False},
    "link": {"type": "path", "default": "/opt/nodegate"},
    "folder": {"type": "path", "default": "/opt/nodegate.d"},
}


def main() -> None:
    """Install, or go back."""
    module = AnsibleModule(argument_spec=OPTIONS, supports_check_mode=True)
    begin(module)
    values = module.params
    install = Install(Host(), values["release"] or "", values["link"], values["folder"])
    if values["back"]:
        try:
            if values["release"] not in (None, install.used()):
                module.exit_json(changed=False, release=install.used(), msg="another release is in use")
            name = install.back(module.check_mode)
        except HostError as cause:
            module.fail_json(msg=str(cause))
        module.exit_json(changed=True, release=name, home=f"{values['folder']}/{name}", previous=None)
    archive = values["archive"] or ""
    setting = install.setting(archive, values["sha256"] or "")
    report = settle([setting], check=module.check_mode or not archive)
    told = {"home": str(install.home), "release": install.name, "previous": install.previous()}
    finish(module, report, facts=facts(), **told)


if __name__ == "__main__":
    main()
