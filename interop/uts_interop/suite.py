"""All cases against the stock programs, in processes side by side."""

import os
import subprocess
import sys
import time
import traceback

from . import breaches, cases, malformed, torture, vectors
from .stock import Failure, Home, Server


def main(options):
    """Runs the cases whose names have `options.only` in them; 0 if all went as the pages say."""
    if options.part is not None:
        return part(options)
    began = time.monotonic()
    number, wrong = vectors.main()
    print(f"{number - len(wrong)} of {number} vectors hold")
    for line in wrong:
        print(f"FAILED  {line}")
    again = [sys.executable, "-m", "uts_interop", "suite", options.program, "--jobs", str(options.jobs)]
    again += ["--only", options.only] if options.only else []
    parts = [subprocess.Popen([*again, "--part", str(n)], stdout=subprocess.PIPE, text=True) for n in range(options.jobs)]
    count, failed = 0, len(wrong)
    for running in parts:
        said, _ = running.communicate()
        *lines, last = said.splitlines() or [""]
        print("\n".join(lines), end="\n" if lines else "")
        numbers = last.split()
        if running.returncode not in (0, 1) or len(numbers) != 2:
            print(f"FAILED  a part of the suite ended with {running.returncode}: {last}")
            numbers = 0, 1
        count, failed = count + int(numbers[0]), failed + int(numbers[1])
    print(f"{count} cases, {failed} failed, {time.monotonic() - began:.1f} s")
    return 1 if failed or not count else 0


class Servers:
    """Stock servers by their options, started when they are first wanted."""

    def __init__(self, home):
        self.home, self.running = home, {}

    def __call__(self, *options):
        if options not in self.running or not self.running[options].lives():
            self.running[options] = Server(self.home, *options)
        return self.running[options]

    def check(self):
        for server in self.running.values():
            if not server.lives():
                raise Failure(f"the stock server has ended: {server.lines[-3:]}")

    def stop(self):
        for server in self.running.values():
            server.stop()


def part(options):
    """Every `jobs`-th case; the last line has how many ran and how many failed."""
    failed = count = 0
    servers = Servers(Home(options.program))
    try:
        everything = cases.all_cases() + breaches.all_cases() + malformed.all_cases() + torture.all_cases()
        wanted = [c for c in everything if not options.only or options.only in c[0]]
        for name, case in wanted[options.part :: options.jobs]:
            count, begin = count + 1, time.monotonic()
            try:
                case(servers.home, servers)
                servers.check()
                said = "ok    "
            except Failure as failure:
                failed, said = failed + 1, f"FAILED  {failure}:"
            except Exception:  # A fault of ours is one as well, and hides no other case.
                failed, said = failed + 1, f"FAILED  {traceback.format_exc()}"
            if said != "ok    " or os.environ.get("UTS_INTEROP_VERBOSE"):
                print(f"{said} {name} ({time.monotonic() - begin:.2f} s)", flush=True)
    finally:
        servers.stop()
    print(count, failed)
    return 1 if failed else 0
