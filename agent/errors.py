"""Every error nodegate raises on purpose; the CLI and API map them in one place each."""

from __future__ import annotations


class AgentError(Exception):
    """Base of all expected errors: its text is one line that says what is wrong, where and what to do."""


class ConfigError(AgentError):
    """A profile, scenario, capture or argument is wrong; `where` is `file:line` when known."""

    def __init__(self, problem: str, *, where: str | None = None, remedy: str | None = None) -> None:
        """Join the parts to one line: `where: problem; remedy`."""
        self.problem = problem
        self.where = where
        self.remedy = remedy
        text = f"{where}: {problem}" if where else problem
        super().__init__(f"{text}; {remedy}" if remedy else text)


class SourceError(AgentError):
    """A source could not give evidence; the runner turns it into UNKNOWN, never into PASS."""


class SourceTimeout(SourceError):
    """No answer within the deadline."""


class SourceUnavailable(SourceError):
    """The source as a whole cannot answer: no driver, no permission, the path is not there."""


class NotSupported(SourceError):
    """The driver or platform answers that it does not have this attribute (NVML Not Supported)."""


class DeviceAbsent(SourceError):
    """The device asked for is not there (a check that expects it judges FAIL)."""


class DeviceLost(SourceError):
    """The device was there and is lost or needs a reset (NVML GPU_IS_LOST, RESET_REQUIRED)."""


class ParseError(SourceError):
    """The source answered with something that cannot be read."""


class BaselineOnly(SourceError):
    """A rate needs two samples of a counter and only the first has been taken."""


class LaunchError(AgentError):
    """The engine could not be launched, warmed or stopped."""


class IllegalTransition(AgentError):
    """A state machine got an event that its table does not have: a defect of nodegate itself."""


class DaemonError(AgentError):
    """The daemon cannot be reached over its socket or refused the command."""
