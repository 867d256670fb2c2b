"""Flags and environment of a launch against the engine that is installed, without starting it."""

from agent.launch.lint.report import lint as lint
