"""A simulated BMC without its network: what it answers to a request. SIMULATED.

DSP0266 (protocol) and DSP8010 (schemas) as far as this project's clients ask; the rest: tests/README.md.
"""

from __future__ import annotations

import hashlib
import threading
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any
from urllib.parse import unquote

from bmc_accounts import ACCOUNTS, Accounts
from bmc_actions import act
from bmc_bios import BiosService, canonical
from bmc_chassis import R, Readings, collection, resource
from bmc_clock import BmcClock
from bmc_faults import Faults
from bmc_machine import Machine, Times, default_firmware
from bmc_record import Record
from bmc_reply import Document, Refusal, Reply, Request, body_of, message, not_allowed, not_there, success
from bmc_sessions import Session, Sessions
from bmc_tasks import Tasks, job_document
from bmc_tree import MULTIPART, PUSH, firmware_document, tree
from bmc_update import INVENTORY, Updates
from bmc_vendors import vendor as vendor_of

USER, PASSWORD = "bmc-writer", "Wr1ter-Pa55word-of-BMC"
SESSIONS = f"{R}/SessionService/Sessions"
TASKS = f"{R}/TaskService/Tasks"
MONITORS = f"{R}/TaskService/TaskMonitors"
OPEN = ("/redfish", R, f"{R}/odata")
#: BMC seconds that pass in one of ours: a firmware task of ten minutes takes one second.
SPEED = 600.0


class Bmc:
    """One BMC and the machine behind it; every part is a plain attribute that a test may change."""

    def __init__(
        self,
        vendor: str = "generic",
        *,
        cpu: str | None = None,
        name: str = "bmc",
        username: str = USER,
        password: str = PASSWORD,
        speed: float = SPEED,
        times: Times | None = None,
        gpus: int = 8,
        quirks: Mapping[str, Any] | None = None,
    ) -> None:
        self.vendor = replace(vendor_of(vendor, cpu), **(quirks or {}))
        self.name, self.serial = name, f"SIM-{name}"
        self.username, self.password = username, password
        self.lock = threading.RLock()
        self.clock = BmcClock(speed)
        self.machine = Machine(self.vendor, self.clock, times or Times(), firmware=default_firmware(gpus))
        self.tasks = Tasks(self.clock, "JID_4711000" if self.vendor.name == "dell" else "")
        self.bios = BiosService(self.machine, self.tasks, etag)
        self.updates = Updates(self.machine, self.tasks)
        self.accounts = Accounts(username, password)
        self.sessions = Sessions(self.accounts)
        self.readings = Readings()
        self.faults = Faults(self.clock)
        self.record = Record([password])
        self.log: list[tuple[str, str]] = [("OK", "System powered on")]
        #: Path -> what is laid over its document; None = the path is not there.
        self.override: dict[str, Document | None] = {}
        self.require_if_match = False
        #: Told outside of the lock about each reset of the host: to reboot a test host with it.
        self.on_reset: Callable[[str], None] | None = None
        self.on_change: Callable[[], None] | None = None
        self._saved = ""
        self._jobs = f"{R}/Managers/{self.vendor.manager}/Jobs"
        self._tree = tree(self) | self.accounts.documents()

    def tick(self) -> None:
        """Bring machine and tasks to the time of now; sessions end with a BMC that restarts."""
        with self.lock:
            self.machine.tick()
            self.tasks.tick()
            if self.machine.bmc_down:
                self.sessions.expire(all_of_them=True)

    def down(self) -> bool:
        """Whether nothing may listen now: the BMC restarts, or a fault says so."""
        with self.lock:
            self.machine.tick()
            return self.machine.bmc_down or self.faults.refusing()

    def host_reset(self, kind: str = "ForceRestart") -> None:
        """The host is reset by somebody else than a Redfish client, e.g. by its own operating system."""
        with self.lock:
            self.tick()
            self.machine.reset(kind)

    def settle(self) -> None:
        """Let all that goes on come to its end: BMC start, POST, tasks."""
        times = self.machine.times
        for _ in range(3):
            self.clock.advance(times.bmc_start_s + times.off_s + times.post_s + times.task_s)
            self.tick()

    def answer(self, request: Request) -> Reply:
        """The answer to a request."""
        with self.lock:
            self.tick()
            resets, before = len(self.machine.resets), self._saved
            try:
                reply = self._answer(request)
            except Refusal as refusal:
                reply = refusal.reply()
            done = self.machine.resets[resets:]
            self._saved = self._save_needed(self._saved)
        if self.on_reset is not None:
            for kind in done:
                self.on_reset(kind)
        if self.on_change is not None and self._saved != before:
            self.on_change()
        return reply

    def _save_needed(self, before: str) -> str:
        """What would be saved, if somebody saves at all; it changes with the clock too."""
        return before if self.on_change is None else repr(self.machine.to_json())

    def document(self, path: str) -> Document:
        """The document at a path. Raises Refusal (404)."""
        path = unquote(path).rstrip("/") or "/"
        laid_over = self.override.get(path, {})
        if laid_over is None:
            raise not_there(path)
        builder = self._tree.get(path)
        found = builder() if builder is not None else self._dynamic(path)
        return _laid_over(found, laid_over)

    def _answer(self, request: Request) -> Reply:
        path = unquote(request.path).rstrip("/")
        if not path.startswith("/redfish"):
            raise not_there(request.path)
        login = request.method == "POST" and path in (SESSIONS, f"{SESSIONS}/Members")
        if path == f"{R}/$metadata" and request.method == "GET":
            return Reply(200, raw=_METADATA, content_type="application/xml")
        if request.header("odata-version") not in ("", "4.0"):
            raise Refusal(412, message("PreconditionFailed", "This OData-Version is not supported."))
        if login:
            return self._login(request)
        reads = request.method in ("GET", "HEAD")
        user = "" if reads and path in OPEN else self.sessions.admit(request)
        if reads:
            reply = self._read(request, path)
            reply.headers.update(Allow=", ".join(self._methods(path)), Link=_described(reply.document))
            return reply
        if request.method not in self._methods(path):
            self._exists(path)
            raise not_allowed(request.method, self._methods(path))
        self.accounts.demand(user, self._privilege(request.method, path))
        if request.method == "POST":
            return self.accounts.create(body_of(request)) if path == ACCOUNTS else act(self, path, request)
        return self._delete(path) if request.method == "DELETE" else self._patch(request, path)

    def _methods(self, path: str) -> tuple[str, ...]:
        """What a resource takes."""
        parent = path.rpartition("/")[0]
        if "/Actions/" in path or path in (MULTIPART, PUSH):
            return ("POST",)
        if path in (SESSIONS, ACCOUNTS):
            return ("GET", "HEAD", "POST")
        if parent == ACCOUNTS:
            return ("GET", "HEAD", "PATCH", "DELETE")
        if parent in (SESSIONS, TASKS, MONITORS, self._jobs):
            return ("GET", "HEAD", "DELETE")
        if path == self.bios.settings_path or (path == self.bios.path and self.vendor.patch_current):
            return ("GET", "HEAD", "PATCH")
        return ("GET", "HEAD")

    def _exists(self, path: str) -> None:
        """Raises Refusal (404) for what is not there; actions exist as far as act() knows them."""
        if self._methods(path) != ("POST",):
            self.document(path)

    def _privilege(self, method: str, path: str) -> str:
        if path.startswith(ACCOUNTS):
            return "ConfigureUsers"
        if path.startswith(f"{SESSIONS}/"):
            return "ConfigureSelf"
        return "ConfigureManager" if "/Managers/" in path else "ConfigureComponents"

    def _read(self, request: Request, path: str) -> Reply:
        if path.startswith(f"{MONITORS}/"):
            return self._monitor(path)
        document = self.document(path)
        expand = _expanded(request.query)
        if expand and "Members" in document:
            document["Members"] = [
                member if len(member) > 1 else self.document(member["@odata.id"])
                for member in document["Members"]
            ]
        tag = etag(document)
        if "Members" not in document and "v1" not in document:
            document["@odata.etag"] = tag
        if self.vendor.slashes:
            document = _slashed(document)
        if request.header("if-none-match") == tag:
            return Reply(304, None, {"ETag": tag})
        return Reply(200, document, {"ETag": tag})

    def _login(self, request: Request) -> Reply:
        sent = body_of(request)
        session = self.sessions.login(sent.get("UserName"), sent.get("Password"))
        document = _session_document(session)
        return Reply(201, document, {"X-Auth-Token": session.token, "Location": document["@odata.id"]})

    def _delete(self, path: str) -> Reply:
        id_ = path.rpartition("/")[2]
        if path.startswith(f"{SESSIONS}/") and id_ in self.sessions.open:
            del self.sessions.open[id_]
            return Reply(204)
        if path.rpartition("/")[0] == ACCOUNTS and id_ in self.accounts.all:
            del self.accounts.all[id_]
            return Reply(204)
        if path.startswith((f"{TASKS}/", f"{MONITORS}/", f"{self._jobs}/")) and id_ in self.tasks.all:
            task = self.tasks.all[id_]
            if task.lasts_s is None and not task.ended:
                self.bios.cancel(task)
            elif not task.ended:
                task.cancel(self.clock.now_s())
            return Reply(200, {"@Message.ExtendedInfo": [success()]})
        raise not_there(path)

    def _patch(self, request: Request, path: str) -> Reply:
        document = self.document(path)
        wanted = request.header("if-match")
        if not wanted and self.require_if_match:
            words = "A precondition header or annotation is required to change this resource."
            raise Refusal(428, message("PreconditionRequired", words, severity="Critical"))
        if wanted and wanted != "*" and etag(document) not in [each.strip() for each in wanted.split(",")]:
            words = "The ETag supplied did not match the ETag required to change this resource."
            raise Refusal(412, message("PreconditionFailed", words, severity="Critical"))
        if path.startswith(ACCOUNTS):
            return self.accounts.change(path.rpartition("/")[2], body_of(request))
        return self.bios.patch(body_of(request))

    def _monitor(self, path: str) -> Reply:
        """Task monitor: 202 while the task runs, then its outcome."""
        task = self.tasks.all.get(path.rpartition("/")[2])
        if task is None:
            raise not_there(path)
        document = task.document(self.clock)
        if not task.ended:
            return Reply(202, document, {"Location": path, "Retry-After": "5"})
        return Reply(200 if task.state == "Completed" else 500, document)

    def _dynamic(self, path: str) -> Document:
        parent, _, id_ = path.rpartition("/")
        if path == SESSIONS:
            return collection(path, "Session", [f"{path}/{each}" for each in self.sessions.open])
        if path == TASKS:
            return collection(path, "Task", [f"{path}/{each}" for each in self.tasks.all])
        if parent == SESSIONS and id_ in self.sessions.open:
            return _session_document(self.sessions.open[id_])
        if path == self._jobs and self.vendor.needs_apply_time:
            return collection(path, "DellJob", [f"{path}/{each}" for each in self.tasks.all])
        if parent == self._jobs and id_ in self.tasks.all and self.vendor.needs_apply_time:
            return job_document(self.tasks.all[id_], path)
        if parent == ACCOUNTS and id_ in self.accounts.all:
            return self.accounts.document(id_)
        if parent == TASKS and id_ in self.tasks.all:
            return self.tasks.all[id_].document(self.clock)
        if parent == INVENTORY and id_ in self.machine.firmware:
            return firmware_document(self, id_)
        if parent.endswith("/LogServices/SEL/Entries"):
            for entry in self.document(parent)["Members"]:
                if entry["Id"] == id_:
                    return dict(entry)
        raise not_there(path)


def etag(document: Document) -> str:
    """A strong ETag of what a document says."""
    plain = {key: value for key, value in document.items() if key != "@odata.etag"}
    return f'"{hashlib.sha256(canonical(plain)).hexdigest()[:16]}"'


def _expanded(query: str) -> bool:
    """Whether $expand is asked. Raises Refusal for what this service does not do."""
    found = False
    for each in filter(None, unquote(query).split("&")):
        key, _, value = each.partition("=")
        if key == "$expand" and value.partition("(")[0] in (".", "*"):
            found = True
        elif key.startswith("$"):
            words = f"The query parameter {key} is not supported."
            raise Refusal(501, message("QueryNotSupportedOnResource", words))
    return found


def _described(document: Document | None) -> str:
    """The Link header: where the schema of a document is."""
    kind = str((document or {}).get("@odata.type", "#Resource.Resource")).removeprefix("#").rpartition(".")[0]
    return f"<http://redfish.dmtf.org/schemas/v1/{kind}.json>; rel=describedby"


def _slashed(part: Any) -> Any:
    """The same with a slash at the end of every link."""
    if isinstance(part, dict):
        return {
            key: f"{value.rstrip('/')}/" if key == "@odata.id" and "#" not in value else _slashed(value)
            for key, value in part.items()
        }
    return [_slashed(each) for each in part] if isinstance(part, list) else part


def _session_document(session: Session) -> Document:
    return resource(f"{SESSIONS}/{session.id}", "Session.v1_7_2", UserName=session.username)


def _laid_over(document: Document, over: Document) -> Document:
    """Deep merge; the document itself is not changed."""
    found = dict(document)
    for key, value in over.items():
        known = found.get(key)
        both = isinstance(value, dict) and isinstance(known, dict)
        found[key] = _laid_over(known, value) if both else value
    return found


_EDM = "http://docs.oasis-open.org/odata/ns"
_METADATA = f"""<?xml version="1.0" encoding="UTF-8"?>
<edmx:Edmx xmlns:edmx="{_EDM}/edmx" Version="4.0">
<edmx:DataServices><Schema xmlns="{_EDM}/edm" Namespace="Service">
<EntityContainer Name="Service" Extends="ServiceRoot.v1_17_0.ServiceContainer"/></Schema>
</edmx:DataServices></edmx:Edmx>
""".encode()
