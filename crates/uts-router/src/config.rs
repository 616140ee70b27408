//! Settings of a testbed.

use super::error::RouterError;
use super::fidelity::Bounds;
use super::topology::{HOSTS_MAX, Topology};
use serde::{Deserialize, Serialize};
use std::path::PathBuf;
use uts_path::{LinkConfig, PathConfig};

/// Least and greatest MTU of hosts' interfaces.
const MTU: std::ops::RangeInclusive<u32> = 576..=65_535;

/// Above this, RouterPC's processor is busy enough for hosts to do their own work.
const FAST_BPS: u64 = 500_000_000;

/// A testbed: hosts, the paths between them, and what is recorded.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct TestbedConfig {
    /// Layout of hosts and paths.
    pub topology: Topology,
    /// The paths, as many as the topology has. Forward is from the lower node to the higher. A
    /// link's lengths are those of IP packets. `overhead` or a framing says what a frame adds.
    pub paths: Vec<PathConfig>,
    /// Seed of all random decisions.
    pub seed: u64,
    /// Records to write, if any.
    pub record: Option<RecordConfig>,
    /// Hosts hand over super-packets (TSO, GSO, UDP segmentation). This is far cheaper, but up to
    /// 45 packets then reach RouterPC at one instant, as from an infinitely fast network card.
    /// Without it, and if buffers are tiny, each comes by itself.
    pub offload: bool,
    /// Rate of the access link from each host, 1 to 10^13 bit/s, before the first queue. It spaces
    /// packets that come at one instant. `None` is infinite. Its queue is not bounded.
    pub access_rate_bps: Option<u64>,
    /// MTU of hosts' interfaces, 576 to 65535 (with IPv6, at least 1280).
    pub mtu_bytes: u32,
    /// Hosts have IPv6 addresses, too. Then they send a little of their own.
    pub ipv6: bool,
    /// Senders of packets that exceed a link's MTU get an ICMP message (RFC 1191), as from a
    /// router. Otherwise such packets vanish.
    pub tell_too_big: bool,
    /// Settings of the kernel on every host, as `("net.ipv4.tcp_rmem", "4096 131072 67108864")`.
    pub sysctls: Vec<(String, String)>,
    /// Bounds within which the run may deviate from its model.
    pub bounds: Bounds,
    /// If the next packet is due within this many microseconds, RouterPC stays awake. This is more
    /// punctual, but takes a core under load. If sleeps overrun by more, the value rises with them,
    /// up to 200. From 0 (never awake) to 100000.
    pub spin_us: u32,
    /// The program that has `router supervise` as a subcommand; this program if `None`.
    pub program: Option<PathBuf>,
    /// Programs on hosts share the caller's terminal, as a shell must. Ctrl-C then reaches them.
    pub foreground: bool,
}

impl Default for TestbedConfig {
    /// Two hosts and a perfect path.
    fn default() -> Self {
        TestbedConfig {
            topology: Topology::PointToPoint,
            paths: vec![PathConfig::default()],
            seed: 1,
            record: None,
            offload: true,
            access_rate_bps: None,
            mtu_bytes: 1500,
            ipv6: false,
            tell_too_big: false,
            sysctls: Vec::new(),
            bounds: Bounds::default(),
            spin_us: 70,
            program: None,
            foreground: false,
        }
    }
}

impl TestbedConfig {
    /// Two hosts with this path between them.
    pub fn point_to_point(path: PathConfig) -> Self {
        TestbedConfig { paths: vec![path], ..TestbedConfig::default() }
    }

    /// True if a path carries so much that RouterPC has no time for the hosts' work of receiving.
    pub(super) fn is_fast(&self) -> bool {
        let is_fast = |link: &LinkConfig| {
            link.opportunities.is_none() && link.rate_bps.is_none_or(|bps| bps > FAST_BPS)
        };
        self.paths.iter().any(|path| is_fast(&path.forward) || is_fast(&path.backward))
    }

    /// Checks every value.
    ///
    /// # Errors
    /// The first that is out of range, by its name, with the range.
    pub fn validate(&self) -> Result<(), RouterError> {
        let wrong = |what: String| Err(RouterError::Config(what));
        let (hosts, paths) = (self.topology.hosts(), self.topology.paths());
        if !(2..=HOSTS_MAX).contains(&hosts) {
            return wrong(format!("topology: must have 2 to {HOSTS_MAX} hosts, not {hosts}"));
        }
        if self.paths.len() != paths {
            return wrong(format!("paths: the topology has {paths}, not {}", self.paths.len()));
        }
        for (index, path) in self.paths.iter().enumerate() {
            for (name, link) in [("forward", &path.forward), ("backward", &path.backward)] {
                if let Err(e) = LinkConfig::validate(link) {
                    return wrong(format!("path {index} {name}: {e}"));
                }
            }
        }
        if !MTU.contains(&self.mtu_bytes) || (self.ipv6 && self.mtu_bytes < 1280) {
            let least = if self.ipv6 { 1280 } else { *MTU.start() };
            return wrong(format!(
                "mtu_bytes: must be between {least} and {}, not {}",
                MTU.end(),
                self.mtu_bytes
            ));
        }
        if self.access_rate_bps.is_some_and(|rate| !(1..=10_000_000_000_000).contains(&rate)) {
            return wrong("access_rate_bps: must be between 1 and 10000000000000".into());
        }
        if let Some(record) = &self.record {
            if !(64..=65_535).contains(&record.snap_bytes) {
                return wrong(format!(
                    "record: snap_bytes must be between 64 and 65535, not {}",
                    record.snap_bytes
                ));
            }
            if record.tcp_info_ms.is_some_and(|ms| !(1..=60_000).contains(&ms)) {
                return wrong("record: tcp_info_ms must be between 1 and 60000".into());
            }
        }
        if self.spin_us > 100_000 {
            return wrong(format!("spin_us: must be at most 100000, not {}", self.spin_us));
        }
        for (name, value) in &self.sysctls {
            let plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '_' | '-');
            if !name.starts_with("net.") || !name.chars().all(plain) || name.contains("..") {
                return wrong(format!("sysctls: `{name}` must be a name as in net.ipv4.tcp_rmem"));
            }
            if value.contains('\n') {
                return wrong(format!("sysctls: the value of {name} must be one line"));
            }
        }
        Ok(())
    }
}

/// Records to write while a testbed runs. All times `t_s` are seconds since
/// [`begin`](super::Testbed::begin), or since the start if that was not called.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct RecordConfig {
    /// Where to; made if it is not there.
    pub dir: PathBuf,
    /// `host-N.pcap`: what passes each host's interface, with nanoseconds (absolute). Packets from
    /// the host have the time of their arrival at RouterPC. Packets to it have the time at which
    /// RouterPC sent them. Checksums are complete.
    pub pcap: bool,
    /// Bytes kept of each frame in the pcap, 64 to 65535.
    pub snap_bytes: u32,
    /// `queue.csv`: a row for each packet that has left a queue, in the order of leaving:
    /// `t_s,path,dir,number,len,packets,bytes,wait_s,sojourn_s,marked,dropped`. `t_s` is the
    /// instant of its arrival. `packets` and `bytes` are what it found before it. `sojourn_s` is
    /// the time until its last bit's departure. `dropped` is empty or a reason.
    pub queue: bool,
    /// `sequence.csv`: a row for each TCP segment as it arrives at RouterPC, before any queue, at
    /// the instant of its arrival: `t_s,flow,dir,seq,ack,window,len,flags`. `seq` and `ack` count
    /// from the flow's first numbers and do not wrap. `window` is in bytes, scaled if the SYN was
    /// seen. `dir` is `fwd` from the host of the lower number.
    pub sequence: bool,
    /// `tcp.csv`: `TCP_INFO` of every TCP socket on the hosts, at this interval in milliseconds, 1
    /// to 60000; none if `None`:
    ///
    /// ```text
    /// t_s,host,local,remote,state,congestion,cwnd,ssthresh,mss,rtt_s,rtt_var_s,rtt_min_s,rto_s,
    /// unacked,lost,retransmitted,pacing_bps,delivery_bps,bytes_acked,bytes_received,rcv_ssthresh
    /// ```
    ///
    /// `cwnd`, `ssthresh`, `unacked`, `lost` and `retransmitted` are segments, `mss` and
    /// `rcv_ssthresh` bytes. Empty is unknown or infinite.
    pub tcp_info_ms: Option<u32>,
}

impl Default for RecordConfig {
    /// The queue and TCP's sequence numbers, into the current directory.
    fn default() -> Self {
        RecordConfig {
            dir: PathBuf::from("."),
            pcap: false,
            snap_bytes: 160,
            queue: true,
            sequence: true,
            tcp_info_ms: None,
        }
    }
}
