"""The pages in docs/runbooks: generated parts, and parts that are written by hand.

``./dev docs`` writes the pages from the catalogue and the alerts. It keeps the text below the
marker line of a page, and the cause, evidence and risk on the page of a code.
"""

from __future__ import annotations

import functools
import textwrap
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import yaml

from rbdagent.binding import branch_lines
from rbdagent.catalog import CATALOG
from rbdagent.commands import sentence_of
from rbdagent.pages import HEADINGS, MARKER, sections

if TYPE_CHECKING:
    from rbdagent.model import Recovery
    from rbdagent.rules.entry import Entry

ROOT: Final = Path(__file__).parents[2]
RUNBOOKS: Final = ROOT / "docs" / "runbooks"
ALERTS: Final = ROOT / "helm" / "rbdagent" / "files" / "alerts.yaml"

_INTRO: Final = """\
# Runbooks

Each alert and each finding has a page. `rbdagent explain CODE` prints the page of a finding
without a network. The plugin, `kubectl rbdagent`, runs a command in the pod of the right node's
agent. On a host installation, run the command on that node, without `kubectl` and `--node`.

Never unmap by force, never unmount lazily, never remove a finalizer or a VolumeAttachment: each of
these leaves orphans behind or loses data.
"""

Json = dict[str, Any]


@functools.cache
def rules() -> list[Json]:
    """Return every rule of the alerts."""
    found: Json = yaml.safe_load(ALERTS.read_text())
    return [rule for group in found["groups"] for rule in group["rules"]]


def alerts() -> dict[str, list[Json]]:
    """Return the rules of each alert: one rule, or one for each severity."""
    found: dict[str, list[Json]] = {}
    for rule in rules():
        found.setdefault(rule["alert"], []).append(rule)
    return found


def pages() -> dict[Path, str]:
    """Return every page with its generated parts, and with the existing text of the others."""
    by_hand = {name: _by_hand(name) for name in (*alerts(), *CATALOG)}
    heads = {name: _of_alert(name, rules) for name, rules in alerts().items()}
    heads |= {code: _of_code(entry, by_hand) for code, entry in CATALOG.items()}
    found = {_path(name): f"{head}\n{MARKER}\n{by_hand[name]}" for name, head in heads.items()}
    return found | {_path("README"): _index()}


def _path(name: str) -> Path:
    return RUNBOOKS / f"{name}.md"


def _existing(name: str) -> str:
    path = _path(name)
    return path.read_text() if path.exists() else ""


def _by_hand(name: str) -> str:
    return _existing(name).partition(f"{MARKER}\n")[2]


def _of_alert(name: str, rules: list[Json]) -> str:
    parts = [f"# {name}", rules[0]["annotations"]["summary"]]
    for rule in rules:
        parts.append(f"Fires as `{rule['labels']['severity']}` after {rule['for']} of:")
        parts.append(f"```promql\n{rule['expr'].strip()}\n```")
    return "\n\n".join(parts) + "\n"


def _of_code(entry: Entry, by_hand: dict[str, str]) -> str:
    parts = [
        f"# {entry.code} {entry.name}",
        f"{_wrapped(entry.summary)}\n\nSeverity: {entry.severity}.",
    ]
    written = sections(_existing(entry.code))
    parts += [f"## {heading}\n\n{written.get(heading, '')}".rstrip() for heading in HEADINGS]
    parts.append(f"## Remedy\n\n{_wrapped(sentence_of(entry.remedy))}")
    if entry.recovery is not None:
        parts.append(f"## Recovery\n\n{_wrapped(_sentence(entry.recovery))}")
    if branches := branch_lines(entry.code):
        lines = "\n".join(f"- {line}" for line in branches)
        parts.append(f"## Branch\n\nIn [how a claim and a PV are bound](../binding.md):\n\n{lines}")
    link = f"({entry.code}.md)"
    naming = [f"[{name}]({name}.md)" for name in alerts() if link in by_hand[name]]
    if naming:
        parts.append(f"Alerts for this finding: {', '.join(naming)}.")
    return "\n\n".join(parts) + "\n"


def _sentence(recovery: Recovery) -> str:
    text = str(recovery)
    return f"{text[0].upper()}{text[1:]}."


def _wrapped(text: str) -> str:
    return textwrap.fill(text, 120, break_long_words=False, break_on_hyphens=False)


def _index() -> str:
    lines = [_INTRO, "## Alerts\n", "| alert | severity | fires when |", "|---|---|---|"]
    for name, rules in alerts().items():
        severity = ", ".join(rule["labels"]["severity"] for rule in rules)
        lines.append(f"| [{name}]({name}.md) | {severity} | {rules[0]['annotations']['summary']} |")
    lines += ["\n## Findings\n", "| code | name | severity | summary |", "|---|---|---|---|"]
    for code, entry in CATALOG.items():
        lines.append(f"| [{code}]({code}.md) | {entry.name} | {entry.severity} | {entry.summary} |")
    return "\n".join(lines) + "\n"


def write() -> None:
    """Write every page."""
    RUNBOOKS.mkdir(parents=True, exist_ok=True)
    for path, text in pages().items():
        path.write_text(text)
