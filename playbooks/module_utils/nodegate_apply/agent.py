"""The agent on a node: its files, from the profile, the inventory and the release in use."""

from __future__ import annotations

import dataclasses
import pathlib
import pwd
import stat
from typing import Any

from .agent_service import AgentService
from .files import file_setting, no_file_setting
from .host import Host, HostError
from .install import HOST_FILES
from .own_program import first_line
from .setting import Setting

CONFIG = "/etc/nodegate"
PROFILE = f"{CONFIG}/profile.yaml"
ENVIRONMENT = f"{CONFIG}/agent.env"
FOR_PROCESSES = "/etc/systemd/system/nodegate.service.d/process-supervision.conf"
FOLDERS = {
    CONFIG: (0o755, "root"),
    f"{CONFIG}/credentials": (0o700, "root"),
    f"{CONFIG}/engine-credentials": (0o700, "root"),
    "/var/lib/nodegate": (0o750, "nodegate"),
}
USER = "nodegate"
GROUP = "agent"
_VALIDATE_S = 60.0


@dataclasses.dataclass
class Given:
    """What the inventory adds to the profile: texts of files that must not be in it."""

    rendered: str
    profile_hash: str
    agent_args: str | None = None  # None: agent.env is nobody's business
    bmc_username: str = ""
    bmc_password: str = ""
    bmc_ca: str | None = None
    pdu_credentials: dict[str, str] = dataclasses.field(default_factory=dict)
    pdu_ca: str | None = None
    group_keys: dict[str, str] = dataclasses.field(default_factory=dict)
    engine_env: dict[str, str] = dataclasses.field(default_factory=dict)


def wanted_agent(
    host: Host, profile: dict[str, Any], given: Given, service: AgentService, link: str = "/opt/nodegate"
) -> list[Setting]:
    """Everything in the order in which it is written: a profile that the node refuses changes nothing."""
    return [
        profile_setting(host, given.rendered, link),
        *_installed_files(host, profile, link),
        *_environment(host, given),
        service_user(host, link),
        service_folders(host, link),
        *_secrets(host, profile, given),
        *service.settings(profile),
    ]


def profile_setting(host: Host, rendered: str, link: str) -> Setting:
    """The profile; the node's own release must take it before it is in its place."""
    setting = file_setting(host, PROFILE, rendered, "profile", after=GROUP)
    put = setting.write
    assert put is not None

    def write() -> None:
        fresh = f"{CONFIG}/.profile.new.yaml"
        try:
            host.write(fresh, rendered)
            done = host.run([f"{link}/bin/nodegate", "profile", "validate", fresh], _VALIDATE_S)
        finally:
            host.remove(fresh)
        if done.status != 0:
            raise HostError(
                f"{first_line(done)}; this is what the release on the node says, upgrade it or correct"
            )
        put()

    setting.write = write
    return setting


def _installed_files(host: Host, profile: dict[str, Any], link: str) -> list[Setting]:
    """Units and what belongs to them, as the release in use has them."""
    root = pathlib.Path(link) / HOST_FILES
    processes = profile["supervision"] == "process"
    settings = []
    for source in sorted(path for path in root.rglob("*") if path.is_file()):
        target = f"/{source.relative_to(root)}"
        if target != FOR_PROCESSES or processes:
            text = source.read_text(encoding="utf-8")
            settings.append(file_setting(host, target, text, "supervision", after=GROUP))
    if not settings:
        settings.append(of_release(f"{link}/{HOST_FILES}", "supervision"))
    if profile["supervision"] == "systemd":
        settings.append(no_file_setting(host, FOR_PROCESSES, "supervision", after=GROUP))
    return settings


def of_release(name: str, field: str) -> Setting:
    """What only an installed release can tell: a check run on a fresh node says that it is not there yet."""

    def write() -> None:
        raise HostError("is not there; install nodegate first (role agent, tasks_from install)")

    return Setting(name, field, "as the release has it", lambda: None, write)


def _environment(host: Host, given: Given) -> list[Setting]:
    if given.agent_args is None:
        return []
    if not given.agent_args:
        return [no_file_setting(host, ENVIRONMENT, "nodegate_agent_args", after=GROUP)]
    text = f"NODEGATE_ARGS={given.agent_args}\n"
    return [file_setting(host, ENVIRONMENT, text, "nodegate_agent_args", after=GROUP)]


def service_user(host: Host, link: str) -> Setting:
    """The user that agent and engines run as, as the release in use describes it."""
    file = f"{link}/{HOST_FILES}/etc/sysusers.d/nodegate.conf"

    def read() -> str | None:
        try:
            return pwd.getpwnam(USER).pw_name
        except KeyError:
            return None

    return Setting("user", "agent", USER, read, lambda: _must(host, "systemd-sysusers", file))


def service_folders(host: Host, link: str) -> Setting:
    """Folders that are there before the service starts."""
    want = "\n".join(f"{path} {mode:04o} {owner}" for path, (mode, owner) in FOLDERS.items())
    file = f"{link}/{HOST_FILES}/etc/tmpfiles.d/nodegate.conf"

    def read() -> str:
        return "\n".join(_folder(host, path) for path in FOLDERS)

    return Setting("folders", "agent", want, read, lambda: _must(host, "systemd-tmpfiles", "--create", file))


def _folder(host: Host, path: str) -> str:
    try:
        found = host.path(path).stat()
        owner = pwd.getpwuid(found.st_uid).pw_name
    except KeyError:
        owner = str(found.st_uid)
    except OSError:
        return f"{path} is not there"
    return f"{path} {stat.S_IMODE(found.st_mode):04o} {owner}"


def _must(host: Host, *argv: str) -> None:
    host.must(list(argv), 60.0)


def _secrets(host: Host, profile: dict[str, Any], given: Given) -> list[Setting]:
    """Each file that the profile names as the holder of a secret, with what the inventory has for it."""
    found = []
    bmc = profile["bmc"]
    if bmc["redfish"]:
        text = _login(given.bmc_username, given.bmc_password)
        found += _endpoint(host, "bmc.redfish", bmc["redfish"], text, given.bmc_ca, "nodegate_bmc_password")
    for name, pdu in bmc["pdus"].items():
        text = given.pdu_credentials.get(name)
        found += _endpoint(host, f"bmc.pdus.{name}", pdu, text, given.pdu_ca, "nodegate_pdu_credentials")
    for name, engine in profile["engines"].items():
        if engine.get("group"):
            field = f"engines.{name}.group.key_file"
            key = given.group_keys.get(name)
            found.append(_secret(host, field, engine["group"]["key_file"], key, "nodegate_group_keys"))
        if engine["launch"]["env_file"]:
            field = f"engines.{name}.launch.env_file"
            text = given.engine_env.get(name)
            found.append(
                _secret(host, field, engine["launch"]["env_file"], text, "nodegate_engine_env", True)
            )
    return found


def _login(username: str, password: str) -> str | None:
    """The text of a credentials file; quoted, so that nothing at either end of a password is lost."""
    return f'username: "{username}"\npassword: "{password}"\n' if username and password else None


def _endpoint(
    host: Host, field: str, endpoint: dict[str, Any], login: str | None, ca: str | None, variable: str
) -> list[Setting]:
    found = []
    if endpoint["credentials_file"]:
        path = endpoint["credentials_file"]
        found.append(_secret(host, f"{field}.credentials_file", path, login, variable))
    if endpoint["ca_file"] and ca is not None:
        found.append(file_setting(host, endpoint["ca_file"], ca, f"{field}.ca_file", after=GROUP))
    elif endpoint["ca_file"]:
        found.append(
            _there(host, f"{field}.ca_file", endpoint["ca_file"], f"{variable.rsplit('_', 1)[0]}_ca_file")
        )
    return found


def secret_file(path: str, *, for_engine: bool = False) -> tuple[str, bool]:
    """Where a secret of the profile lies, and whether systemd hands it to the service from there."""
    if not path.startswith("credential:"):
        return path, False
    folder = "engine-credentials" if for_engine else "credentials"
    return f"{CONFIG}/{folder}/{path.removeprefix('credential:')}", True


def _secret(
    host: Host, field: str, named: str, text: str | None, variable: str, for_engine: bool = False
) -> Setting:
    path, handed = secret_file(named, for_engine=for_engine)
    if text is None:
        return _there(host, field, path, variable)
    text = text if text.endswith("\n") else text + "\n"
    owner = "root" if handed else USER

    def read() -> str | None:
        found = host.read(path)
        if found is None:
            return None
        status = host.path(path).stat()
        fits = stat.S_IMODE(status.st_mode) == 0o600 and status.st_uid == _uid(owner)
        return found if fits else f"{found}\n(open to others, or of another user)"

    def write() -> None:
        host.write(path, text, 0o600, (_uid(owner), _gid(owner)))

    return Setting(path, field, text, read, write, same=str.__eq__, secret=True, after=GROUP)


def _there(host: Host, field: str, path: str, variable: str) -> Setting:
    return Setting(
        path,
        field,
        "there",
        lambda: "there" if host.exists(path) else None,
        advice=f"set {variable} in the inventory (a secret in its vault), or put the file there",
    )


def _uid(name: str) -> int:
    try:
        return pwd.getpwnam(name).pw_uid
    except KeyError:
        return -1


def _gid(name: str) -> int:
    try:
        return pwd.getpwnam(name).pw_gid
    except KeyError:
        return -1
