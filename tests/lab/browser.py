"""A headless Chromium, driven over a pipe: it shows how a browser renders a page.

DevTools protocol on descriptors 3 and 4, a NUL after each message
(https://chromium.googlesource.com/chromium/src/+/main/content/browser/devtools/devtools_pipe_handler.cc).
"""

from __future__ import annotations

import base64
import contextlib
import json
import os
import select
import subprocess
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from tests.lab.errors import LabError

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

Json = dict[str, Any]

_PATIENCE_S: Final = 120.0
_FLAGS: Final = (
    "--no-sandbox",  # root has no sandbox; it opens nothing but our own pages
    "--remote-debugging-pipe",
    "--disable-gpu",
    "--hide-scrollbars",
    "--force-color-profile=srgb",
    "--font-render-hinting=none",
)


@dataclass
class Browser:
    """A running browser."""

    to_it: int
    from_it: int
    events: list[Json] = field(default_factory=list)
    _read: bytes = b""
    _calls: int = 0

    def call(self, method: str, session: str = "", **parameters: object) -> Json:
        """Call a method and wait for its answer; ``events`` keeps what happens meanwhile.

        Raises:
            LabError: it failed, or the browser does not answer.
        """
        self._calls += 1
        message: Json = {"id": self._calls, "method": method, "params": parameters}
        if session:
            message["sessionId"] = session
        os.write(self.to_it, json.dumps(message).encode() + b"\0")
        answer = self._until("id", self._calls)
        if "error" in answer:
            raise LabError(f"{method}: {answer['error']['message']}")
        result: Json = answer["result"]
        return result

    def wait_for(self, event: str) -> None:
        """Wait until an event has happened; it may have happened before."""
        if not any(message["method"] == event for message in self.events):
            self._until("method", event)

    def _until(self, key: str, value: object) -> Json:
        deadline = time.monotonic() + _PATIENCE_S
        while True:
            message = self._next(deadline)
            if "method" in message:
                self.events.append(message)
            if message.get(key) == value:
                return message

    def _next(self, deadline: float) -> Json:
        while b"\0" not in self._read:
            left = max(deadline - time.monotonic(), 0)
            if not select.select([self.from_it], [], [], left)[0]:
                raise LabError(f"no message of the browser for {_PATIENCE_S:.0f} s")
            some = os.read(self.from_it, 1 << 20)
            if not some:
                raise LabError("the browser has ended")
            self._read += some
        text, _, self._read = self._read.partition(b"\0")
        message: Json = json.loads(text)
        return message


@dataclass(frozen=True)
class Tab:
    """A page as the browser shows it."""

    browser: Browser
    session: str

    def call(self, method: str, **parameters: object) -> Json:
        """Call a method for this page."""
        return self.browser.call(method, self.session, **parameters)

    def value(self, expression: str) -> Any:  # noqa: ANN401 - whatever it evaluates to
        """Evaluate an expression of JavaScript in the page.

        Raises:
            LabError: it throws.
        """
        result = self.call("Runtime.evaluate", expression=expression, returnByValue=True)
        if "exceptionDetails" in result:
            raise LabError(f"{expression}: {result['result']['description']}")
        return result["result"].get("value")

    def happened(self, event: str) -> list[Json]:
        """Return the parameters of each event of a kind."""
        return [
            message["params"]
            for message in self.browser.events
            if message["method"] == event and message.get("sessionId") == self.session
        ]

    def like(self, *, dark: bool, media: str = "") -> None:
        """Set the colour scheme and the medium."""
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        self.call("Emulation.setEmulatedMedia", media=media, features=[scheme])

    def picture(self, *, height: int | None = None) -> bytes:
        """Return the page as PNG: all of it, or its upper part."""
        size = self.call("Page.getLayoutMetrics")["cssContentSize"]
        clip = {"x": 0, "y": 0, "width": size["width"], "scale": 1}
        clip["height"] = min(height or size["height"], size["height"])
        shot = self.call("Page.captureScreenshot", captureBeyondViewport=True, clip=clip)
        return base64.b64decode(shot["data"])

    def printed(self) -> bytes:
        """Return the page as PDF, as a user prints it."""
        return base64.b64decode(self.call("Page.printToPDF", preferCSSPageSize=True)["data"])


@contextlib.contextmanager
def browser(directory: Path) -> Iterator[Browser]:
    """Run a browser that keeps all its files below a directory."""
    its_in, to_it = os.pipe()
    from_it, its_out = os.pipe()
    # A shell moves the descriptors to where the browser looks for them.
    shell = f'exec "$@" 3<&{its_in} 4>&{its_out}'
    command = ["chromium-headless-shell", *_FLAGS, f"--user-data-dir={directory}/profile"]
    with (directory / "browser.log").open("wb") as log:
        child = subprocess.Popen(
            ["bash", "-c", shell, "bash", *command, "about:blank"],
            pass_fds=(its_in, its_out),
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            env={**os.environ, "HOME": str(directory)},
        )
    os.close(its_in)
    os.close(its_out)
    try:
        yield Browser(to_it, from_it)
    finally:
        # The browser ends when the other end of the pipe is closed.
        os.close(to_it)
        os.close(from_it)
        with contextlib.suppress(subprocess.TimeoutExpired):
            child.wait(timeout=20)
        child.kill()
        child.wait()


@contextlib.contextmanager
def opened(
    running: Browser, path: Path, *, width: int, height: int = 900, dark: bool = False
) -> Iterator[Tab]:
    """Open a file with such a screen and a light or dark colour scheme."""
    target = running.call("Target.createTarget", url="about:blank")["targetId"]
    attached = running.call("Target.attachToTarget", targetId=target, flatten=True)
    tab = Tab(running, attached["sessionId"])
    for domain in ("Page", "Runtime", "Log", "Network"):
        tab.call(f"{domain}.enable")
    tab.call("Emulation.setDeviceMetricsOverride", width=width, height=height,
        deviceScaleFactor=1, mobile=False)  # fmt: skip
    tab.like(dark=dark)
    running.events.clear()
    tab.call("Page.navigate", url=path.as_uri())
    running.wait_for("Page.loadEventFired")
    yield tab
    running.call("Target.closeTarget", targetId=target)
