"""The tools that copy, each as its users call it and with its own encryption."""

import os
import secrets
import shlex
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path

from cases import Case

SSH_PORT = 2222
UTS_PORT = 4433
CROC_PORTS = range(9009, 9014)
# Where Debian has sshd, which is not on the search path of ordinary users.
SBIN = "/usr/sbin:/sbin"


@dataclass(frozen=True)
class Place:
    """Where a run happens."""

    work: Path
    destination: Path
    # The server's address, and whether the path to it is slower than compression.
    address: str
    is_narrow: bool


@dataclass(frozen=True)
class Wait:
    """How the client knows that the server is ready: a TCP port that is open, or a file that says something."""

    port: int | None = None
    file: str | None = None
    text: str | None = None


class Tool:
    """A tool. `needs` are its programs; `apart` says what it does or leaves out that others do not, by case."""

    name = ""
    needs: list[str] = []
    says = ""
    apart: dict[str, str] = {}
    # Whether an interrupted copy goes on from what is there.
    resumes = True
    # What the client says when its peer may begin, where that is started for each copy.
    goes_at: str | None = None

    def find(self, program: str) -> str | None:
        return shutil.which(program, path=f"{os.environ.get('PATH', '')}:{SBIN}")

    def missing(self) -> str | None:
        """Why it cannot be measured, if so."""
        absent = [program for program in self.needs if not self.find(program)]
        return f"{' and '.join(absent)} not found" if absent else None

    def version(self) -> str:
        raise NotImplementedError

    def prepare(self, work: Path) -> None:
        """Makes keys and settings, once."""

    def server(self, place: Place) -> str:
        """The command of the host that receives, for the shell."""
        raise NotImplementedError

    def ready(self, place: Place) -> Wait:
        raise NotImplementedError

    def client(self, case: Case, place: Place, goes_on: bool) -> list[str]:
        """The command of the host that sends. `goes_on`: after an interruption."""
        raise NotImplementedError

    def environment(self, work: Path) -> dict[str, str]:
        """What client and server find in their environment beside the usual."""
        return {"HOME": str(work), "XDG_CONFIG_HOME": str(work)}


def _first_line(command: list[str]) -> str:
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=30)
    lines = (done.stdout + done.stderr).strip().splitlines()
    return lines[0].strip() if lines else "of unknown version"


class Uts(Tool):
    name = "uts cp"
    says = "UDP, TLS 1.3 with an Ed25519 key that is pinned"
    apart = {
        "one": "hashes at both ends, synchronises the file to the disk and renames it",
        "many": "hashes at both ends, synchronises each file to the disk and renames it",
        "half": "hashes the half that is there at both ends before it goes on",
    }

    def __init__(self, program: Path):
        self.program = str(program)
        self.pin = ""

    def missing(self) -> str | None:
        return None if Path(self.program).exists() else f"{self.program} not found; cargo build --release"

    def version(self) -> str:
        return _first_line([self.program, "--version"])

    def prepare(self, work: Path) -> None:
        key = work / "uts-key.pem"
        subprocess.run([self.program, "keygen", key], check=True, capture_output=True)
        said = subprocess.run([self.program, "fingerprint", key], check=True, capture_output=True, text=True)
        self.pin = next(word for word in said.stdout.split() if word.startswith("SHA256:"))

    def server(self, place: Place) -> str:
        return (
            f"exec {shlex.quote(self.program)} serve --dir {shlex.quote(str(place.destination))}"
            f" --writable --anyone --listen {place.address}:{UTS_PORT}"
            f" --key {shlex.quote(str(place.work / 'uts-key.pem'))} --json"
        )

    def ready(self, place: Place) -> Wait:
        return Wait(file=str(place.work / "server.log"), text='"event":"start"')

    def client(self, case: Case, place: Place, goes_on: bool) -> list[str]:
        recursive = ["-r"] if case.is_directory else []
        target = f"uts://{place.address}:{UTS_PORT}/"
        return [self.program, "cp", "-q", *recursive, "--pin", self.pin, str(case.source), target]


class Ssh(Tool):
    """What sshd serves. The server's key and the user's are made for the run, and nobody else's files are read."""

    needs = ["ssh", "sshd", "ssh-keygen"]

    def __init__(self, cipher: str | None):
        self.cipher = cipher

    def openssh(self) -> str:
        return _first_line(["ssh", "-V"])

    def prepare(self, work: Path) -> None:
        if (work / "ssh_config").exists():
            return
        for key in ("host_key", "user_key"):
            command = ["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(work / key)]
            subprocess.run(command, check=True, stdin=subprocess.DEVNULL)
        host_key = (work / "host_key.pub").read_text()
        (work / "authorized").write_text((work / "user_key.pub").read_text())
        (work / "ssh_hosts").write_text(f"receiver {host_key}")
        cipher = f"Ciphers {self.cipher}\n" if self.cipher else ""
        (work / "sshd_config").write_text(
            f"Port {SSH_PORT}\nHostKey {work}/host_key\nAuthorizedKeysFile {work}/authorized\nPidFile none\n"
            f"StrictModes no\nUsePAM no\nPasswordAuthentication no\nKbdInteractiveAuthentication no\n"
            f"PermitRootLogin prohibit-password\nSubsystem sftp internal-sftp\n{cipher}"
        )
        (work / "ssh_config").write_text(
            f"Host *\nPort {SSH_PORT}\nHostKeyAlias receiver\nUserKnownHostsFile {work}/ssh_hosts\n"
            f"GlobalKnownHostsFile /dev/null\nIdentityFile {work}/user_key\nIdentitiesOnly yes\n"
            f"BatchMode yes\nStrictHostKeyChecking yes\n{cipher}"
        )

    def server(self, place: Place) -> str:
        config = shlex.quote(str(place.work / "sshd_config"))
        # The hosts of a testbed have mounts of their own: this /run is theirs, and ends with them.
        room = "mount -t tmpfs tmpfs /run && mkdir -p /run/sshd; " if os.geteuid() == 0 else ""
        return f"{room}exec {shlex.quote(self.find('sshd') or 'sshd')} -D -e -f {config}"

    def ready(self, place: Place) -> Wait:
        return Wait(port=SSH_PORT)


class Scp(Ssh):
    name = "scp"
    resumes = False
    needs = [*Ssh.needs, "scp"]
    says = "over ssh: TCP, its default cipher unless --cipher names one"
    apart = {
        "one": "does not hash; leaves the file to the page cache",
        "many": "asks and waits for each file several times; leaves the files to the page cache",
        "sparse": "sends holes as zeros and writes them",
        "half": "cannot go on: sends all again",
    }

    def version(self) -> str:
        return self.openssh()

    def client(self, case: Case, place: Place, goes_on: bool) -> list[str]:
        recursive = ["-r"] if case.is_directory else []
        target = f"{place.address}:{place.destination}/"
        return ["scp", "-q", "-p", *recursive, "-F", str(place.work / "ssh_config"), str(case.source), target]


class Rsync(Ssh):
    name = "rsync"
    needs = [*Ssh.needs, "rsync"]
    says = "over ssh, as scp"
    apart = {
        "one": "hashes at both ends; leaves the file to the page cache",
        "many": "as with one file",
        "sparse": "-S: sends holes as zeros (compressed, -z, where the path is narrow) and makes them again",
        "half": "--append-verify: sends the rest, then hashes all at both ends (without it: compares block by block)",
    }

    def version(self) -> str:
        return f"{' '.join(_first_line(['rsync', '--version']).split()[:3])}, {self.openssh()}"

    def client(self, case: Case, place: Place, goes_on: bool) -> list[str]:
        options = ["-a"]
        if case.name == "sparse":
            options += ["-S", "-z"] if place.is_narrow else ["-S"]
        if case.is_resumed:
            options += ["--append-verify"] if goes_on else ["--partial"]
        ssh = f"ssh -F {shlex.quote(str(place.work / 'ssh_config'))}"
        target = f"{place.address}:{place.destination}/"
        return ["rsync", *options, "-e", ssh, str(case.source), target]


class Croc(Tool):
    name = "croc"
    needs = ["croc"]
    says = "TCP on four connections through its own relay, which runs beside the receiver; PAKE, AES-GCM"
    apart = {
        "one": "compresses (to no use here); hashes before and after; both ends have to be started for each copy",
        "many": "as with one file",
        "sparse": "sends holes as zeros, compressed",
        "half": "looks for what is missing in the file that is there",
    }
    goes_at = "Code is"

    def __init__(self, program: str):
        self.program = program
        self.needs = [program]
        self.code = f"{secrets.randbelow(9000) + 1000}-copy-bench-{secrets.token_hex(4)}"

    def missing(self) -> str | None:
        why = super().missing()
        return f"{why}; with Go: go install github.com/schollz/croc/v10@latest" if why else None

    def version(self) -> str:
        # Not started here: it looks for its public relay whenever it starts, and only hosts of a testbed have no way out.
        if not shutil.which("go"):
            return "croc of unknown version (Go would tell)"
        command = ["go", "version", "-m", self.find(self.program) or ""]
        said = subprocess.run(command, capture_output=True, text=True, check=False)
        lines = [line.split() for line in said.stdout.splitlines()]
        found = [words[2] for words in lines if len(words) > 2 and words[0] == "mod"]
        return f"croc {found[0]}" if found else "croc of unknown version"

    def environment(self, work: Path) -> dict[str, str]:
        return {**super().environment(work), "CROC_CONFIG_DIR": str(work), "CROC_SECRET": self.code}

    def server(self, place: Place) -> str:
        program, work = shlex.quote(self.find(self.program) or self.program), shlex.quote(str(place.work))
        ports = ",".join(str(port) for port in CROC_PORTS)
        receive = (
            f"{program} --yes --overwrite --ignore-stdin --relay {place.address}:{CROC_PORTS[0]}"
            f" --out {shlex.quote(str(place.destination))}"
        )
        return (
            f"{program} relay --host {place.address} --ports {ports} & "
            f"while :; do until [ -e {work}/go ]; do sleep 0.01; done; rm {work}/go; "
            f"{receive} & echo $! >{work}/peer; wait $!; "
            f"echo $? >{work}/status; mv {work}/status {work}/received; done"
        )

    def ready(self, place: Place) -> Wait:
        return Wait(port=CROC_PORTS[-1])

    def client(self, case: Case, place: Place, goes_on: bool) -> list[str]:
        relay = f"{place.address}:{CROC_PORTS[0]}"
        quiet = ["--ignore-stdin", "--disable-clipboard"]
        return [self.find(self.program) or self.program, *quiet, "--relay", relay, "send", "--no-local", str(case.source)]
