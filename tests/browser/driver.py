"""A browser without a window, driven over a pipe (Chrome DevTools Protocol): no server, no port, no driver program."""

import json
import os
import select
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, Self

Json = dict[str, Any]

PATIENCE = 60.0
"""Seconds after which an answer is not waited for any longer."""
ENTER = """
import os, sys
for given, high in zip(sys.argv[1:3], (90, 91)):
    os.dup2(int(given), high)
os.dup2(90, 3)
os.dup2(91, 4)
os.closerange(5, 92)
os.execv(sys.argv[3], sys.argv[3:])
"""
"""The browser reads from 3 and writes to 4, whichever numbers the pipes have here."""
QUIET = (
    "--headless",
    "--disable-gpu",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-dev-shm-usage",
    "--disable-extensions",
    "--disable-sync",
    "--hide-scrollbars",
    "--no-first-run",
    "--remote-debugging-pipe",
)


def found() -> str | None:
    """Return Debian's chromium if it is installed and can be started."""
    program = shutil.which("chromium")
    if program is None:
        return None
    answer = subprocess.run([program, "--version"], capture_output=True, check=False)
    return program if answer.returncode == 0 else None


class Browser:
    """One page at a time; ``said`` and ``requested`` are what it did since it was opened."""

    def __init__(self, program: str, folder: Path) -> None:
        """Start ``program`` with a profile of its own in ``folder``."""
        down_read, self._down = os.pipe()
        self._up, up_write = os.pipe()
        root = ["--no-sandbox"] if os.geteuid() == 0 else []
        command = [program, *QUIET, *root, f"--user-data-dir={folder}", "about:blank"]
        self._process = subprocess.Popen(
            [sys.executable, "-c", ENTER, str(down_read), str(up_write), *command],
            pass_fds=(down_read, up_write),
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        os.close(down_read)
        os.close(up_write)
        self._buffer = b""
        self._number = 0
        self._session: str | None = None
        self._target = ""
        self.events: list[Json] = []

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._session = None
        try:
            self.call("Browser.close")
        finally:
            os.close(self._down)
            os.close(self._up)
            self._process.wait(PATIENCE)

    def call(self, method: str, **params: object) -> Json:
        """Send a command and return its answer; events that come in between are kept."""
        self._number += 1
        message: Json = {"id": self._number, "method": method, "params": params}
        if self._session:
            message["sessionId"] = self._session
        os.write(self._down, json.dumps(message).encode() + b"\0")
        while True:
            answer = self._read()
            if answer.get("id") == self._number:
                assert "error" not in answer, (method, answer)
                result: Json = answer["result"]
                return result
            self.events.append(answer)

    def _read(self) -> Json:
        while b"\0" not in self._buffer:
            ready, _, _ = select.select([self._up], [], [], PATIENCE)
            assert ready, "the browser does not answer"
            some = os.read(self._up, 1 << 20)
            assert some, "the browser went away"
            self._buffer += some
        text, _, self._buffer = self._buffer.partition(b"\0")
        found: Json = json.loads(text)
        return found

    def until(self, method: str) -> None:
        """Wait for an event."""
        while not any(event.get("method") == method for event in self.events):
            self.events.append(self._read())

    def open(self, url: str, *, width: int = 1280, script: bool = True, dark: bool = False) -> None:
        """Open a page in a new tab and wait until it is loaded."""
        old, self._session = self._target, None
        self._target = self.call("Target.createTarget", url="about:blank")["targetId"]
        if old:
            self.call("Target.closeTarget", targetId=old)
        self._session = self.call("Target.attachToTarget", targetId=self._target, flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Log", "Network", "Accessibility", "DOM"):
            self.call(f"{domain}.enable")
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        self.call("Emulation.setEmulatedMedia", features=[scheme])
        self.call("Emulation.setDeviceMetricsOverride", width=width, height=900, deviceScaleFactor=1, mobile=False)
        self.call("Emulation.setScriptExecutionDisabled", value=not script)
        self.events.clear()
        self.call("Page.navigate", url=url)
        self.until("Page.loadEventFired")
        if script:
            self.ask("new Promise(done => requestAnimationFrame(() => requestAnimationFrame(() => done(1))))")

    def ask(self, expression: str) -> Any:  # noqa: ANN401 - whatever the page answers
        """Return the value of an expression on the page."""
        answer = self.call("Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=True)
        assert "exceptionDetails" not in answer, (expression, answer)
        return answer["result"].get("value")

    def press(self, key: str, code: int) -> None:
        """Press and release a key."""
        for kind in ("keyDown", "keyUp"):
            self.call("Input.dispatchKeyEvent", type=kind, key=key, code=key, windowsVirtualKeyCode=code)

    def write(self, text: str) -> None:
        """Type a text where the focus is."""
        self.call("Input.insertText", text=text)

    def _heard(self, method: str, pick: Callable[[Json], str]) -> list[str]:
        return [pick(event["params"]) for event in self.events if event.get("method") == method]

    @property
    def said(self) -> list[str]:
        """Return the messages on the console: errors, warnings, refusals, anything else."""
        return [
            *self._heard("Runtime.consoleAPICalled", lambda one: str(one["args"])),
            *self._heard("Runtime.exceptionThrown", lambda one: str(one["exceptionDetails"])),
            *self._heard("Log.entryAdded", lambda one: str(one["entry"]["text"])),
        ]

    @property
    def requested(self) -> list[str]:
        """Return the addresses that were asked for, that of the page included."""
        return self._heard("Network.requestWillBeSent", lambda one: str(one["request"]["url"]))

    def tree(self) -> list[Json]:
        """Return the nodes that a screen reader gets, in its order: role, name, properties; none that is ignored."""
        found = self.call("Accessibility.getFullAXTree")["nodes"]
        by_id = {node["nodeId"]: node for node in found}
        nodes, waiting = [], [found[0]]
        while waiting:
            node = waiting.pop()
            nodes.append(node)
            waiting += [by_id[one] for one in reversed(node.get("childIds", [])) if one in by_id]
        return [
            {
                "role": node["role"]["value"],
                "name": node.get("name", {}).get("value", ""),
                **{one["name"]: one["value"].get("value") for one in node.get("properties", ())},
            }
            for node in nodes
            if not node["ignored"]
        ]
