"""What carries live media: `uts media` and what people use in its place, each encrypted and given the same latency."""

import re
import shlex
import subprocess
from pathlib import Path

from datagram import FEED_PORT, PLAY_PORT
from tools import UTS_PORT, Place, Tool, Uts, Wait

SRT_PORT = 9710
RIST_PORT = 1968
SECRET = "a-secret-of-both-ends"
FEED, PLAY = f"udp://127.0.0.1:{FEED_PORT}", f"udp://127.0.0.1:{PLAY_PORT}"
NAME = "stream"
# The host that sends.
HERE_ADDRESS = "10.77.0.1"


class Program(Tool):
    """A program at each end of the path; `says` is what it is. The latency is set for each run."""

    latency_ms = 120

    def start(self, place: Place) -> list[str]:
        """The command of the host that sends, which runs until it is ended."""
        raise NotImplementedError

    def ready(self, place: Place) -> Wait:
        return Wait(file=str(place.work / "server.log"), text="here")


class UtsMedia(Program, Uts):
    """The sender is beyond the path, and server and receiver are on one host."""

    name = "uts media"
    says = "UDP, TLS 1.3, AEAD; the path leads from the sender to the server"
    begins = '"event":"start"'

    def prepare(self, work: Path) -> None:
        super().prepare(work)
        shown = []
        for key in ("uts-sender.pem", "uts-receiver.pem"):
            subprocess.run([self.program, "keygen", work / key], check=True, capture_output=True)
            command = [self.program, "fingerprint", work / key]
            said = subprocess.run(command, check=True, capture_output=True, text=True).stdout
            shown += [word for word in said.split() if word.startswith("SHA256:")]
        (work / "uts-keys").write_text("".join(f"{one} client\n" for one in shown))

    def _serve(self, place: Place, address: str) -> list[str]:
        keys = ["--authorized-keys", str(place.work / "uts-keys"), "--key", str(place.work / "uts-key.pem")]
        return [self.program, "serve", "--media", "--listen", f"{address}:{UTS_PORT}", "--json", *keys]

    def _end(self, place: Place, way: str, address: str) -> list[str]:
        url = f"uts://{address}:{UTS_PORT}/{NAME}"
        own = ["--pin", self.pin, "--key", str(place.work / ("uts-sender.pem" if way == "send" else "uts-receiver.pem"))]
        ends = [FEED, url] if way == "send" else [url, PLAY]
        return [self.program, "media", way, *own, "--latency", f"{self.latency_ms}ms", *ends]

    def server(self, place: Place) -> str:
        log = shlex.quote(str(place.work / "serve.log"))
        serve = f"{shlex.join(self._serve(place, place.address))} >{log} 2>&1 &"
        begun = f"until grep -qs '{self.begins}' {log}; do sleep 0.05; done; echo here"
        return f"{serve} {begun}; exec {shlex.join(self._end(place, 'recv', place.address))}"

    def start(self, place: Place) -> list[str]:
        return self._end(place, "send", place.address)


class UtsMediaOut(UtsMedia):
    """Sender and server are on one host, and the receiver is beyond the path."""

    name = "uts media, out"
    says = "the same; the path leads from the server to the receiver"

    def server(self, place: Place) -> str:
        return f"echo here; exec {shlex.join(self._end(place, 'recv', HERE_ADDRESS))}"

    def start(self, place: Place) -> list[str]:
        log = shlex.quote(str(place.work / "serve.log"))
        serve = f"{shlex.join(self._serve(place, HERE_ADDRESS))} >{log} 2>&1 & trap 'trap - TERM; kill 0' TERM"
        begun = f"until grep -qs '{self.begins}' {log}; do sleep 0.05; done"
        return ["sh", "-c", f"{serve}; {begun}; {shlex.join(self._end(place, 'send', HERE_ADDRESS))} & wait $!"]


def version_of(library: str, form: str, said: subprocess.CompletedProcess) -> str:
    found = re.search(form, said.stdout + said.stderr)
    return f"{library} {found[1] if found else 'of unknown version'}"


class Srt(Program):
    name = "SRT"
    needs = ["srt-live-transmit"]
    says = "UDP, AES-128-CTR by a passphrase, not authenticated; srt-live-transmit with its defaults"

    def missing(self) -> str | None:
        why = super().missing()
        return f"{why} (Debian: apt install srt-tools)" if why else None

    def version(self) -> str:
        said = subprocess.run(["srt-live-transmit", "-version"], capture_output=True, text=True, check=False)
        return version_of("libsrt", r"SRT Library version: ([0-9.]+)", said)

    def _options(self) -> str:
        return f"latency={self.latency_ms}&pbkeylen=16&passphrase={SECRET}"

    def server(self, place: Place) -> str:
        at = f"srt://{place.address}:{SRT_PORT}?mode=listener&{self._options()}"
        return f"echo here; exec {shlex.join(['srt-live-transmit', '-chunk:1316', at, PLAY])}"

    def start(self, place: Place) -> list[str]:
        to = f"srt://{place.address}:{SRT_PORT}?mode=caller&{self._options()}"
        return ["srt-live-transmit", "-chunk:1316", FEED, to]


class Rist(Program):
    name = "RIST"
    needs = ["ristsender", "ristreceiver"]
    says = "UDP, main profile, AES-128-CTR by a secret, not authenticated; librist's programs with their defaults"

    def missing(self) -> str | None:
        why = super().missing()
        return f"{why} (Debian: apt install rist-tools)" if why else None

    def version(self) -> str:
        said = subprocess.run(["ristsender", "-h"], capture_output=True, text=True, check=False)
        return version_of("librist", r"libRIST library: ([0-9.]+)", said)

    def _options(self) -> str:
        return f"aes-type=128&secret={SECRET}&buffer={self.latency_ms}"

    def server(self, place: Place) -> str:
        at = f"rist://@{place.address}:{RIST_PORT}?{self._options()}"
        return f"echo here; exec {shlex.join(['ristreceiver', '-p', '1', '-i', at, '-o', PLAY])}"

    def start(self, place: Place) -> list[str]:
        at = FEED.replace("udp://", "udp://@")
        return ["ristsender", "-p", "1", "-i", at, "-o", f"rist://{place.address}:{RIST_PORT}?{self._options()}"]
