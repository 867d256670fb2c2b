"""Several engines that are ready only together: ranks of one model over nodes, prefill and decode pairs."""

from __future__ import annotations

from pydantic import Field

from agent.profile_types import Host, Part, PathText, Port


class GroupMember(Part):
    """One node of a model that spans several; its place in the list is its rank, rank 0 is the head."""

    node: str = Field(description="Name of the node, as its own profile has it", min_length=1)
    address: Host = Field(description="Management address at which its agent answers")
    port: Port = Field(9470, description="Port of its agent's read-only HTTP interface")
    data_address: Host | None = Field(
        None, description="Address in the data network, over which the ranks talk; unset = as address"
    )


class Group(Part):
    """One model over several nodes. Only the head is ever ready, and only while every member is well."""

    rank: int = Field(description="Rank of this node among the members; 0 is the head", ge=0)
    members: list[GroupMember] = Field(description="All members in order of their ranks", min_length=2)
    key_file: PathText = Field(
        description="File with the key, the same on all members, that signs their status; mode 0600"
    )
    master_port: Port = Field(29501, description="Port at which the head's rank waits for the others")
    ports: list[Port] = Field(
        default_factory=list,
        description="Further ports on the others' data address that no firewall may hold back before a start",
    )
    period_s: float = Field(1.0, description="Seconds between pulls of each member's status", gt=0)
    timeout_s: float = Field(
        15.0, description="Silence of a member after which the head's gate closes, in seconds", gt=0
    )
    data_timeout_s: float = Field(
        5.0,
        description="Seconds without an answer over the data network after which the head's gate closes",
        gt=0,
    )
    start_deadline_s: float | None = Field(
        None,
        description="Seconds that all ranks may take from the common start to the head's health; unset = the "
        "engine's start_deadline_s",
        gt=0,
    )


class Pair(Part):
    """Prefill and decode engines that serve together (P-D disaggregation); each keeps its own gate.

    `/readyz/PAIR` tells of the pair; `/readyz` without a name stays every engine of the node.
    """

    prefill: list[str] = Field(description="Engines that prefill", min_length=1)
    decode: list[str] = Field(description="Engines that decode", min_length=1)
    min_prefill: int = Field(1, description="Prefill engines that must be ready", ge=1)
    min_decode: int = Field(1, description="Decode engines that must be ready", ge=1)
    agent_check_port: Port | None = Field(None, description="Port of the HAProxy agent check of this pair")
