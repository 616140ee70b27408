"""What is done through a tunnel, on the client's host. Reads what to do as JSON, writes what came of it as JSON."""

import json
import random
import signal
import socket
import statistics
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from client import Failed, prepare
from services import ECHO, FILE, OBJECT_BYTES, OBJECTS, STREAM

# A tunnel that carries nothing by then does not.
READY_S = 30.0
# The download fills the tunnel before the first key is pressed.
FILL_S = 3.0
# Between two keys, in seconds.
KEY_S = (0.05, 0.1)
# A connection in which nothing has moved for that long is broken, though its ends may not know.
LATE_S = 20.0
# Connections of a page at once, as browsers have them for one host.
AT_ONCE = 6
PAGE_OBJECTS = 100
# Address of the client, how often it changes, and how long before a change a page is asked for.
HOST = "10.77.0.1"
CHANGE_S = 5.0
BEFORE_S = 0.3


def main(spec_path: str) -> None:
    spec = json.loads(Path(spec_path).read_text())
    result: dict = {}
    try:
        prepare(spec)
        with addresses(spec["moves"]) as changes:
            for work in spec["works"]:
                with tunnel(spec) as host:
                    result[work] = WORKS[work](spec, host, changes)
    except Failed as failed:
        result["error"] = str(failed)
    (Path(spec["work"]) / "result.json").write_text(json.dumps(result))


@contextmanager
def tunnel(spec: dict) -> Iterator[str]:
    """A tunnel that carries; gives the address at which services are met."""
    with (Path(spec["work"]) / "client.log").open("ab") as log:
        running = subprocess.Popen(
            spec["command"], stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True
        )
    try:
        end = time.monotonic() + READY_S
        while True:
            try:
                with connect(spec["meets"], ECHO, 5.0) as asking:
                    asking.sendall(b"?")
                    if asking.recv(1) == b"?":
                        break
            except OSError:
                pass
            if running.poll() is not None or time.monotonic() > end:
                said = (Path(spec["work"]) / "client.log").read_text(errors="replace").strip().splitlines()
                raise Failed(f"it carries nothing: {' / '.join(said[-2:])[-300:]}")
            time.sleep(0.05)
        yield spec["meets"]
    finally:
        if running.poll() is None:
            running.send_signal(signal.SIGTERM)
        try:
            running.wait(timeout=10)
        except subprocess.TimeoutExpired:
            running.kill()
            running.wait()


def connect(host: str, port: int, timeout_s: float) -> socket.socket:
    made = socket.create_connection((host, port), timeout=timeout_s)
    made.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return made


class Changes:
    """When the address of this host changes."""

    def __init__(self) -> None:
        self.next_s: float | None = None
        self.count = 0

    def await_next(self) -> None:
        """Waits until the address is about to change, if it does."""
        if self.next_s is None:
            return
        wait_s = self.next_s - BEFORE_S - time.monotonic()
        time.sleep(wait_s if wait_s > 0 else wait_s + CHANGE_S)


@contextmanager
def addresses(moves: bool) -> Iterator[Changes]:
    """This host has another address every few seconds, and never an old one again."""
    changes, over = Changes(), threading.Event()
    if not moves:
        yield changes
        return
    changes.next_s = time.monotonic() + CHANGE_S

    def change() -> None:
        before = HOST
        while not over.wait(max(0.0, changes.next_s - time.monotonic())):
            after = f"10.77.0.{11 + changes.count % 240}"
            batch = f"addr del {before}/24 dev eth0\naddr add {after}/24 broadcast 10.77.0.255 dev eth0\n"
            subprocess.run(["ip", "-batch", "-"], input=batch, text=True, check=False, capture_output=True)
            before, changes.count, changes.next_s = after, changes.count + 1, changes.next_s + CHANGE_S

    mover = threading.Thread(target=change)
    mover.start()
    try:
        yield changes
    finally:
        over.set()
        mover.join()


def keystrokes(spec: dict, host: str, _: Changes) -> dict:
    """A byte now and then, echoed, while a download fills the same tunnel."""
    got, over = [0], threading.Event()

    def download() -> None:
        try:
            with connect(host, STREAM, LATE_S) as end:
                while not over.is_set() and (data := end.recv(1 << 18)):
                    got[0] += len(data)
        except OSError:
            pass  # The echo tells.

    loading = threading.Thread(target=download, daemon=True)
    loading.start()
    time.sleep(FILL_S)
    source, gaps = random.Random(spec["seed"]), []
    while sum(gaps) < spec["keys_s"]:
        gaps.append(source.uniform(*KEY_S))
    sent: list[float] = []
    came: list[float] = []

    def listen(end: socket.socket) -> None:
        try:
            while len(came) < len(gaps) and (data := end.recv(4096)):
                came.extend([time.monotonic()] * len(data))
        except OSError:
            pass  # What has not come is counted.

    begun, before = time.monotonic(), got[0]
    try:
        with connect(host, ECHO, LATE_S) as end:
            listening = threading.Thread(target=listen, args=(end,), daemon=True)
            listening.start()
            at = time.monotonic()
            for gap in gaps:
                at += gap
                time.sleep(max(0.0, at - time.monotonic()))
                sent.append(time.monotonic())
                end.sendall(b"k")
            typed_s = time.monotonic() - begun
            listening.join(LATE_S)
            over.set()
            end.shutdown(socket.SHUT_RDWR)
            listening.join()
    except OSError:
        pass
    finally:
        over.set()
        loading.join(LATE_S)
    if len(came) < len(gaps):
        return {"broken": f"{len(came)} of {len(gaps)} keys were echoed"}
    waits = sorted(echo - key for key, echo in zip(sent, came))
    return {
        "p50_ms": 1e3 * statistics.median(waits),
        "p99_ms": 1e3 * waits[int(len(waits) * 0.99)],
        "max_ms": 1e3 * waits[-1],
        "keys": len(waits),
        "download_mbps": (got[0] - before) * 8e-6 / typed_s,
    }


def page(spec: dict, host: str, changes: Changes) -> dict:
    """Small objects, each over a connection of its own, some at once."""
    left, broken, lock = list(range(PAGE_OBJECTS)), [], threading.Lock()

    def fetch() -> None:
        while True:
            with lock:
                if not left or broken:
                    return
                left.pop()
            try:
                with connect(host, OBJECTS, LATE_S) as end:
                    end.sendall(b"?")
                    if (count := read_all(end)) != OBJECT_BYTES:
                        raise OSError(f"{count} bytes of an object of {OBJECT_BYTES}")
            except OSError as why:
                broken.append(str(why))

    changes.await_next()
    begun = time.monotonic()
    fetching = [threading.Thread(target=fetch) for _ in range(AT_ONCE)]
    for one in fetching:
        one.start()
    for one in fetching:
        one.join()
    if broken:
        return {"broken": f"{broken[0]}; {len(left)} objects were left"}
    return {"seconds": time.monotonic() - begun}


def read_all(end: socket.socket) -> int:
    count = 0
    while data := end.recv(1 << 16):
        count += len(data)
    return count


def file(spec: dict, host: str, changes: Changes) -> dict:
    """A file, or as much of it as comes within the limit."""
    changes.await_next()
    begun, count = time.monotonic(), 0
    heard, left_s = begun, spec["limit_s"]
    try:
        with connect(host, FILE, left_s) as end:
            while (left_s := begun + spec["limit_s"] - time.monotonic()) > 0:
                end.settimeout(min(left_s, LATE_S))
                if not (data := end.recv(1 << 18)):
                    break
                count, heard = count + len(data), time.monotonic()
    except OSError as why:
        # At the limit a wait ends as well: what comes slowly has come shortly before.
        silent_s = time.monotonic() - heard
        if time.monotonic() - begun < spec["limit_s"] or silent_s > LATE_S / 2:
            return {"broken": f"after {count / 1e6:.1f} MB, silent for {silent_s:.0f} s: {why}"}
    seconds = time.monotonic() - begun
    if seconds < spec["limit_s"] and count != spec["file_bytes"]:
        return {"broken": f"it ends after {count / 1e6:.0f} MB"}
    return {"mbps": count * 8e-6 / seconds, "seconds": seconds, "bytes": count}


WORKS: dict[str, Callable[[dict, str, Changes], dict]] = {"keystrokes": keystrokes, "page": page, "file": file}
