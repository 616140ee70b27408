//! Counters of a relay, and its punctuality.

use serde::{Deserialize, Serialize};
use std::collections::HashSet;
use uts_path::Stats;
use uts_record::lateness::Lateness;

/// Counters of a relay since its start.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct RelayStats {
    /// Seconds since the start.
    pub elapsed_s: f64,
    /// The link from clients.
    pub forward: Stats,
    /// The link to clients.
    pub backward: Stats,
    /// Lateness of datagrams that were sent on, against the instant that the path gave.
    pub lateness: Lateness,
    /// Clients now.
    pub clients: u64,
    /// Clients there have been.
    pub clients_total: u64,
    /// Datagrams of clients that there was no room for.
    pub refused: u64,
    /// Datagrams that the system would not send on.
    pub send_failures: u64,
    /// Datagrams lost before the relay could read them, as the kernel counts them; these spoil an
    /// experiment. `None` if it does not say.
    pub kernel_dropped: Option<u64>,
}

/// Sums the drops that the kernel lists for UDP sockets of these ports.
pub(super) fn kernel_dropped(ports: &HashSet<u16>) -> Option<u64> {
    let tables = ["/proc/net/udp", "/proc/net/udp6"].map(|file| std::fs::read_to_string(file).ok());
    let texts: Vec<String> = tables.into_iter().flatten().collect();
    if texts.is_empty() {
        return None;
    }
    Some(texts.iter().flat_map(|t| t.lines().skip(1)).filter_map(|line| drops_of(line, ports)).sum())
}

/// A row: `sl local_address rem_address … drops`, the address as `hex:hexport`.
fn drops_of(line: &str, ports: &HashSet<u16>) -> Option<u64> {
    let (_, port) = line.split_whitespace().nth(1)?.rsplit_once(':')?;
    let port = u16::from_str_radix(port, 16).ok()?;
    if !ports.contains(&port) {
        return None;
    }
    line.split_whitespace().last()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_kernels_table_is_read_by_port() {
        let line = "  353: 0100007F:115C 00000000:0000 07 00000000:00000000 00:00000000 00000000     0        0 \
                    23170 2 00000000c0ffee00 42";
        assert_eq!(drops_of(line, &HashSet::from([4444])), Some(42));
        assert_eq!(drops_of(line, &HashSet::from([4445])), None);
        assert_eq!(drops_of("nonsense", &HashSet::from([4444])), None);
    }
}
