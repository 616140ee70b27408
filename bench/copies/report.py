"""What was measured, as a table and as JSON."""

import platform
import statistics
from pathlib import Path

MB = 1e6


def machine(work: Path) -> dict[str, str]:
    """Where it was measured."""
    cpu = "unknown processor"
    cores = 0
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            cpu, cores = line.partition(":")[2].strip(), cores + 1
    return {
        "processor": f"{cpu}, {cores} cores",
        "kernel": f"{platform.system()} {platform.release()}",
        "file_system": file_system(work),
    }


def file_system(path: Path) -> str:
    """Its type: that of the longest mount point above the path."""
    best = ("", "unknown")
    for line in Path("/proc/mounts").read_text().splitlines():
        _, at, kind, *_ = line.split()
        if path.is_relative_to(at) and len(at) >= len(best[0]):
            best = (at, kind)
    return best[1]


def summary(runs: list[dict]) -> dict:
    """Medians and spread of what ended well."""
    good = [run for run in runs if "seconds" in run]
    if not good:
        return {"n": 0}
    seconds = [run["seconds"] for run in good]
    return {
        "n": len(good),
        "median_s": statistics.median(seconds),
        "min_s": min(seconds),
        "max_s": max(seconds),
        "on_disk_median_s": statistics.median(run["on_disk_seconds"] for run in good),
        "allocated_bytes": good[-1]["allocated_bytes"],
    }


def table(results: list[dict]) -> str:
    """The results of one path and one case, the fastest first."""
    head = f"{'':10} {'median':>9} {'spread':>17} {'on disk':>9} {'MB/s':>8} {'to first':>9} {'n':>3}"
    rows = [head]
    ordered = sorted(results, key=lambda r: r["summary"].get("median_s", float("inf")))
    first = ordered[0]["summary"].get("median_s")
    for result in ordered:
        found = result["summary"]
        if not found["n"]:
            rows.append(f"{result['tool']:10} {_why(result)}")
            continue
        spread = f"{found['min_s']:.2f} to {found['max_s']:.2f}"
        # A resumed copy carries what was missing.
        there = [run["there_bytes"] for run in result["runs"] if "there_bytes" in run]
        carried = result["content_bytes"] - (statistics.mean(there) if there and result["resumes"] else 0)
        rate = f"{carried / found['median_s'] / MB:.1f}"
        rows.append(
            f"{result['tool']:10} {found['median_s']:7.2f} s {spread:>17} {found['on_disk_median_s']:7.2f} s"
            f" {rate:>8} {found['median_s'] / first:8.2f}x {found['n']:3}{_beside(result)}"
        )
    return "\n".join(rows)


def _why(result: dict) -> str:
    run = result["runs"][-1]
    if run.get("over_limit"):
        return f"more than {result['limit_s']:.0f} s ({run['arrived_bytes'] / MB:.0f} MB had arrived)"
    said = f" (server: {run['server_said']})" if run.get("server_said") else ""
    return f"failed: {run['error']}{said}"


def _beside(result: dict) -> str:
    """What must be said beside the figures."""
    says = []
    bad = [run for run in result["runs"] if "seconds" not in run]
    if bad:
        says.append(f"{len(bad)} more: {_why({**result, 'runs': bad})}")
    there = [run["there_bytes"] for run in result["runs"] if "there_bytes" in run]
    if there:
        says.append(f"{'went on from' if result['resumes'] else 'began again; there was'} {statistics.mean(there) / result['content_bytes']:.0%}")
    if result["case"] == "sparse":
        says.append(f"takes {result['summary']['allocated_bytes'] / MB:.0f} MB on the disk")
    if any("path_not_kept" in run for run in result["runs"]):
        says.append("path was not kept: " + next(r["path_not_kept"] for r in result["runs"] if "path_not_kept" in r))
    return f"  {'; '.join(says)}" if says else ""


def notes(tools: list, cases: list[str]) -> str:
    """What each tool does, and what of it others do not."""
    lines = ["What each does that others do not, or leaves out:"]
    for tool in tools:
        lines.append(f"  {tool.name}: {tool.says}")
        lines += [f"    {case}: {tool.apart[case]}" for case in cases if case in tool.apart]
    lines += [
        "Seconds are until the command ends (of croc: both ends), `on disk` until the receiver's file system is",
        "synchronised after it. Sources are in the page cache, destinations are empty directories of the same file",
        "system, every copy is compared by hash. Rates count what a file holds, holes too; resumed, what was missing.",
    ]
    return "\n".join(lines)
