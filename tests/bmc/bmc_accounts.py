"""AccountService: accounts with the three roles of DSP0266, and what a role may do."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from bmc_chassis import OK, Builder, R, collection, resource, to
from bmc_reply import Document, Refusal, Reply, message

SERVICE = f"{R}/AccountService"
ACCOUNTS, ROLES = f"{SERVICE}/Accounts", f"{SERVICE}/Roles"
_READ = ("Login", "ConfigureSelf")
PRIVILEGES = {
    "Administrator": (*_READ, "ConfigureManager", "ConfigureUsers", "ConfigureComponents"),
    "Operator": (*_READ, "ConfigureComponents"),
    "ReadOnly": _READ,
}


@dataclass
class Account:
    """One account."""

    username: str
    password: str = field(repr=False)
    role: str = "Administrator"
    enabled: bool = True


class Accounts:
    """The accounts by their id; `self.all` may be changed by a test."""

    def __init__(self, username: str, password: str) -> None:
        self.all: dict[str, Account] = {"1": Account(username, password)}

    def add(self, username: str, password: str, role: str) -> str:
        """A further account; its id."""
        id_ = next(str(each) for each in range(1, 100) if str(each) not in self.all)
        self.all[id_] = Account(username, password, role)
        return id_

    def find(self, username: str) -> Account | None:
        """The account that may log in under that name."""
        return next((each for each in self.all.values() if each.username == username and each.enabled), None)

    def demand(self, username: str, privilege: str) -> None:
        """Raises Refusal (403) if the account has not the privilege."""
        account = self.find(username)
        if account is None or privilege not in PRIVILEGES[account.role]:
            words = (
                "There are insufficient privileges for the account or credentials to perform the operation."
            )
            raise Refusal(403, message("InsufficientPrivilege", words, severity="Critical"))

    def documents(self) -> dict[str, Builder]:
        """The fixed ones: service, both lists, roles."""
        found: dict[str, Builder] = {
            SERVICE: lambda: resource(
                SERVICE,
                "AccountService.v1_15_1",
                ServiceEnabled=True,
                Status=OK,
                MinPasswordLength=8,
                MaxPasswordLength=64,
                Accounts=to(ACCOUNTS),
                Roles=to(ROLES),
            ),
            ACCOUNTS: lambda: collection(
                ACCOUNTS, "ManagerAccount", [f"{ACCOUNTS}/{each}" for each in self.all]
            ),
            ROLES: lambda: collection(ROLES, "Role", [f"{ROLES}/{each}" for each in PRIVILEGES]),
        }
        for name, privileges in PRIVILEGES.items():
            found[f"{ROLES}/{name}"] = lambda name=name, privileges=privileges: resource(
                f"{ROLES}/{name}",
                "Role.v1_3_2",
                RoleId=name,
                IsPredefined=True,
                AssignedPrivileges=list(privileges),
            )
        return found

    def document(self, id_: str) -> Document:
        """One account, without its password."""
        account = self.all[id_]
        return resource(
            f"{ACCOUNTS}/{id_}",
            "ManagerAccount.v1_12_1",
            UserName=account.username,
            Password=None,
            RoleId=account.role,
            Enabled=account.enabled,
            Locked=False,
            AccountTypes=["Redfish"],
            Links={"Role": to(f"{ROLES}/{account.role}")},
        )

    def create(self, sent: dict[str, Any]) -> Reply:
        for name in ("UserName", "Password", "RoleId"):
            if not isinstance(sent.get(name), str):
                words = f"The create operation failed because the required property {name} was missing."
                raise Refusal(
                    400, message("CreateFailedMissingReqProperties", words, name, severity="Critical")
                )
        if self.find(sent["UserName"]) is not None:
            raise Refusal(400, message("ResourceAlreadyExists", "The account exists already."))
        self._check(sent)
        id_ = self.add(sent["UserName"], sent["Password"], sent["RoleId"])
        document = self.document(id_)
        return Reply(201, document, {"Location": document["@odata.id"]})

    def change(self, id_: str, sent: dict[str, Any]) -> Reply:
        account = self.all[id_]
        names = {"UserName": "username", "Password": "password", "RoleId": "role", "Enabled": "enabled"}
        unknown = [name for name in sent if name not in names]
        if unknown:
            words = f"The property {unknown[0]} is a read-only property and cannot be assigned a value."
            raise Refusal(
                400, message("PropertyNotWritable", words, unknown[0], properties=(f"#/{unknown[0]}",))
            )
        self._check(sent)
        for name, value in sent.items():
            setattr(account, names[name], value)
        return Reply(200, self.document(id_))

    def _check(self, sent: dict[str, Any]) -> None:
        if "RoleId" in sent and sent["RoleId"] not in PRIVILEGES:
            words = f"The value '{sent['RoleId']}' for the property RoleId is not in the list of values."
            raise Refusal(400, message("PropertyValueNotInList", words, str(sent["RoleId"]), "RoleId"))
        if "Password" in sent and not 8 <= len(str(sent["Password"])) <= 64:
            raise Refusal(400, message("PropertyValueFormatError", "The password has a wrong length."))
