#!/usr/bin/python
"""The agent of a node: profile, secrets, units, and the service running with them."""

from __future__ import annotations

DOCUMENTATION = r"""
module: nodegate_agent
short_description: nodegate as a service with the node's profile
description:
  - Writes the profile once the node's own release has taken it, the files that hold secrets, and the units.
  - Starts, restarts or reloads nodegate.service only where that is due; engines run on and are looked for.
options:
  profile:
    description: The node profile as plain data.
    type: dict
    required: true
  profile_hash:
    description: Its hash; health means that the agent says the same.
    type: str
    required: true
  rendered:
    description: Text of /etc/nodegate/profile.yaml.
    type: str
    required: true
  agent_args:
    description: Arguments of C(nodegate run); unset leaves /etc/nodegate/agent.env alone.
    type: str
  bmc_username:
    description: User of the BMC.
    type: str
  bmc_password:
    description: Password of the BMC.
    type: str
  bmc_ca:
    description: CA of the BMC, PEM.
    type: str
  pdu_credentials:
    description: Text of the credentials file of each PDU.
    type: dict
    default: {}
  pdu_ca:
    description: CA of the PDUs, PEM.
    type: str
  group_keys:
    description: Key of each engine that is part of a group.
    type: dict
    default: {}
  engine_env:
    description: Text of the C(launch.env_file) of engines.
    type: dict
    default: {}
  health_s:
    description: Seconds until the agent must run with this profile.
    type: float
    default: 60.0
  link:
    description: The environment that units name.
    type: path
    default: /opt/nodegate
author: nodegate
"""

EXAMPLES = r"""
- name: The agent
  nodegate_agent:
    profile: "{{ nodegate.profile }}"
    profile_hash: "{{ nodegate.hash }}"
    rendered: "{{ nodegate.rendered }}"
"""

RETURN = r"""
did:
  description: What was done to the service, e.g. restart.
  type: list
  returned: always
engines:
  description: Process of each running engine.
  type: dict
  returned: always
"""

from ansible.module_utils.basic import AnsibleModule  # noqa: E402
from ansible.module_utils.nodegate_apply.agent import Given, wanted_agent  # noqa: E402
from ansible.module_utils.nodegate_apply.agent_service import GROUP, AgentService, engine_pids  # noqa: E402
from ansible.module_utils.nodegate_apply.host import Host, HostError  # noqa: E402
from ansible.module_utils.nodegate_apply.outcome import begin, finish  # noqa: E402
from ansible.module_utils.nodegate_apply.setting import settle  # noqa: E402

OPTIONS = {
    "profile": {"type": "dict", "required": True},
    "profile_hash": {"type": "str", "required": True},
    "rendered": {"type": "str", "required": True},
    "agent_args": {"type": "str"},
    "bmc_username": {"type": "str"},
    "bmc_password": {"type": "str", "no_log": True},
    "bmc_ca": {"type": "str"},
    "pdu_credentials": {"type": "dict", "default": {}, "no_log": True},
    "pdu_ca": {"type": "str"},
    "group_keys": {"type": "dict", "default": {}, "no_log": True},
    "engine_env": {"type": "dict", "default": {}, "no_log": True},
    "health_s": {"type": "float", "default": 60.0},
    "link": {"type": "path", "default": "/opt/nodegate"},
}


def main() -> None:
    """Settle it."""
    module = AnsibleModule(argument_spec=OPTIONS, supports_check_mode=True)
    begin(module)
    values = module.params
    given = Given(
        values["rendered"],
        values["profile_hash"],
        values["agent_args"],
        values["bmc_username"] or "",
        values["bmc_password"] or "",
        values["bmc_ca"],
        values["pdu_credentials"],
        values["pdu_ca"],
        values["group_keys"],
        values["engine_env"],
    )
    host, link = Host(), values["link"]
    service = AgentService(
        host, values["profile"], values["profile_hash"], link=link, health_s=values["health_s"]
    )
    try:
        wanted = wanted_agent(host, values["profile"], given, service, link)
    except HostError as cause:
        module.fail_json(msg=str(cause))
    report = settle(wanted, check=module.check_mode, groups={GROUP: service.bring})
    finish(module, report, did=service.did, engines=engine_pids(service.status()))


if __name__ == "__main__":
    main()
