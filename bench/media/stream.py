"""The camera, on the host that sends: a transport stream of a constant rate. Reads what to do as JSON, writes what came of it.

Each datagram has a number and the time at which it was made. All hosts of a testbed have one clock.
"""

import json
import os
import signal
import socket
import subprocess
import time
from pathlib import Path

from client import Failed, prepare
from datagram import DATAGRAM_BYTES, FEED_PORT, HEADER, PACKET_BYTES, stamp

# A program that has carried nothing by then does not.
READY_S = 30.0
# From the first datagram that has come until it is measured: mechanisms settle, and clocks agree.
WARM_S = 5.0
# What was sent last has come by then, or will not.
DRAIN_S = 2.0
# The player has written what it has noted by then.
PLAYER_S = 20.0
# A datagram that is behind its time by more was held up by this host, and is told.
LATE_S = 0.005


def main(spec_path: str) -> None:
    spec = json.loads(Path(spec_path).read_text())
    work = Path(spec["work"])
    try:
        prepare(spec)
        result = carry(spec, work)
    except Failed as failed:
        result = {"error": str(failed)}
    (work / "result.json").write_text(json.dumps(result))


def carry(spec: dict, work: Path) -> dict:
    with (work / "client.log").open("wb") as log:
        running = subprocess.Popen(
            spec["command"], stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True
        )
    try:
        sent, begin, end, late = feed(spec, work, running)
    finally:
        if running.poll() is None:
            running.send_signal(signal.SIGTERM)
        try:
            running.wait(timeout=10)
        except subprocess.TimeoutExpired:
            os.killpg(running.pid, signal.SIGKILL)
            running.wait()
        (work / "over").touch()
    limit = time.monotonic() + PLAYER_S
    while not (work / "came.json").exists():
        if time.monotonic() > limit:
            raise Failed(f"the player wrote nothing within {PLAYER_S:.0f} s")
        time.sleep(0.05)
    came = json.loads((work / "came.json").read_text())
    delays: dict[int, float] = {}
    twice = 0
    for number, sent_ns, came_ns in came:
        if begin <= number < end:
            twice += number in delays
            delays.setdefault(number, (came_ns - sent_ns) / 1e6)
    numbers = [number for number, _, _ in came if begin <= number < end]
    return {
        "sent": end - begin,
        "sent_since_first": sent,
        "sent_late": late,
        "twice": twice,
        "out_of_order": sum(after < before for before, after in zip(numbers, numbers[1:])),
        "delays_ms": [round(delay, 3) for delay in delays.values()],
    }


def feed(spec: dict, work: Path, running: subprocess.Popen) -> tuple[int, int, int, int]:
    """Sends datagrams until the end; gives how many since the first has come, the first that is measured and the one behind
    the last, and how many were late."""
    gap_s = DATAGRAM_BYTES * 8 / spec["rate_bps"]
    # What cannot be compressed, as that of a camera.
    body = bytearray(os.urandom(DATAGRAM_BYTES))
    for at in range(0, DATAGRAM_BYTES, PACKET_BYTES):
        body[at : at + len(HEADER)] = HEADER
    began = time.monotonic()
    number, first, late, begin, end = 0, 0, 0, None, None
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as port:
        port.connect(("127.0.0.1", FEED_PORT))
        while end is None or number < end:
            due = began + number * gap_s
            wait_s = due - time.monotonic()
            if wait_s > 0:
                time.sleep(wait_s)
            elif begin is not None and -wait_s > LATE_S:
                late += 1
            body[3] = body[3] & 0xF0 | number & 0xF
            stamp(body, number, time.monotonic_ns())
            try:
                port.send(body)
            except OSError:
                pass  # The program does not listen yet.
            number += 1
            if begin is None and number % 64 == 0:
                if (work / "first").exists():
                    first, begin = number, number + int(WARM_S / gap_s)
                    end = begin + int(spec["seconds"] / gap_s)
                elif running.poll() is not None or time.monotonic() - began > READY_S:
                    said = (work / "client.log").read_text(errors="replace").strip().splitlines()
                    raise Failed(f"it carries nothing: {' / '.join(said[-2:])[-300:]}")
    time.sleep(DRAIN_S)
    if running.poll() is not None:
        raise Failed(f"it ended with status {running.returncode}")
    return number - first, begin, end, late
