"""Output formats, writing to stdout and stderr, and exit codes."""

from __future__ import annotations

import contextlib
import functools
import gc
import os
import sys
import time
from collections.abc import Generator
from typing import TYPE_CHECKING, Any, Final

import click
from click.core import ParameterSource

from rbdagent.commands import PROGRAM
from rbdagent.errors import RbdagentError, SourceError
from rbdagent.parse.excerpt import shortened
from rbdagent.parse.shown import in_json, shown, shown_lines

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    import yaml
    from msgspec import Struct

    from rbdagent.cli.progress import Counter
    from rbdagent.collect.parallel import Awaited
    from rbdagent.model import BootTime, ClusterReport, Diagnosis, Severity, Snapshot
    from rbdagent.report.text.layout import Layout


SEVERITIES: Final = ("info", "warning", "error", "critical")
"""The severities of findings, in ascending order, as --fail-on takes them."""
FINDINGS: Final = 3
"""The exit code for findings at or above --fail-on."""
_WATCH_S: Final = 5.0
_LEAST_WIDTH: Final = 40


Parts = Generator[str, None, int]
"""An output in parts: the texts in their order, and the exit code as the generator's result."""


def data_text(data: Struct | Sequence[Struct] | dict[str, Any], output: str) -> str:
    """Return an output as JSON or YAML; control and invisible characters are escaped.

    Args:
        data: of the types in ``report/json``, or a JSON Schema.
        output: ``json`` or ``yaml``.
    """
    import msgspec

    if output == "json":
        return in_json(msgspec.json.format(msgspec.json.encode(data), indent=2).decode()) + "\n"
    return _yaml(msgspec.to_builtins(data))


def data_parts(document: Struct, items: Iterable[Struct], output: str) -> Iterator[str]:
    """Yield an output item by item, in the form of :func:`data_text`; nothing without an item.

    If the items cannot be read to their end, the document is closed before the error is raised: its
    ``complete`` is false.

    Args:
        document: the output without its items. Its last keys are ``items`` and ``complete``.
        items: are read while the output is written.
        output: as in :func:`data_text`.
    """
    from msgspec.structs import replace

    before, between, after = _frame(document, output)
    is_begun = False
    try:
        for item in items:
            yield (between if is_begun else before) + _item_text(item, output)
            is_begun = True
    except Exception:
        if is_begun:
            yield _frame(replace(document, complete=False), output)[-1]
        raise
    if is_begun:
        yield after


def _frame(document: Struct, output: str) -> tuple[str, str, str]:
    """Return the text before, between and after the items of an output without items."""
    before, _, after = data_text(document, output).partition("[]")
    if output == "json":
        return f"{before}[", ",", f"\n  ]{after}"
    return f"{before.rstrip()}\n", "", after.removeprefix("\n")


def _item_text(item: Struct, output: str) -> str:
    if output == "json":
        return "\n    " + data_text(item, output).rstrip("\n").replace("\n", "\n    ")
    return data_text((item,), output)


def _yaml(data: object) -> str:
    """Return data as YAML; a text that needs escapes is quoted, with Python's escapes."""
    import yaml

    document = yaml.dump(data, Dumper=_dumper(), sort_keys=False, allow_unicode=True, width=100)
    return shown_lines(document)


@functools.cache
def _dumper() -> type[yaml.SafeDumper]:
    """Return the YAML writer that quotes texts that are not printable.

    Otherwise a line break in a text would become a line break of the document, and PyYAML treats
    direction marks as printable (yaml.emitter, analyze_scalar).
    """
    import yaml

    class Dumper(yaml.SafeDumper):
        """Quotes texts that are not printable."""

    def text_node(dumper: yaml.SafeDumper, text: str) -> yaml.Node:
        style = None if text.isprintable() else '"'
        return dumper.represent_scalar("tag:yaml.org,2002:str", text, style=style)

    Dumper.add_representer(str, text_node)
    return Dumper


def exit_code(diagnoses: Sequence[Diagnosis], fail_on: str) -> int:
    """Return 3 for findings, and 1 for "undetermined", which a script must not treat as success.

    A claim that was observed and has no volume yet is a complete result: no client can hold it.
    """
    from rbdagent.model import Verdict

    if is_serious((one.severity for diagnosis in diagnoses for one in diagnosis.findings), fail_on):
        return FINDINGS
    unknown = (diagnosis for diagnosis in diagnoses if diagnosis.verdict is Verdict.UNDETERMINED)
    return int(not all(_has_no_volume(diagnosis) for diagnosis in unknown))


def _has_no_volume(diagnosis: Diagnosis) -> bool:
    claim = diagnosis.volume.claim
    return (
        claim is not None
        and claim.phase == "Pending"
        and claim.volume_name is None
        and diagnosis.volume.image is None
        and diagnosis.volume.persistent_volume is None
        and not diagnosis.holders
    )


def is_serious(severities: Iterable[Severity], fail_on: str) -> bool:
    """Return whether one of the severities is at least that of --fail-on."""
    least = SEVERITIES.index(fail_on)
    return any(SEVERITIES.index(str(severity)) >= least for severity in severities)


def exit_code_of_list(found: ClusterReport, snapshot: Snapshot, fail_on: str) -> int:
    """Return the exit code for all stuck objects; 1 also if the observation is incomplete."""
    from rbdagent.lifecycle.cluster_report import is_complete, is_empty, missing_objects_reason

    findings = [finding for affected in found.stuck for finding in affected.life.findings]
    if is_serious((one.severity for one in (*findings, *found.findings)), fail_on):
        return FINDINGS
    if missing_objects_reason(snapshot) is not None or is_empty(found) or not is_complete(found):
        return 1
    return exit_code([affected.life.diagnosis for affected in found.stuck], fail_on)


def repeat(
    once: Callable[[], tuple[str, int]],
    *,
    watch: bool,
    until_well: bool = False,
    with_io: bool = False,
) -> int:
    """Print the output; with --watch, repeat and print each output that differs from the last.

    Args:
        once: returns the output and its exit code.
        watch: repeat.
        until_well: stop repeating when the exit code is 0.
        with_io: an output with other counts of I/O in JSON or YAML is another output.
    """

    def parts() -> Parts:
        text, code = once()
        yield text
        return code

    return repeat_parts(parts, watch=watch, until_well=until_well, with_io=with_io)


def repeat_parts(
    once: Callable[[], Parts], *, watch: bool, until_well: bool = False, with_io: bool = True
) -> int:
    """Print each part of the output when it is known; with --watch, repeat as :func:`repeat` does.

    A repeated output is printed when all of it is known. Until then it is kept compressed, because
    the list of a large cluster would fill the memory.

    The first output must succeed. Later, a source that cannot be observed does not end the
    repetition, whatever its error is: an API server that has just started may answer 403 before it
    has read the bindings (kubernetes/kubernetes#121635), and 404 for a custom resource
    (kubernetes/kubernetes#115241).
    """
    if not watch:
        return _passed(once(), print_text)
    from rbdagent.cli.kept_output import KeptOutput
    from rbdagent.parse.digests import sha256

    last = sha256()
    code = _passed(once(), print_text, _timeless_to(last.update, with_io=with_io))
    gc.enable()
    while not (until_well and code == 0):
        time.sleep(_WATCH_S)
        output, digest = KeptOutput(), sha256()
        try:
            code = _passed(once(), output.add, _timeless_to(digest.update, with_io=with_io))
        except SourceError as error:
            complain(f"rbdagent: not refreshed at {now_utc()}: {shortened(str(error))}")
            continue
        if digest.digest() != last.digest():
            print_text(f"\n--- {now_utc()}\n")
            for text in output.texts():
                print_text(text)
        last = digest
    return code


def _timeless_to(update: Callable[[bytes], None], *, with_io: bool) -> Callable[[str], None]:
    """Return a function that passes a part of an output to a digest, as :func:`_timeless` has it.

    A space replaces the white space between two parts, which is removed.
    """
    return lambda text: update(f"{_timeless(text if with_io else _without_io(text))} ".encode())


def _without_io(text: str) -> str:
    """Return an output without the counts of I/O in its JSON or YAML (``Io`` of json/holders.py).

    Every volume in use has I/O all the time: with the counts, each output would differ.
    """
    import re

    in_yaml = re.sub(r"^( +)io:\n(?:\1 +\S.*\n)+", "", text, flags=re.MULTILINE)
    return re.sub(r'"io": \{[^{}]*\}', "", in_yaml)


def _passed(parts: Parts, *receivers: Callable[[str], None]) -> int:
    """Pass each part of an output to the receivers; return the exit code."""
    with contextlib.closing(parts):
        while True:
            try:
                text = next(parts)
            except StopIteration as end:
                return int(end.value)
            for receive in receivers:
                receive(text)


def _timeless(text: str) -> str:
    """Return output without its timestamps and ages, which differ in every observation.

    White space is normalised, because an age with one more digit widens columns and moves line
    breaks.
    """
    import re

    from rbdagent.verdicts.timing import AGES

    return " ".join(re.sub(AGES, "", re.sub(r"\d{4}-\d\d-\d\dT[\d:.]+Z", "", text)).split())


def layout_of(output: str = "table") -> Layout:
    """Return the layout of text: that of the terminal, as flags and environment change it."""
    import shutil

    from rbdagent.report.text.layout import Layout

    return Layout(
        width=max(shutil.get_terminal_size().columns, _LEAST_WIDTH),
        colour=has_colour(),
        details=output == "wide" or bool(_flag("verbose")),
        program=program(),
        cluster_flags=_cluster_flags(),
    )


def _cluster_flags() -> dict[str, tuple[str, ...]]:
    """Return what the command line chose, by program: printed commands are to ask the same."""
    kube = (*_typed("--kubeconfig", "kubeconfig"), *_typed("--context", "context"))
    conf, user = _typed("--ceph-conf", "ceph_conf"), _typed("--ceph-id", "ceph_id")
    of_ceph = (*(("--conf", conf[1]) if conf else ()), *(("--id", user[1]) if user else ()))
    return {"rbdagent": (*kube, *conf, *user), "kubectl": kube, "ceph": of_ceph, "rbd": of_ceph}


def _typed(flag: str, name: str) -> tuple[str, ...]:
    """Return a flag and its value if they are on the command line of the verb."""
    context = click.get_current_context(silent=True)
    if context is None or context.get_parameter_source(name) is not ParameterSource.COMMANDLINE:
        return ()
    return flag, str(context.params[name])


def program() -> tuple[str, ...]:
    """Return the words with which the reader starts rbdagent."""
    return tuple(os.environ.get("RBDAGENT_PROGRAM", "").split()) or PROGRAM


def _flag(name: str) -> object:
    """Return the value of a flag for text; None if it was not given, or outside of a verb."""
    context = click.get_current_context(silent=True)
    return None if context is None else context.meta.get(name)


def _parameter(name: str) -> object:
    """Return the value of a parameter of the verb; None if the verb does not have it."""
    context = click.get_current_context(silent=True)
    return None if context is None else context.params.get(name)


def has_colour() -> bool:
    """Return whether the output has colours.

    --color decides, then NO_COLOR (no-color.org), then FORCE_COLOR (force-color.org), then whether
    stdout is a terminal that can show them.
    """
    if (mode := _flag("color")) in {"always", "never"}:
        return mode == "always"
    if os.environ.get("NO_COLOR"):
        return False
    is_able = sys.stdout.isatty() and os.environ.get("TERM") != "dumb"
    return bool(os.environ.get("FORCE_COLOR")) or is_able


def print_text(text: str) -> None:
    """Print to stdout.

    Raises:
        RbdagentError: stdout cannot be written.
        BrokenPipeError: the reader has closed the pipe.
    """
    try:
        click.echo(text, nl=False, color=has_colour())
    except BrokenPipeError:
        raise
    except OSError as error:
        raise RbdagentError(f"cannot write the answer: {error.strerror}") from error


def complain(text: str) -> None:
    """Print one line to stderr; line breaks in quoted text are escaped."""
    click.echo(shown(text), err=True)


def progress(total_s: float) -> contextlib.AbstractContextManager[Callable[[Awaited], None]]:
    """Return a context that shows on a terminal what it waits for, if it waits long.

    It yields a function that receives the list of the awaited sources. It draws by a signal, so it
    needs the main thread.

    Args:
        total_s: the overall deadline.
    """
    if not sys.stderr.isatty():
        return contextlib.nullcontext(lambda _: None)
    from rbdagent.cli.progress import shown_progress

    return shown_progress(total_s, once=_is_plain_line())


def counting() -> contextlib.AbstractContextManager[Counter]:
    """Return a context that shows on a terminal how many nodes it has read, if it takes long."""
    from rbdagent.cli.progress import Counter, shown_count

    if not sys.stderr.isatty():
        return contextlib.nullcontext(Counter())
    return shown_count(once=_is_plain_line())


def _is_plain_line() -> bool:
    """Return whether the progress is one plain line, which a terminal need not erase."""
    # A line that is rewritten would mix with the lines of --debug.
    return os.environ.get("TERM") == "dumb" or bool(_parameter("debug"))


def now_utc() -> str:
    """Return the time as ISO 8601 in UTC."""
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())


def moment() -> BootTime:
    """Return the node's time: the wall clock for output, seconds since boot for computation."""
    from rbdagent.model import BootTime

    return BootTime(at=now_utc(), uptime_s=time.clock_gettime(time.CLOCK_BOOTTIME))
