"""Where copies run: on hosts of a testbed (`uts-lab router`), which have no way out of this machine."""

import json
import os
import re
import shlex
import shutil
import subprocess
import sys
from dataclasses import asdict, dataclass
from pathlib import Path

from cases import Case, allocated_bytes, manifest, warm
from tools import SBIN, Place, Tool

# Of starting a testbed and a server, interrupting a copy and the disk, beside the copy itself.
SLACK_S = 120.0


@dataclass(frozen=True)
class Road:
    """A path between the two ends."""

    name: str
    says: str
    # Options of `uts-lab router run`; without, both ends are on one host.
    options: list[str]

    @property
    def is_loopback(self) -> bool:
        return not self.options


def both(rate: str, delay: str, buffer: str, more: str = "") -> list[str]:
    """Options of a path that is the same both ways."""
    return ["--both", f"rate={rate} delay={delay} buffer={buffer} {more}".strip()]


ROADS = {
    "loopback": Road("loopback", "loopback", []),
    "clean": Road(
        "clean",
        "100 Mbit/s, round trip 40 ms, a buffer of 500 kB, no loss",
        ["--both", "rate=100mbit delay=20ms buffer=500kB"],
    ),
    "lossy": Road(
        "lossy",
        "the same, and 1 % of the packets to the receiver are lost",
        ["--both", "rate=100mbit delay=20ms buffer=500kB", "--fwd", "loss=0.01"],
    ),
}


class Bed:
    """Runs programs one at a time, each in a testbed of its own: a server on one host, what measures on the other."""

    def __init__(self, lab: Path, work: Path, limit_s: float, tcp: str):
        self.lab, self.work, self.limit_s, self.tcp = lab, work, limit_s, tcp

    def clear(self) -> None:
        """Removes what an earlier run has left."""
        for left in ("go", "received", "status", "result.json", "server.log", "client.log"):
            (self.work / left).unlink(missing_ok=True)

    def measure(self, tool: Tool, road: Road, place: Place, seed: int, program: Path, first: str = "") -> dict:
        """What `program` writes as its result, with what is to be said of the testbed; or `error`.

        `first` is done on the server's host before the server starts.
        """
        host = 0 if road.is_loopback else 1
        control = "" if road.is_loopback else f"{self.congestion(host)} && "
        server = f"({control}{first}{tool.server(place)}) >{shlex.quote(str(self.work / 'server.log'))} 2>&1 </dev/null"
        command = [self.lab, "router", "run", *road.options, "--seed", str(seed), "--json"]
        command += ["--on", f"{host}:{server}", "--", sys.executable, str(program)]
        command += ["--client", str(self.work / "spec.json")]
        environment = os.environ | tool.environment(self.work)
        limit_s = self.limit_s * 2 + SLACK_S
        try:
            ran = subprocess.run(
                command, env=environment, capture_output=True, text=True, check=False, timeout=limit_s,
                stdin=subprocess.DEVNULL,
            )
        except subprocess.TimeoutExpired:
            return {"error": f"the testbed did not end within {limit_s:.0f} s"}
        written = self.work / "result.json"
        if not written.exists():
            return {"error": f"no result: {(ran.stderr or ran.stdout).strip()[-400:]}"}
        result = json.loads(written.read_text())
        if "error" in result:
            said = (self.work / "server.log").read_text(errors="replace").strip().splitlines()[-2:]
            result["server_said"] = re.sub(r"[^\x20-\x7e]", " ", " / ".join(said))[-300:]
        ending = next((line for line in reversed(ran.stderr.splitlines()) if line.startswith("{")), None)
        told = json.loads(ending) if ending else {"fidelity": {"is_valid": False, "why": ["not told"]}}
        fidelity = told["fidelity"]
        # What entered each path, and what became of it.
        result["paths"] = told.get("paths", [])
        if not fidelity["is_valid"]:
            result["path_not_kept"] = "; ".join(fidelity["why"])
        return result

    def congestion(self, host: int) -> str:
        """Gives a host's TCP its congestion control: by its route, as a namespace may not change its default to any."""
        link = f"10.77.0.0/24 dev eth0 proto kernel scope link src 10.77.0.{host + 1}"
        return f"PATH=$PATH:{SBIN} ip route change {link} congctl {shlex.quote(self.tcp)}"


class Bench(Bed):
    """Runs copies, each into an empty directory."""

    def __init__(self, lab: Path, work: Path, limit_s: float, tcp: str):
        super().__init__(lab, work, limit_s, tcp)
        self.hashes: dict[Path, dict[str, str]] = {}

    def run(self, tool: Tool, case: Case, road: Road, seed: int) -> dict:
        """One copy: `seconds` and `on_disk_seconds`; or `over_limit`; or `error`."""
        destination = self.work / "received-files"
        shutil.rmtree(destination, ignore_errors=True)
        destination.mkdir()
        address = "127.0.0.1" if road.is_loopback else "10.77.0.2"
        place = Place(self.work, destination, address, not road.is_loopback)
        self._write_spec(tool, case, place)
        warm(case)
        os.sync()
        result = self.measure(tool, road, place, seed, Path(__file__).parent)
        if "seconds" in result:
            result["allocated_bytes"] = allocated_bytes(destination)
            if manifest(destination, destination) != self._expected(case):
                result = {"error": "what arrived is not what was sent"}
        shutil.rmtree(destination)
        return result

    def _write_spec(self, tool: Tool, case: Case, place: Place) -> None:
        self.clear()
        spec = {
            "work": str(self.work),
            "destination": str(place.destination),
            "address": place.address,
            "ready": asdict(tool.ready(place)),
            "goes_at": tool.goes_at,
            "command": tool.client(case, place, goes_on=case.is_resumed),
            "first_command": tool.client(case, place, goes_on=False),
            "is_resumed": case.is_resumed,
            "content_bytes": case.content_bytes,
            "limit_s": self.limit_s,
            "setting": None if place.address == "127.0.0.1" else self.congestion(0),
        }
        (self.work / "spec.json").write_text(json.dumps(spec))

    def _expected(self, case: Case) -> dict[str, str]:
        if case.source not in self.hashes:
            self.hashes[case.source] = manifest(case.source, case.source.parent)
        return self.hashes[case.source]
