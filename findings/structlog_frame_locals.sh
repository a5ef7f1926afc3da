#!/bin/bash
# structlog 26.1.0: the JSON traceback of structlog.processors.dict_tracebacks prints local variables.
#
# dict_tracebacks is the processor that structlog's documentation combines with JSONRenderer for errors in
# production. Its ExceptionDictTransformer has show_locals=True by default, so that each frame of the
# traceback has a "locals" key with the repr of every local variable: a password that a function holds when
# a call below it fails is in the log, although no call logs it. logging.Formatter and
# structlog.processors.format_exc_info print no variables. Expected: no variables unless they are requested.
#
# Seen with structlog 26.1.0 and Python 3.11: the value of the variable is in the line, and with
# ExceptionDictTransformer(show_locals=False) it is not.
set -euo pipefail

temporary=$(mktemp -d)
trap 'rm -rf "$temporary"' EXIT
python3 -m venv "$temporary/venv"
"$temporary/venv/bin/pip" install --quiet --disable-pip-version-check structlog==26.1.0

seen=$("$temporary/venv/bin/python" - <<'PY'
import io

import structlog


def connect(key):
    raise OSError("refused")


def line(tracebacks):
    output = io.StringIO()
    log = structlog.wrap_logger(
        structlog.PrintLogger(output),
        processors=[tracebacks, structlog.processors.JSONRenderer()],
    )
    try:
        connect("a-local-value")
    except OSError:
        log.exception("failed")
    return output.getvalue()


plain = structlog.processors.ExceptionRenderer(
    structlog.tracebacks.ExceptionDictTransformer(show_locals=False)
)
print("default:", "a-local-value" in line(structlog.processors.dict_tracebacks))
print("show_locals=False:", "a-local-value" in line(plain))
PY
)
expected='default: True
show_locals=False: False'
echo "$seen"
[ "$seen" = "$expected" ] || { echo "structlog behaves otherwise now; expected:"; echo "$expected"; exit 1; }
