//! The machine that this runs on, as far as its system tells (Linux): for records of runs.

use std::fs;

/// Model of the processor.
pub fn processor() -> Option<String> {
    value(&read("/proc/cpuinfo"), "model name", ':')
}

/// Memory, in bytes.
pub fn memory_bytes() -> Option<u64> {
    bytes(&value(&read("/proc/meminfo"), "MemTotal", ':')?)
}

/// Name of the system's distribution, with its version.
pub fn distribution() -> Option<String> {
    value(&read("/etc/os-release"), "PRETTY_NAME", '=')
}

fn read(file: &str) -> String {
    fs::read_to_string(file).unwrap_or_default()
}

/// The first value of a name, without the quotes around it.
fn value(text: &str, name: &str, separator: char) -> Option<String> {
    let line = text.lines().find_map(|line| line.strip_prefix(name)?.trim_start().strip_prefix(separator))?;
    Some(line.trim().trim_matches('"').to_owned())
}

/// An amount as proc_meminfo(5) has it, `16 kB`, in bytes.
fn bytes(amount: &str) -> Option<u64> {
    let kib: u64 = amount.strip_suffix("kB")?.trim_end().parse().ok()?;
    kib.checked_mul(1024)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_found_by_their_whole_names() {
        let meminfo = "MemTotalHuge:  7 kB\nMemTotal:       16316412 kB\nMemFree: 1 kB\n";
        let total = value(meminfo, "MemTotal", ':').expect("a value");
        assert_eq!((total.as_str(), bytes(&total)), ("16316412 kB", Some(16_316_412 << 10)));
        let processors = "processor\t: 0\nmodel name\t: A: 1\n\nmodel name\t: B\n";
        assert_eq!(value(processors, "model name", ':').as_deref(), Some("A: 1"));
        assert_eq!(value("NAME=a\nPRETTY_NAME=\"a b\"\n", "PRETTY_NAME", '=').as_deref(), Some("a b"));
        assert_eq!(value("", "MemTotal", ':'), None);
        for wrong in ["", "5", "x kB", "99999999999999999999 kB", "18446744073709551615 kB"] {
            assert_eq!(bytes(wrong), None, "{wrong}");
        }
    }
}
