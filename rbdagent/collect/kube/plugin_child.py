"""A program that runs a kubeconfig's exec plugin, or refreshes a token, with the client library.

It leads a separate process group, so that rbdagent can end a plugin that hangs with all its
children. It reads the request as JSON, writes the credentials as JSON, and imports nothing from
rbdagent.
"""

from __future__ import annotations

import contextlib
import json
import logging
import os
import signal
import sys
from pathlib import Path


def _end_group(*_: object) -> None:
    os.killpg(0, signal.SIGKILL)


def main() -> None:
    """Answer one request: ``path`` (of imports), ``files``, ``context`` and ``limit_s``."""
    request = json.load(sys.stdin)
    # rbdagent kills a group that hangs. If rbdagent was killed, this timer does.
    signal.signal(signal.SIGALRM, _end_group)
    signal.setitimer(signal.ITIMER_REAL, request["limit_s"])
    sys.path[:] = request["path"]
    # The loader logs the plugin's output, which may be a secret, and continues without credentials.
    logging.disable(logging.CRITICAL)
    with contextlib.redirect_stdout(sys.stderr):
        answer = _loaded(request["files"], request["context"])
    json.dump(answer, sys.stdout)


def _loaded(files: list[str], context: str) -> dict[str, object]:
    from kubernetes import client, config

    configuration = client.Configuration()
    config.load_kube_config(
        config_file=os.pathsep.join(files),
        context=context,
        client_configuration=configuration,
        persist_config=False,
    )
    # The key of the loader is BearerToken from 36.0.1 on, and authorization before (pull request
    # 2585 of kubernetes-client/python). auth_settings() of 36.0.0 has neither (issue 2582 there).
    keys = configuration.api_key
    header = keys.get("BearerToken") or keys.get("authorization") or ""
    # The loader writes a certificate to files, which it removes when this program ends.
    cert = [configuration.cert_file, configuration.key_file]
    return {
        "token": header.removeprefix("Bearer ") or None,
        "cert": [Path(path).read_text() for path in cert] if all(cert) else None,
    }


if __name__ == "__main__":
    main()
