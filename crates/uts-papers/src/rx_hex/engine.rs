//! The same line under the engine: transfers by named profiles, Rx's and one of today.

use super::world::{Line, TRANSFER_BYTES};
use crate::engine::{Outcome, Setup};
use anyhow::Result;
use core::time::Duration;
use uts_path::PathConfig;

/// Headers of IP and UDP.
const HEADER_BYTES: u32 = 28;
/// SLIP's END before and after each packet.
const END_BYTES: u32 = 2;
/// Header, frame and seal of the engine take so much more of a full packet than Rx's header does.
const BEYOND_RX_BYTES: u32 = 8;

/// Bytes that packets of the engine are charged for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Charge {
    /// Their own length.
    Length,
    /// Bytes that they carry: a packet with 520 bytes of the transfer has 576, as in the paper.
    Carried,
}

/// Transfers over a line, by properties of the engine; another begins at `second`. Where packets
/// are charged for what they carry, nothing is sent before the profile is in force.
///
/// The line's bytes take as long as SLIP's. It does not look at them: what is encrypted would need
/// other escapes in each run.
///
/// # Errors
/// There is no such property; what arrives is not what was sent.
pub fn over_line(
    line: &Line,
    charge: Charge,
    properties: &[&str],
    second: Option<Duration>,
    end: Duration,
) -> Result<Vec<Outcome>> {
    let less = if charge == Charge::Carried { BEYOND_RX_BYTES } else { 0 };
    let (rate_bps, overhead) = (line.rate_bps * 8 / 10, HEADER_BYTES + END_BYTES - less);
    let (mtu_bytes, queue) = (line.mtu_bytes + END_BYTES, line.queue_packets);
    let path = format!("rate={rate_bps}bit overhead={overhead} mtu={mtu_bytes} buffer={queue}p");
    let setup = Setup {
        path: PathConfig::both(path.parse()?),
        packet_bytes: (mtu_bytes - overhead) as usize,
        properties,
        bytes: TRANSFER_BYTES.into(),
        awaits_exchange: charge == Charge::Carried,
        second,
        seed: 1,
    };
    setup.run(end)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The engine sends what Rx would: the same packets, in a window of fifteen.
    #[test]
    fn a_packet_carries_as_much_as_one_of_rx() {
        let properties = ["uts.profile=rx-3.1", "uts.profile.timing=fixed(timeout=12000)", "uts.consent=all"];
        let end = Duration::from_secs(300);
        let outcomes = over_line(&Line::SLIP, Charge::Carried, &properties, None, end).expect("it runs");
        let sent = &outcomes[0].sent;
        assert_eq!((outcomes.len(), sent.len()), (1, 193));
        let carried: Vec<u64> = sent.windows(2).map(|pair| pair[1].1 - pair[0].1).collect();
        assert!(carried.iter().filter(|bytes| (518..=521).contains(*bytes)).count() >= 190, "{carried:?}");
        let window = sent.iter().filter(|(at, ..)| *at < sent[0].0 + Duration::from_millis(100)).count();
        assert_eq!(window, 15);
    }
}
