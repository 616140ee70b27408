//! The pace of a transport stream that comes as bytes, by the clock that it carries: a file, or an
//! encoder that is faster than its pictures, is sent as fast as it is to be shown.

use super::format::PACKET_BYTES;
use std::time::Duration;
use tokio::time::Instant;

/// A clock that jumps by more than this, or that this end is behind by more, begins anew (ISO
/// 13818-1 has a value each 100 ms at least).
const JUMP_MAX: Duration = Duration::from_secs(1);

/// Ticks of the clock in a second, and the bits that it has (ISO 13818-1 section 2.4.3.5).
const TICKS_PER_S: u64 = 90_000;
const CLOCK_BITS: u32 = 33;

/// The pace of one stream.
#[derive(Debug, Default)]
pub struct Pacer {
    /// The program whose clock is followed, by its packets' number.
    of: Option<u16>,
    /// A value of the clock, and when it was sent.
    anchor: Option<(u64, Instant)>,
    last: u64,
}

impl Pacer {
    /// When a datagram of the stream is to be sent, of which the ones before were sent by now.
    pub fn due(&mut self, datagram: &[u8], now: Instant) -> Instant {
        let Some((of, clock)) = datagram.chunks(PACKET_BYTES).find_map(clock_of) else { return now };
        if *self.of.get_or_insert(of) != of {
            return now;
        }
        let (began, at) = *self.anchor.get_or_insert((clock, now));
        let step = between(self.last, clock);
        let due = at + between(began, clock);
        let is_jump = (self.last != 0 && step > JUMP_MAX) || due + JUMP_MAX < now || due > now + JUMP_MAX * 2;
        self.last = clock;
        if is_jump {
            self.anchor = Some((clock, now));
            return now;
        }
        due.max(now)
    }
}

/// Time between two values of the clock.
fn between(earlier: u64, later: u64) -> Duration {
    let ticks = later.wrapping_sub(earlier) & ((1 << CLOCK_BITS) - 1);
    Duration::from_nanos(ticks * 1_000_000_000 / TICKS_PER_S)
}

/// The program clock reference of a packet, if it carries one, and the number of its packets.
fn clock_of(packet: &[u8]) -> Option<(u16, u64)> {
    let has_adaptation = packet.get(3)? & 0x20 != 0;
    // A length, flags, and six bytes.
    if !has_adaptation || *packet.get(4)? < 7 || packet.get(5)? & 0x10 == 0 {
        return None;
    }
    let number = u16::from_be_bytes([packet.get(1)? & 0x1f, *packet.get(2)?]);
    let base = packet.get(6..11)?.iter().fold(0, |sum, byte| sum << 8 | u64::from(*byte));
    Some((number, base >> 7))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn packet(number: u16, clock: Option<u64>) -> Vec<u8> {
        let mut packet = vec![0; PACKET_BYTES];
        packet[0] = 0x47;
        packet[1..3].copy_from_slice(&number.to_be_bytes());
        if let Some(clock) = clock {
            (packet[3], packet[4], packet[5]) = (0x30, 7, 0x10);
            packet[6..11].copy_from_slice(&(clock << 7).to_be_bytes()[3..]);
        }
        packet
    }

    #[test]
    fn the_clock_of_a_packet_is_read() {
        assert_eq!(clock_of(&packet(256, Some(12_345))), Some((256, 12_345)));
        assert_eq!(clock_of(&packet(256, Some((1 << 33) - 1))), Some((256, (1 << 33) - 1)));
        assert_eq!(clock_of(&packet(256, None)), None);
        for cut in 0..11 {
            assert_eq!(clock_of(&packet(256, Some(1))[..cut]), None);
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_stream_is_sent_as_fast_as_it_is_shown() {
        let (mut pacer, begun) = (Pacer::default(), Instant::now());
        let ms = Duration::from_millis;
        // It passes the end of the clock's bits on the way, and another program is in it.
        let first = (1 << 33) - 3 * 3600;
        for n in 0..100u64 {
            let at = (first + n * 3600) % (1 << 33);
            let due = pacer.due(&[packet(9, None), packet(256, Some(at))].concat(), Instant::now());
            assert_eq!(due - begun, ms(40 * n), "{n}");
            tokio::time::sleep_until(due).await;
            assert_eq!(pacer.due(&packet(300, Some(5 * n)), due), due);
            assert_eq!(pacer.due(&packet(256, None), due), due);
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_clock_that_jumps_holds_nothing_up() {
        let mut pacer = Pacer::default();
        let now = Instant::now();
        assert_eq!(pacer.due(&packet(1, Some(900_000)), now), now);
        assert_eq!(pacer.due(&packet(1, Some(90_000_000)), now), now);
        assert_eq!(pacer.due(&packet(1, Some(5)), now), now);
        assert_eq!(pacer.due(&packet(1, Some(9005)), now), now + Duration::from_millis(100));
        // An encoder that is slower than its pictures is not waited for again.
        let late = now + Duration::from_secs(9);
        assert_eq!(pacer.due(&packet(1, Some(18_005)), late), late);
        assert_eq!(pacer.due(&packet(1, Some(27_005)), late), late + Duration::from_millis(100));
    }
}
