"""What carries: `uts tunnel` and what people use in its place, each as its users call it and with its own encryption."""

import json
import os
import secrets
import shlex
import subprocess
import sys
from pathlib import Path

from services import PORTS
from tools import SBIN, UTS_PORT, Place, Ssh, Tool, Uts, Wait
from wireguard import INSIDE

HERE = Path(__file__).parent
KCP_PORT = 4000


class Carrier(Tool):
    """A tool that carries connections; `says` is what it is."""

    # Where the services of the server are found on the client's host.
    meets = "127.0.0.1"

    def start(self, place: Place) -> list[str]:
        """The command of the client, which runs until it is ended."""
        raise NotImplementedError


class UtsTunnel(Carrier, Uts):
    name = "uts tunnel"
    says = "UDP, TLS 1.3 with Ed25519 keys of both ends"

    def prepare(self, work: Path) -> None:
        super().prepare(work)
        key = work / "uts-client.pem"
        subprocess.run([self.program, "keygen", key], check=True, capture_output=True)
        said = subprocess.run([self.program, "fingerprint", key], check=True, capture_output=True, text=True)
        shown = next(word for word in said.stdout.split() if word.startswith("SHA256:"))
        (work / "uts-keys").write_text(f"{shown} client\n")

    def server(self, place: Place) -> str:
        permits = " ".join(f"--forward {port}" for port in PORTS)
        return (
            f"exec {shlex.quote(self.program)} serve {permits} --listen {place.address}:{UTS_PORT} --json"
            f" --authorized-keys {shlex.quote(str(place.work / 'uts-keys'))}"
            f" --key {shlex.quote(str(place.work / 'uts-key.pem'))}"
        )

    def start(self, place: Place) -> list[str]:
        leads = [word for port in PORTS for word in ("-L", f"{port}:127.0.0.1:{port}")]
        keys = ["--pin", self.pin, "--key", str(place.work / "uts-client.pem")]
        return [self.program, "tunnel", *keys, *leads, f"{place.address}:{UTS_PORT}"]


class SshTunnel(Carrier, Ssh):
    name = "ssh -L"
    says = "TCP, its default cipher"

    def version(self) -> str:
        return self.openssh()

    def start(self, place: Place) -> list[str]:
        leads = [word for port in PORTS for word in ("-L", f"{port}:127.0.0.1:{port}")]
        config = str(place.work / "ssh_config")
        return ["ssh", "-4", "-N", "-o", "ExitOnForwardFailure=yes", "-F", config, *leads, place.address]


class Built(Carrier):
    """A rival that `make bench-tunnel` builds, if Go is there."""

    program = ""
    module = ""

    def __init__(self, rivals: Path):
        self.rivals = rivals
        self.path = str(rivals / self.program)

    def missing(self) -> str | None:
        if Path(self.path).exists():
            return super().missing()
        why = self.rivals / "why"
        return why.read_text().strip() if why.exists() else f"{self.program} is not in {self.rivals}"

    def version(self) -> str:
        said = subprocess.run(["go", "version", "-m", self.path], capture_output=True, text=True, check=False)
        for words in map(str.split, said.stdout.splitlines()):
            if len(words) > 2 and words[0] in ("dep", "mod") and words[1] == self.module:
                return f"{self.module} {words[2]}"
        return f"{self.module} of unknown version"


class Kcp(Built):
    name = "kcp + smux"
    program = "tunnels"
    module = "github.com/xtaci/kcp-go/v5"
    says = "UDP: what kcptun is made of, with its default settings (mode fast, FEC 10+3, AES)"
    key = secrets.token_hex(16)

    def server(self, place: Place) -> str:
        return f"exec {shlex.quote(self.path)} serve {place.address}:{KCP_PORT} {self.key}"

    def ready(self, place: Place) -> Wait:
        return Wait(file=str(place.work / "server.log"), text="ready")

    def start(self, place: Place) -> list[str]:
        return [self.path, "lead", f"{place.address}:{KCP_PORT}", self.key, *map(str, PORTS)]


class WireGuard(Built):
    name = "WireGuard"
    program = "wireguard"
    module = "golang.zx2c4.com/wireguard"
    says = "UDP, in user space (wireguard-go); the programs' own TCP, each connection by itself, runs inside"
    needs = ["openssl", "ip"]
    meets = f"{INSIDE}.2"

    def __init__(self, rivals: Path, tcp: str):
        super().__init__(rivals)
        self.tcp = tcp

    def missing(self) -> str | None:
        if why := super().missing():
            return why
        return None if os.access("/dev/net/tun", os.W_OK) else "/dev/net/tun is not there for this user"

    def prepare(self, work: Path) -> None:
        keys = {}
        for end in ("client", "server"):
            made = subprocess.run(
                ["openssl", "genpkey", "-algorithm", "x25519", "-outform", "DER"], check=True, capture_output=True
            ).stdout
            public = subprocess.run(
                ["openssl", "pkey", "-inform", "DER", "-pubout", "-outform", "DER"],
                input=made, check=True, capture_output=True,
            ).stdout
            # A key is at the end of each (RFC 8410 section 4 and 7).
            keys[end] = {"private": made[-32:].hex(), "public": public[-32:].hex()}
        (work / "wireguard.json").write_text(json.dumps(keys))

    def _end(self, place: Place, which: str) -> list[str]:
        own = [sys.executable, str(HERE / "wireguard.py")]
        return [*own, self.path, str(place.work), which, place.address, self.tcp]

    def server(self, place: Place) -> str:
        # Its sockets are at a fixed place: this /run is the testbed's, and ends with it.
        room = "mount -t tmpfs tmpfs /run && " if os.geteuid() == 0 else ""
        return f"{room}PATH=$PATH:{SBIN} exec {shlex.join(self._end(place, 'server'))}"

    def ready(self, place: Place) -> Wait:
        return Wait(file=str(place.work / "server.log"), text="ready")

    def start(self, place: Place) -> list[str]:
        return self._end(place, "client")
