"""One measured copy, on the host that sends. Reads what to do as JSON, writes what came of it as JSON."""

import json
import os
import signal
import socket
import subprocess
import time
from pathlib import Path

from cases import allocated_bytes

# A server that is not ready by then is not coming.
READY_S = 20.0
# How often the destination is looked at while a copy is to be interrupted.
LOOK_S = 0.002
# After an interruption both ends settle: what was under way arrives, and the server hears of it.
SETTLE_S = 1.0
# How long a receiver may take to end.
PEER_S = 10.0
# What counts as half, and how often that is tried.
HALF = (0.3, 0.75)
TRIES = 8


class Failed(Exception):
    """The copy did not do what it should: in words."""


def main(spec_path: str) -> None:
    spec = json.loads(Path(spec_path).read_text())
    work = Path(spec["work"])
    try:
        prepare(spec)
        result = _resume(spec, work) if spec["is_resumed"] else {}
        result |= _measure(spec, work)
    except Failed as failed:
        result = {"error": str(failed)}
    (work / "result.json").write_text(json.dumps(result))


def prepare(spec: dict) -> None:
    """Gives this host its settings, and waits for the server."""
    if spec["setting"]:
        done = subprocess.run(spec["setting"], shell=True, check=False, capture_output=True, text=True)
        if done.returncode != 0:
            raise Failed(f"{spec['setting']}: {done.stderr.strip()}")
    _await_server(spec)


def _await_server(spec: dict) -> None:
    wait, end = spec["ready"], time.monotonic() + READY_S
    while time.monotonic() < end:
        if wait["port"]:
            try:
                socket.create_connection((spec["address"], wait["port"]), timeout=1).close()
                return
            except OSError:
                pass
        elif Path(wait["file"]).exists() and wait["text"] in Path(wait["file"]).read_text(errors="replace"):
            return
        time.sleep(0.02)
    raise Failed(f"the server was not ready within {READY_S:.0f} s")


class Copy:
    """The client as a process, in a group of its own, and its peer where that is started for each copy."""

    def __init__(self, spec: dict, work: Path, command: list[str]):
        self.spec, self.work = spec, work
        for left in ("received", "peer"):
            (work / left).unlink(missing_ok=True)
        self.log = (work / "client.log").open("wb")
        self.process = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=self.log, stderr=subprocess.STDOUT, start_new_session=True
        )
        self.has_gone = spec["goes_at"] is None

    def poll(self) -> int | None:
        """The status once both ends have ended."""
        if not self.has_gone and self.spec["goes_at"] in self.said():
            (self.work / "go").touch()
            self.has_gone = True
        status = self.process.poll()
        if status is None or self.spec["goes_at"] is None or not self.has_gone:
            return status
        received = self.work / "received"
        return status or int(received.read_text()) if received.exists() else None

    def end_peer(self) -> None:
        """Ends a peer that was started for this copy, and waits for it."""
        if self.spec["goes_at"] is None or not self.has_gone:
            return
        end = time.monotonic() + PEER_S
        while not (self.work / "received").exists() and time.monotonic() < end:
            try:
                os.kill(int((self.work / "peer").read_text()), signal.SIGTERM)
            except (FileNotFoundError, ValueError, ProcessLookupError):
                pass  # It is just starting, or has just ended.
            time.sleep(0.1)

    def said(self) -> str:
        return (self.work / "client.log").read_text(errors="replace")

    def end(self, how: signal.Signals) -> None:
        """Ends the client's group, and waits for it."""
        try:
            os.killpg(self.process.pid, how)
            self.process.wait(timeout=10)
        except ProcessLookupError:
            pass
        except subprocess.TimeoutExpired:
            os.killpg(self.process.pid, signal.SIGKILL)
            self.process.wait()


def _measure(spec: dict, work: Path) -> dict:
    begun = time.monotonic()
    copy = Copy(spec, work, spec["command"])
    while (status := copy.poll()) is None:
        if time.monotonic() - begun > spec["limit_s"]:
            copy.end(signal.SIGKILL)
            return {"over_limit": True, "arrived_bytes": allocated_bytes(Path(spec["destination"]))}
        time.sleep(0.001)
    seconds = time.monotonic() - begun
    if status != 0:
        raise Failed(f"status {status}: {' / '.join(copy.said().strip().splitlines()[-3:])[-400:]}")
    subprocess.run(["sync", "-f", spec["destination"]], check=True)
    return {"seconds": seconds, "on_disk_seconds": time.monotonic() - begun}


def _resume(spec: dict, work: Path) -> dict:
    """Interrupts a copy at about half, as Ctrl-C does."""
    destination = Path(spec["destination"])
    for _ in range(TRIES):
        copy, begun = Copy(spec, work, spec["first_command"]), time.monotonic()
        has_ended = False
        while not has_ended and allocated_bytes(destination) < spec["content_bytes"] * 0.5:
            has_ended = copy.poll() is not None
            if time.monotonic() - begun > spec["limit_s"]:
                copy.end(signal.SIGKILL)
                raise Failed(f"half of it took longer than {spec['limit_s']:.0f} s")
            time.sleep(LOOK_S)
        copy.end(signal.SIGINT)
        copy.end_peer()
        time.sleep(SETTLE_S)
        there = allocated_bytes(destination)
        if HALF[0] < there / spec["content_bytes"] < HALF[1]:
            subprocess.run(["sync", "-f", spec["destination"]], check=True)
            return {"there_bytes": there}
        for left in destination.iterdir():
            left.unlink()
    raise Failed(f"could not be interrupted at half in {TRIES} tries")
