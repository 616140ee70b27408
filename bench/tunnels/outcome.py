"""What was measured, as tables."""

import statistics

# Of each work: the figures, their units, and whether more is better.
FIGURES = {
    "keystrokes": [("p50_ms", "key p50, ms", False), ("p99_ms", "key p99, ms", False)],
    "page": [("seconds", "page, s", False)],
    "file": [("mbps", "file, Mbit/s", True)],
}


def summary(runs: list[dict], works: list[str]) -> dict:
    """Medians and spread of what went well, and what did not."""
    found: dict = {}
    for work in works:
        good = [run[work] for run in runs if work in run and "broken" not in run[work]]
        bad = [run.get(work, {}).get("broken") or run.get("error", "not reached") for run in runs]
        bad = [why for run, why in zip(runs, bad) if work not in run or "broken" in run[work]]
        found[work] = {"n": len(good), "broken": bad}
        for name, _, _ in FIGURES[work]:
            values = [one[name] for one in good]
            if values:
                found[work][name] = {
                    "median": statistics.median(values), "min": min(values), "max": max(values)
                }
    return found


def table(results: list[dict], works: list[str]) -> str:
    """The results of one path: a row for each tool, the best of each column marked."""
    columns = [(work, *figure) for work in works for figure in FIGURES[work]]
    rows = [f"{'':11}" + "".join(f"{title:>26}" for _, _, title, _ in columns)]
    for result in results:
        cells = [cell(result, results, *column) for column in columns]
        rows.append(f"{result['tool']:11}" + "".join(f"{text:>26}" for text in cells) + beside(result))
    return "\n".join(rows)


def cell(result: dict, results: list[dict], work: str, name: str, _: str, more: bool) -> str:
    found = result["summary"][work]
    if found["broken"]:
        return "broken" if not found["n"] else f"{len(found['broken'])} broken, {shown(found[name]['median'])}"
    medians = [r["summary"][work][name]["median"] for r in results if not r["summary"][work]["broken"]]
    best = max(medians) if more else min(medians)
    mark = "*" if found[name]["median"] == best else " "
    return f"{mark}{shown(found[name]['median'])} ({shown(found[name]['min'])}..{shown(found[name]['max'])})"


def shown(value: float) -> str:
    return f"{value:.0f}" if value >= 100 else f"{value:.3g}"


def beside(result: dict) -> str:
    """What must be said beside the figures."""
    says = [f"{work}: {found['broken'][0]}" for work, found in result["summary"].items() if found["broken"]]
    late = [run["path_not_kept"] for run in result["runs"] if "path_not_kept" in run]
    if late:
        says.append(f"path was not kept in {len(late)}: {late[0]}")
    return f"  {'; '.join(says)}" if says else ""


def notes(file_mb: int, limit_s: float) -> str:
    return "\n".join([
        "Medians, and the smallest and largest run; * is the best of its column. Each work has a tunnel of its own, that",
        "carries already. A key is a byte every 50 to 100 ms, echoed while a download fills the same tunnel. A page is 100",
        "objects of 10 kB, each over a connection of its own, six at once. The file is of",
        f"{file_mb} MB, or what came of it within {limit_s:.0f} s. Where the client's address changes, a page and a file begin 0.3 s",
        "before a change. WireGuard carries packets: each connection is one of the programs' own TCP, with its own losses.",
    ])
