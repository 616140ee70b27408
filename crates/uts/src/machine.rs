//! Memory that this process may have, from which follows how much the connections of an endpoint
//! may take together.

use std::fs;
use std::path::Path;
use std::sync::OnceLock;
use uts_engine::EndpointConfig;

/// Part of the process's memory that the connections of one endpoint may take: as much as Linux
/// leaves to all TCP connections before it presses them to use less, about (`tcp_mem` in tcp(7)).
/// An application may have several endpoints, and needs memory for what it reads.
const PART: usize = 16;

/// Memory that all connections of an endpoint may take together, in bytes, unless the application
/// says another amount ([`EndpointConfig::memory_bytes_max`]): a sixteenth of what this process may
/// have, and at least what the engine takes of itself. That is all where it is not known what the
/// process may have, and in simulated networks, so that these depend on no machine.
pub(crate) fn memory_for_connections() -> usize {
    static OF_PROCESS: OnceLock<Option<usize>> = OnceLock::new();
    let least = EndpointConfig::default().memory_bytes_max;
    if crate::driver::is_simulated() {
        return least;
    }
    let of_process = OF_PROCESS.get_or_init(|| memory_of_process(Path::new("/")));
    of_process.map_or(least, |bytes| (bytes / PART).max(least))
}

/// Memory that this process may have, in bytes: what the machine has, or what the control groups
/// that the process is in leave it (cgroups(7), version 2), whichever is less. `root` is where the
/// system's files are. `None` = the system does not say.
fn memory_of_process(root: &Path) -> Option<usize> {
    let read = |path: &str| fs::read_to_string(root.join(path)).unwrap_or_default();
    let of_machine = of_machine(&read("proc/meminfo"));
    let groups = read("proc/self/cgroup");
    let group = groups.lines().find_map(|line| line.strip_prefix("0::/"));
    let of_groups = group.and_then(|group| {
        let group = root.join("sys/fs/cgroup").join(group);
        // A container may see its groups under other names: the nearest that is there counts.
        let seen = group.ancestors().skip_while(|group| !is_group(group));
        seen.take_while(|group| is_group(group)).filter_map(limit_of).min()
    });
    of_machine.into_iter().chain(of_groups).min()
}

/// Memory of the machine, as `/proc/meminfo` says it.
fn of_machine(meminfo: &str) -> Option<usize> {
    usize::try_from(bytes_of(meminfo, "MemTotal")?).ok()
}

/// Bytes of a field of `/proc/meminfo` (proc_meminfo(5)).
pub(crate) fn bytes_of(meminfo: &str, field: &str) -> Option<u64> {
    let line = meminfo.lines().find_map(|line| line.strip_prefix(field)?.strip_prefix(':'))?;
    let kib: u64 = line.trim().strip_suffix("kB")?.trim_end().parse().ok()?;
    kib.checked_mul(1024)
}

/// True if a directory is a control group.
fn is_group(dir: &Path) -> bool {
    dir.join("cgroup.controllers").exists()
}

/// Limit of a control group, in bytes, if it has one.
fn limit_of(group: &Path) -> Option<usize> {
    fs::read_to_string(group.join("memory.max")).ok()?.trim().parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: usize = 1 << 20;

    /// Files of a system: memory of the machine, and groups within each other with their limits.
    fn system(mib: usize, groups: &[(&str, &str)]) -> tempfile::TempDir {
        let root = tempfile::tempdir().expect("a directory");
        let put = |path: &str, contents: &str| {
            let path = root.path().join(path);
            fs::create_dir_all(path.parent().expect("a parent")).expect("made");
            fs::write(path, contents).expect("written");
        };
        put("proc/meminfo", &format!("MemTotal:       {} kB\nMemFree: 1 kB\n", mib * 1024));
        put("sys/fs/cgroup/cgroup.controllers", "memory\n");
        let mut within = String::new();
        for (name, limit) in groups {
            within = format!("{within}/{name}");
            put(&format!("sys/fs/cgroup{within}/cgroup.controllers"), "memory\n");
            put(&format!("sys/fs/cgroup{within}/memory.max"), &format!("{limit}\n"));
        }
        put("proc/self/cgroup", &format!("0::{}\n", if within.is_empty() { "/" } else { &within }));
        root
    }

    #[test]
    fn the_least_of_what_the_machine_has_and_its_groups_leave_counts() {
        for (mib, groups, least_mib) in [
            (4096, &[][..], 4096),
            (4096, &[("system.slice", "max"), ("a.service", "max")], 4096),
            (4096, &[("system.slice", "max"), ("a.service", "268435456")], 256),
            (4096, &[("system.slice", "134217728"), ("a.service", "max")], 128),
            (4096, &[("system.slice", "134217728"), ("a.service", "268435456")], 128),
            (64, &[("system.slice", "134217728")], 64),
        ] {
            let root = system(mib, groups);
            assert_eq!(memory_of_process(root.path()), Some(least_mib * MIB), "{mib} {groups:?}");
        }
    }

    #[test]
    fn where_the_system_says_nothing_or_nonsense_nothing_is_known() {
        let empty = tempfile::tempdir().expect("a directory");
        assert_eq!(memory_of_process(empty.path()), None);
        for meminfo in
            ["", "MemTotal:", "MemTotal: kB", "MemTotal: 99999999999999999999 kB", "MemTotal: 4 MB"]
        {
            assert_eq!(of_machine(meminfo), None, "{meminfo}");
        }
    }

    #[test]
    fn an_endpoint_has_at_least_what_the_engine_takes_of_itself() {
        assert!(memory_for_connections() >= EndpointConfig::default().memory_bytes_max);
    }
}
