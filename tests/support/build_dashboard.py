"""The Grafana dashboard, from the panels of dashboard_panels.yaml.

    python -m tests.support.build_dashboard   # writes the role's files/nodegate-dashboard.json anew

Grafana 10 or newer; the data source is asked for when it is imported. Variables: `node` and `engine`.
"""

from __future__ import annotations

import json
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

if __name__ == "__main__":
    sys.path[:0] = [str(Path(__file__).parent)]

import yaml
from repo_files import ROOT

FILE = ROOT / "playbooks/roles/monitoring/files/nodegate-dashboard.json"
_SOURCE = {"type": "prometheus", "uid": "${DS_PROMETHEUS}"}
_NODE = 'node=~"$node"'
_ENGINE = f'{_NODE}, engine=~"$engine"'
_WIDE = 24


@dataclass(frozen=True)
class Panel:
    """One panel: title, unit as Grafana calls it, queries with their legends, kind, width of 24."""

    title: str
    unit: str
    queries: list[tuple[str, str]]
    kind: str = "timeseries"
    width: int = 8
    text: str = ""


VARIABLES = {
    "node": "label_values(nodegate_gate_ready, node)",
    "engine": "label_values(nodegate_gate_ready, engine)",
}


def rows() -> list[tuple[str, list[Panel]]]:
    """The rows of dashboard_panels.yaml."""
    read = yaml.safe_load((Path(__file__).parent / "dashboard_panels.yaml").read_text())
    return [(row["row"], [Panel(**panel) for panel in row["panels"]]) for row in read]


def dashboard() -> dict[str, Any]:
    """The whole dashboard as Grafana imports it."""
    panels: list[dict[str, Any]] = []
    y = 0
    for title, row in rows():
        at = {"h": 1, "w": _WIDE, "x": 0, "y": y}
        panels.append({"id": len(panels) + 1, "type": "row", "title": title, "gridPos": at, "panels": []})
        x, y = 0, y + 1
        for panel in row:
            if x + panel.width > _WIDE:
                x, y = 0, y + 8
            at = {"h": 8, "w": panel.width, "x": x, "y": y}
            panels.append({"id": len(panels) + 1, **_panel(panel), "gridPos": at})
            x += panel.width
        y += 8
    source = {"name": "DS_PROMETHEUS", "label": "Prometheus", "type": "datasource"}
    return {
        "__inputs": [{**source, "pluginId": "prometheus", "pluginName": "Prometheus"}],
        "title": "nodegate",
        "uid": "nodegate",
        "tags": ["nodegate"],
        "schemaVersion": 38,
        "refresh": "30s",
        "time": {"from": "now-3h", "to": "now"},
        "templating": {"list": [_variable(name, query) for name, query in VARIABLES.items()]},
        "panels": panels,
    }


def _panel(panel: Panel) -> dict[str, Any]:
    letters = "ABCDEF"
    return {
        "type": panel.kind,
        "title": panel.title,
        "description": panel.text,
        "datasource": _SOURCE,
        "fieldConfig": {"defaults": {"unit": panel.unit}, "overrides": []},
        "targets": [
            {
                "refId": letters[at],
                "expr": query.replace("ENGINE", _ENGINE).replace("NODE", _NODE),
                "legendFormat": legend,
                "datasource": _SOURCE,
                **({"instant": True, "format": "table"} if panel.kind == "table" else {}),
            }
            for at, (query, legend) in enumerate(panel.queries)
        ],
    }


def _variable(name: str, query: str) -> dict[str, Any]:
    more = {"includeAll": True, "multi": True, "refresh": 2, "sort": 1}
    return {"name": name, "type": "query", "query": query, "datasource": _SOURCE, **more}


def made() -> str:
    """The text of the file."""
    return json.dumps(dashboard(), indent=1) + "\n"


def queries() -> list[str]:
    """Every query of the file, the variables replaced by what Grafana puts in for all."""
    found = []
    for panel in json.loads(FILE.read_text())["panels"]:
        for target in panel.get("targets", ()):
            found.append(target["expr"].replace("$node", ".*").replace("$engine", ".*"))
    return found


if __name__ == "__main__":
    FILE.write_text(made())
