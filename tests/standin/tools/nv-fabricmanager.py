#!/usr/bin/python3 -ES
"""Stand-in for nv-fabricmanager: a process that runs. SIMULATED."""

import os

os.execv("/usr/bin/sleep", ["nv-fabricmanager", "infinity"])
