"""The player, on the host that receives: notes when each datagram comes, and writes it all down when it is told to."""

import json
import socket
import sys
import time
from pathlib import Path

from datagram import PLAY_PORT, read


def main(work: Path) -> None:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as port:
        port.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4 << 20)
        port.bind(("127.0.0.1", PLAY_PORT))
        port.settimeout(0.1)
        came: list[tuple[int, int, int]] = []
        while not (work / "over").exists():
            try:
                datagram = port.recv(65536)
            except TimeoutError:
                continue
            now = time.monotonic_ns()
            if (head := read(datagram)) is None:
                continue
            if not came:
                (work / "first").touch()
            came.append((*head, now))
    (work / "came.part").write_text(json.dumps(came))
    (work / "came.part").rename(work / "came.json")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
