"""All cases against the stock programs."""

import os
import time
import traceback

from . import breaches, cases, malformed, vectors
from .stock import Failure, Home, Server


def main(options):
    """Runs the cases whose names have `options.only` in them; 0 if all went as the pages say."""
    began, failed, count = time.monotonic(), 0, 0
    home = Home(options.program)
    number, wrong = vectors.main()
    print(f"{number - len(wrong)} of {number} vectors hold")
    for line in wrong:
        print(f"FAILED  {line}")
    failed += len(wrong)
    servers = {}

    def server(*arguments):
        key = arguments
        if key not in servers or not servers[key].lives():
            servers[key] = Server(home, *arguments)
        return servers[key]

    try:
        for name, case in cases.all_cases() + breaches.all_cases() + malformed.all_cases():
            if options.only and options.only not in name:
                continue
            count += 1
            begin = time.monotonic()
            try:
                case(home, server)
                for running in servers.values():
                    if not running.lives():
                        raise Failure(f"the stock server has ended: {running.lines[-3:]}")
                said = "ok    "
            except Failure as failure:
                failed, said = failed + 1, f"FAILED  {failure}:"
            except Exception:  # A fault of ours is one as well, and hides no other case.
                failed, said = failed + 1, f"FAILED  {traceback.format_exc()}"
            if said != "ok    " or os.environ.get("UTS_INTEROP_VERBOSE"):
                print(f"{said} {name} ({time.monotonic() - begin:.2f} s)", flush=True)
    finally:
        for running in servers.values():
            running.stop()
    print(f"{count} cases, {failed} failed, {time.monotonic() - began:.1f} s")
    return 1 if failed else 0
