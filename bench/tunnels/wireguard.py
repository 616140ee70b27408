"""One end of WireGuard in user space: starts it, gives it its keys and addresses, and ends with it."""

import json
import os
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

WIREGUARD_PORT = 51820
# Inside: the client is .1, the server .2.
INSIDE = "10.99.0"
READY_S = 10.0


def main(program: str, work: str, which: str, server: str, tcp: str) -> int:
    is_server = which == "server"
    keys = json.loads(Path(work, "wireguard.json").read_text())
    interface, other = ("wg1", "client") if is_server else ("wg0", "server")
    # Neither end may find the other's sockets, nor those of an earlier run.
    control = Path("/run/wireguard", f"{interface}.sock")
    control.unlink(missing_ok=True)
    environment = os.environ | {"LOG_LEVEL": "error"}
    running = subprocess.Popen([program, "-f", interface], env=environment)
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: running.terminate())
    # The protocol of its socket: https://www.wireguard.com/xplatform/.
    lines = ["set=1", f"private_key={keys[which]['private']}"]
    if is_server:
        lines.append(f"listen_port={WIREGUARD_PORT}")
    lines += [f"public_key={keys[other]['public']}", f"allowed_ip={INSIDE}.{1 if is_server else 2}/32"]
    if not is_server:
        lines += [f"endpoint={server}:{WIREGUARD_PORT}"]
    answer = ask(control, "\n".join(lines) + "\n\n")
    if "errno=0" not in answer:
        print(f"wireguard: {answer.strip()}", file=sys.stderr)
        running.kill()
        return 1
    own = f"{INSIDE}.{2 if is_server else 1}"
    commands = [
        f"addr add {own}/24 dev {interface}",
        f"link set {interface} up",
        # The TCP inside has the congestion control that TCP outside has.
        f"route change {INSIDE}.0/24 dev {interface} proto kernel scope link src {own} congctl {tcp}",
    ]
    for command in commands:
        subprocess.run(["ip", *command.split()], check=True)
    print("ready", flush=True)
    return running.wait()


def ask(control: Path, request: str) -> str:
    end = time.monotonic() + READY_S
    while True:
        try:
            with socket.socket(socket.AF_UNIX) as asking:
                asking.connect(str(control))
                asking.sendall(request.encode())
                return asking.recv(4096).decode()
        except OSError as why:
            if time.monotonic() > end:
                return str(why)
            time.sleep(0.02)


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
