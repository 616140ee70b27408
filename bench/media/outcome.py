"""What was measured, as figures and tables."""

import statistics

# Beyond latency and way, a datagram that comes by then is in time: programs wake up late, and SRT looks every 10 ms.
GRACE_MS = 20.0
# A cell is as good as the best within this.
SAME = 0.02
# Datagrams that were sent late are told from this share.
LATE = 0.02


def figures(run: dict, latency_ms: int, way_ms: float) -> dict:
    """Of one run: shares in time and arrived, delays, and bytes that entered the path, both ways, by bytes of media."""
    delays = sorted(run["delays_ms"])
    limit_ms = latency_ms + way_ms + GRACE_MS
    share = sum(delay <= limit_ms for delay in delays) / run["sent"]
    found = {"in_time": share, "arrived": len(delays) / run["sent"], "wire": run.get("wire")}
    for name, part in (("p50_ms", 0.5), ("p99_ms", 0.99)):
        found[name] = delays[min(len(delays) - 1, int(len(delays) * part))] if delays else None
    return found


def summary(runs: list[dict], latency_ms: int, way_ms: float) -> dict:
    """Medians and spread of what went well, and what did not."""
    good = [figures(run, latency_ms, way_ms) for run in runs if "error" not in run]
    found: dict = {"n": len(good), "failed": [run["error"] for run in runs if "error" in run]}
    for name in ("in_time", "arrived", "p50_ms", "p99_ms", "wire"):
        values = [one[name] for one in good if one[name] is not None]
        if values:
            found[name] = {"median": statistics.median(values), "min": min(values), "max": max(values)}
    return found


def table(results: list[dict]) -> str:
    """The results of one path and latency: a row for each program, shares in time as good as the best marked."""
    head = f"{'':15} {'in time':>24} {'arrived':>10} {'delay p50':>10} {'p99':>8} {'on the wire':>12}"
    shares = [r["summary"]["in_time"]["median"] for r in results if "in_time" in r["summary"]]
    best = max(shares, default=0.0)
    return "\n".join([head, *(row(result, best) for result in results)])


def row(result: dict, best: float) -> str:
    found = result["summary"]
    if not found["n"]:
        return f"{result['tool']:15} failed: {found['failed'][-1]}{said(result)}"
    share = found["in_time"]
    mark = "*" if share["median"] >= best * (1 - SAME) else " "
    shares = f"{mark}{100 * share['median']:.2f} % ({100 * share['min']:.2f}..{100 * share['max']:.2f})"

    def of(name: str, form: str) -> str:
        return form.format(found[name]["median"]) if name in found else "-"

    return (
        f"{result['tool']:15} {shares:>24} {100 * found['arrived']['median']:8.2f} % {of('p50_ms', '{:.0f} ms'):>10}"
        f" {of('p99_ms', '{:.0f} ms'):>8} {of('wire', '{:.2f}x'):>12}{beside(result)}"
    )


def said(result: dict) -> str:
    words = [run["server_said"] for run in result["runs"] if run.get("server_said")]
    return f" (there: {words[-1]})" if words else ""


def beside(result: dict) -> str:
    """What must be said beside the figures."""
    says = [f"failed: {why}" for why in result["summary"]["failed"]]
    bad = [run["path_not_kept"] for run in result["runs"] if "path_not_kept" in run]
    if bad:
        says.append(f"path was not kept in {len(bad)}: {bad[0]}")
    late, sent = (sum(run.get(name, 0) for run in result["runs"]) for name in ("sent_late", "sent"))
    if late > sent * LATE:
        says.append(f"{late} were sent late by this host")
    for name, words in (("out_of_order", "out of order"), ("twice", "came twice")):
        count = sum(run.get(name, 0) for run in result["runs"])
        if count:
            says.append(f"{count} {words}")
    return f"  {'; '.join(says)}" if says else ""


def notes(rate_bps: float, seconds: float) -> str:
    return "\n".join([
        f"Medians, and the smallest and largest run. A camera makes {rate_bps / 1e6:.3g} Mbit/s in datagrams of 1316 bytes for {seconds:.0f} s;",
        "they are counted from 5 s after the first that has come. In time is what comes within the latency that was set, the",
        f"way of the path and {GRACE_MS:.0f} ms. Delays are from camera to player, of what arrives. On the wire: bytes that entered the",
        "path in both directions, with all headers, by bytes of media, of the whole run. * is within 2 % of the best share.",
    ])
