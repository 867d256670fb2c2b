"""A vault that nobody encrypted: fleet commands do not begin with it."""

from __future__ import annotations

from pathlib import Path

import pytest

from agent.errors import ConfigError
from agent.fleet.secret_values import refuse_plain_vaults


def write(site: Path, name: str, text: str) -> Path:
    file = site / name
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(text)
    return file


@pytest.mark.parametrize(
    "name", ["group_vars/all/vault.yml", "host_vars/n1/vault.yaml", "group_vars/vault_b300.yml"]
)
def test_an_open_vault_is_refused_with_what_to_do(tmp_path: Path, name: str) -> None:
    file = write(tmp_path, name, "nodegate_bmc_password: in the open\n")
    with pytest.raises(ConfigError) as refused:
        refuse_plain_vaults([tmp_path])
    said = str(refused.value)
    assert str(file) in said and f"ansible-vault encrypt {file}" in said and "in the open" not in said


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("group_vars/all/vault.yml", "$ANSIBLE_VAULT;1.1;AES256\n6162\n"),
        (
            "group_vars/all/vault.yml",
            "nodegate_bmc_password: !vault |\n  $ANSIBLE_VAULT;1.1;AES256\n  6162\n",
        ),
        ("group_vars/all/vault.yml.example", "nodegate_bmc_password: CHANGE\n"),
        ("group_vars/all/nodes.yml", "nodegate_bmc_username: operator\n"),
        ("group_vars/all/vault.yml", "\n"),
    ],
)
def test_what_is_encrypted_or_no_vault_is_taken(tmp_path: Path, name: str, text: str) -> None:
    write(tmp_path, name, text)
    refuse_plain_vaults([tmp_path])
