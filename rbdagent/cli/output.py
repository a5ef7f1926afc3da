"""What is printed, in which form, and with which exit code."""

from __future__ import annotations

import gc
import os
import sys
import time
from typing import TYPE_CHECKING, Any, Final

import click

from rbdagent.cli.flags import SEVERITIES
from rbdagent.errors import RbdagentError
from rbdagent.parse.shown import in_json, shown, shown_lines

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from rbdagent.model import Diagnosis, Finding, LifeList, Moment, Snapshot


_FINDINGS: Final = 3
_WATCH_S: Final = 5.0


def data_text(data: dict[str, Any], output: str) -> str:
    """Return data as JSON or YAML, with escapes for what a terminal obeys or does not show."""
    if output == "json":
        import msgspec

        return in_json(msgspec.json.format(msgspec.json.encode(data), indent=2).decode()) + "\n"
    return _yaml(data)


def _yaml(data: dict[str, Any]) -> str:
    """Return data as YAML: quotes around a text that needs escapes, which are those of Python.

    A line break in a text would else be one of the document, and PyYAML takes marks of direction
    for printable (yaml.emitter, analyze_scalar).
    """
    import yaml

    class Dumper(yaml.SafeDumper):
        """With a way of its own to write texts."""

    def text_node(dumper: yaml.SafeDumper, text: str) -> yaml.Node:
        style = None if text.isprintable() else '"'
        return dumper.represent_scalar("tag:yaml.org,2002:str", text, style=style)

    Dumper.add_representer(str, text_node)
    told = yaml.dump(data, Dumper=Dumper, sort_keys=False, allow_unicode=True, width=100)
    return shown_lines(told)


def exit_code(diagnoses: Sequence[Diagnosis], fail_on: str) -> int:
    """Return 3 for findings, 1 for "undetermined": no script may read that as fine.

    A claim that was observed and has no volume yet is a complete answer: nothing can hold it.
    """
    from rbdagent.model import Verdict

    if is_serious((one for each in diagnoses for one in each.findings), fail_on):
        return _FINDINGS
    unknown = (each for each in diagnoses if each.verdict is Verdict.UNDETERMINED)
    return int(not all(_has_no_volume(each) for each in unknown))


def _has_no_volume(diagnosis: Diagnosis) -> bool:
    claim = diagnosis.use.claim
    return (
        claim is not None
        and claim.phase == "Pending"
        and claim.volume_name is None
        and diagnosis.use.image is None
        and diagnosis.use.persistent_volume is None
        and not diagnosis.holders
    )


def is_serious(findings: Iterable[Finding], fail_on: str) -> bool:
    """Tell whether a finding is at least so severe."""
    least = SEVERITIES.index(fail_on)
    return any(SEVERITIES.index(str(each.severity)) >= least for each in findings)


def exit_code_of_list(found: LifeList, snapshot: Snapshot, fail_on: str) -> int:
    """Give the same of all that is stuck; 1 as well where not all was seen that was asked for."""
    from rbdagent.diagnose.stuck import is_complete, is_empty, unseen_of

    findings = [finding for each in found.stuck for finding in each.life.findings]
    if is_serious((*findings, *found.findings), fail_on):
        return _FINDINGS
    if unseen_of(snapshot) is not None or is_empty(found) or not is_complete(found):
        return 1
    return exit_code([each.life.diagnosis for each in found.stuck], fail_on)


def repeat(once: Callable[[], tuple[str, int]], *, watch: bool, until_well: bool = False) -> int:
    """Answer once; with --watch again and again, printing an answer that differs from the last.

    Args:
        once: gives an answer and its exit code.
        watch: go on.
        until_well: go on until the exit code is 0.
    """
    text, code = once()
    say(text)
    watch = watch and not (until_well and code == 0)
    if watch:
        gc.enable()
    while watch:
        time.sleep(_WATCH_S)
        again, code = once()
        if _timeless(again) != _timeless(text):
            say(f"\n--- {now_utc()}\n{again}")
        text = again
        watch = not (until_well and code == 0)
    return code


def _timeless(text: str) -> str:
    """Give an answer without the moments and ages in it, which differ at every look.

    Where an age is a digit longer, columns are wider and lines break elsewhere.
    """
    import re

    from rbdagent.diagnose.times import AGES

    return " ".join(AGES.sub("", re.sub(r"\d{4}-\d\d-\d\dT[\d:.]+Z", "", text)).split())


def has_colour() -> bool:
    """Tell whether the answer goes to a terminal that may show colours."""
    return sys.stdout.isatty() and not os.environ.get("NO_COLOR")


def say(text: str) -> None:
    """Print to stdout.

    Raises:
        RbdagentError: it cannot be written.
        BrokenPipeError: whoever read has gone.
    """
    try:
        click.echo(text, nl=False, color=has_colour())
    except BrokenPipeError:
        raise
    except OSError as error:
        raise RbdagentError(f"cannot write the answer: {error.strerror}") from error


def complain(text: str) -> None:
    """Print one line to stderr: what it quotes of others breaks none."""
    click.echo(shown(text), err=True)


def now_utc() -> str:
    """Give the time as ISO 8601 in UTC."""
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())


def moment() -> Moment:
    """Give the node's time: the wall clock's is shown, seconds since boot are reckoned with."""
    from rbdagent.model import Moment

    return Moment(at=now_utc(), uptime_s=time.clock_gettime(time.CLOCK_BOOTTIME))
