"""The nodes of an inventory as fleet commands see them: addresses, what serves together, what must be ready.

Reading is Ansible's own (hosts, groups, group_vars, host_vars). Encrypted files are left out: nobody is
asked for a key to look at nodes.
"""

from __future__ import annotations

import contextlib
import gc
import io
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

from agent.fleet.inventory_faults import inventory_fault, refuse_bad_yaml
from agent.fleet.profile_facts import EngineFacts, FactsStore, ProfileFacts
from agent.fleet.targets import BESIDE, no_hosts
from agent.profile_yaml import clean

DEFAULT_PORT = 9470
#: Variables of the inventory that are looked at.
POOL, MIN_READY, AT_ONCE = "nodegate_pool", "nodegate_min_ready", "nodegate_maintain_at_once"
_WANTED = ("ansible_host", POOL, MIN_READY, AT_ONCE)


@dataclass(frozen=True)
class SiteHost:
    """One node of the inventory."""

    name: str
    address: str
    facts: ProfileFacts = field(default_factory=ProfileFacts)
    #: Values of the inventory's variables, where it has them.
    given: Mapping[str, Any] = field(default_factory=dict)

    @property
    def node(self) -> str:
        """What its agent calls it."""
        return self.facts.node or self.name

    @property
    def port(self) -> int:
        """Where its agent answers."""
        return self.facts.api_port


@dataclass(frozen=True)
class Instance:
    """One engine that is ready or not as a whole: on one host, or on all members of a group, head first."""

    engine: str
    hosts: tuple[str, ...]
    pool: str
    #: Members of the group that the inventory does not have.
    strangers: tuple[str, ...] = ()

    @property
    def head(self) -> str:
        """The host whose gate answers for it."""
        return self.hosts[0]

    @property
    def label(self) -> str:
        """For people."""
        return f"{self.engine} on {', '.join(self.hosts)}"


@dataclass(frozen=True)
class Site:
    """All nodes of the inventories, and which of them were asked for."""

    hosts: Mapping[str, SiteHost]
    asked: tuple[str, ...]
    instances: tuple[Instance, ...]
    pattern: str = "all"

    def with_mates(self, names: Iterable[str]) -> tuple[str, ...]:
        """These hosts and all that serve together with one of them, as the inventory orders them."""
        wanted = {mate for name in names for mate in self.mates(name)}
        return tuple(name for name in self.hosts if name in wanted)

    def mates(self, name: str) -> tuple[str, ...]:
        """All hosts that serve together with this one, itself included."""
        return self._parts.get(name, (name,))

    @cached_property
    def _parts(self) -> Mapping[str, tuple[str, ...]]:
        """By host; hosts of one group, and of groups that share a host, are one part."""
        parts: dict[str, list[str]] = {}
        for one in self.instances:
            joined = list(dict.fromkeys(mate for host in one.hosts for mate in parts.get(host, [host])))
            parts.update(dict.fromkeys(joined, joined))
        return {name: tuple(host for host in part if host in self.hosts) for name, part in parts.items()}


def site_of_hosts(hosts: Sequence[SiteHost], asked: Sequence[str], pattern: str = "all") -> Site:
    """The site of these hosts (pure)."""
    return Site({host.name: host for host in hosts}, tuple(asked), tuple(_instances(hosts)), pattern)


def read_site(sources: Sequence[Path], limit: str | None, config: Path) -> Site:
    """Read inventories and profiles. ConfigError when they cannot be read, or have no such hosts."""
    # Ansible reads its settings when it is imported, and this process is only about this run.
    os.environ.setdefault("ANSIBLE_CONFIG", str(config))
    from ansible.errors import AnsibleError
    from ansible.inventory.manager import InventoryManager
    from ansible.parsing.dataloader import DataLoader

    refuse_bad_yaml(sources)
    said = io.StringIO()
    try:
        with contextlib.redirect_stderr(said), _without_collections():
            loader = DataLoader()
            inventory = InventoryManager(loader, [str(source) for source in sources])
            pattern = "all" + "".join(f":!{group}" for group in BESIDE if group in inventory.groups)
            found = inventory.get_hosts(pattern)
            if limit:
                inventory.subset(limit)
            asked = [host.name for host in inventory.get_hosts(pattern)]
            hosts = _Reader(loader, sources).hosts(found) if asked else []
    except AnsibleError as cause:
        raise inventory_fault(sources, str(cause)) from cause
    if not asked:
        raise no_hosts(sources, limit, said.getvalue())
    return site_of_hosts(hosts, asked, pattern)


@contextlib.contextmanager
def _without_collections() -> Iterator[None]:
    """Python looks for no cycles meanwhile: Ansible makes a million objects of 1000 hosts, and keeps them."""
    was = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was:
            gc.enable()


class _Reader:
    """Variables and profiles of hosts."""

    def __init__(self, loader: Any, sources: Sequence[Path]) -> None:
        self._loader = loader
        self._sites = [(source if source.is_dir() else source.parent).resolve() for source in sources]
        self._stores: dict[Path, FactsStore] = {}
        self._groups: dict[str, dict[str, Any]] = {}

    def hosts(self, found: Sequence[Any]) -> list[SiteHost]:
        """All of them."""
        hosts = [self._host(host) for host in found]
        for store in self._stores.values():
            store.save()
        return hosts

    def _host(self, host: Any) -> SiteHost:
        from ansible.inventory.helpers import sort_groups

        groups = sort_groups(host.get_groups())
        # As Ansible has it: the inventory itself lies under the files beside it, groups under hosts.
        layers = (
            *(group.vars for group in groups),
            *(self._group(group.name) for group in groups),
            host.vars,
            self._files("host_vars", host.name),
        )
        given = {name: values[name] for values in layers for name in _WANTED if name in values}
        address = str(given.get("ansible_host") or host.name)
        if "{{" in str(given.get("ansible_host", "")):
            known = {name: value for values in layers for name, value in values.items()}
            address = self._templated(given["ansible_host"], {**known, "inventory_hostname": host.name})
        facts = self._facts(host, [group.name for group in groups if group.name != "all"])
        return SiteHost(str(host.name), address, facts, given)

    def _group(self, name: str) -> dict[str, Any]:
        if name not in self._groups:
            self._groups[name] = self._files("group_vars", name)
        return self._groups[name]

    def _files(self, folder: str, name: str) -> dict[str, Any]:
        """Variables of a group or a host in files beside the inventories."""
        found: dict[str, Any] = {}
        for site in self._sites:
            if not (site / folder).is_dir():
                continue
            for file in self._loader.find_vars_files(str(site / folder), name):
                if not Path(file).read_bytes().startswith(b"$ANSIBLE_VAULT"):
                    found.update(self._loader.load_from_file(file) or {})
        return found

    def _templated(self, text: Any, known: dict[str, Any]) -> str:
        from ansible.template import Templar

        return str(Templar(loader=self._loader, variables=known).template(text))

    def _facts(self, host: Any, groups: Sequence[str]) -> ProfileFacts:
        site = Path(str(host.vars.get("inventory_dir") or self._sites[0])).resolve()
        folder = site / "profiles"
        if not folder.is_dir():
            return ProfileFacts(api_port=DEFAULT_PORT)
        if folder not in self._stores:
            self._stores[folder] = FactsStore(folder)
        return self._stores[folder].facts(str(host.name), groups)


def _instances(hosts: Sequence[SiteHost]) -> Iterable[Instance]:
    """Every engine once; one of a group where its first member stands."""
    by_node = {host.node: host.name for host in hosts}
    seen: set[tuple[str, tuple[str, ...]]] = set()
    for host in hosts:
        for engine in host.facts.engines:
            if not engine.members:
                yield Instance(engine.name, (host.name,), _pool(host, engine))
            elif (engine.name, engine.members) not in seen:
                seen.add((engine.name, engine.members))
                yield _group_instance(engine, host, by_node)


def _group_instance(engine: EngineFacts, host: SiteHost, by_node: Mapping[str, str]) -> Instance:
    names = tuple(by_node.get(node, node) for node in engine.members)
    strangers = tuple(node for node in engine.members if node not in by_node)
    return Instance(engine.name, names, _pool(host, engine), strangers)


def _pool(host: SiteHost, engine: EngineFacts) -> str:
    """The inventory's word, else the engine's name: engines of one name are one service."""
    given = host.given.get(POOL)
    return clean(str(given)) if given not in (None, "") else engine.name
