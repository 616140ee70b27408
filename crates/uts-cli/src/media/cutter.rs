//! A transport stream that comes as bytes, cut into datagrams of whole packets.
//!
//! Bytes in front of the first packet, and damaged ones between two, are left out: a stream may be
//! joined in the middle. What has no packets at all is no transport stream.

use super::format::{PACKET_BYTES, PACKETS_MAX, SYNC};
use bytes::{Buf, Bytes, BytesMut};

/// Packets in a row that begin as they should before the stream counts as found.
const FOUND: usize = 3;

/// Bytes in a row without packets, after which it is no transport stream.
const LOST_BYTES_MAX: usize = 64 << 10;

/// A stream that is being cut.
#[derive(Debug, Default)]
pub struct Cutter {
    rest: BytesMut,
    is_found: bool,
    /// Bytes in a row that were left out.
    lost: usize,
    /// Bytes that were left out in all.
    skipped: u64,
    has_ended: bool,
}

impl Cutter {
    /// Takes bytes of the stream.
    pub fn push(&mut self, bytes: &[u8]) {
        self.rest.extend_from_slice(bytes);
    }

    /// Nothing follows: what is left of whole packets is a datagram of its own.
    pub fn end(&mut self) {
        self.has_ended = true;
    }

    /// Bytes so far that belong to no packet.
    pub fn skipped(&self) -> u64 {
        self.skipped
    }

    /// The next datagram; `None` until more has come.
    ///
    /// # Errors
    /// That it is no transport stream, in one line.
    pub fn next_datagram(&mut self) -> Result<Option<Bytes>, String> {
        while !self.rest.is_empty() {
            let most = (self.rest.len() / PACKET_BYTES).min(PACKETS_MAX);
            if !self.is_found {
                let needed = if self.has_ended { most.clamp(1, FOUND) } else { FOUND };
                if self.rest.len() < needed * PACKET_BYTES {
                    return self.finish();
                }
                self.is_found = packets(&self.rest, needed) == needed;
                if !self.is_found {
                    self.skip()?;
                }
                continue;
            }
            let whole = packets(&self.rest, most);
            if whole < most {
                self.is_found = false;
                if whole == 0 {
                    continue;
                }
            } else if most < PACKETS_MAX && !(self.has_ended && most > 0) {
                return self.finish();
            }
            self.lost = 0;
            return Ok(Some(self.rest.split_to(whole * PACKET_BYTES).freeze()));
        }
        self.finish()
    }

    /// Leaves out bytes up to the next that may begin a packet.
    fn skip(&mut self) -> Result<(), String> {
        let next =
            self.rest.iter().skip(1).position(|byte| *byte == SYNC).map_or(self.rest.len(), |at| at + 1);
        let first = self.rest.first().copied().unwrap_or_default();
        self.rest.advance(next);
        self.lost += next;
        self.skipped += next as u64;
        if self.lost <= LOST_BYTES_MAX {
            return Ok(());
        }
        Err(format!(
            "it is no MPEG transport stream: in {} bytes no packet of {PACKET_BYTES} bytes begins with {SYNC:#04x} (the \
             last byte looked at is {first:#04x}); ffmpeg makes one by -f mpegts",
            self.lost
        ))
    }

    /// No datagram is there. At the end of something without any packet that is an error.
    fn finish(&mut self) -> Result<Option<Bytes>, String> {
        if self.has_ended {
            self.skipped += self.rest.len() as u64;
            self.lost += self.rest.len();
            self.rest.clear();
        }
        Ok(None)
    }
}

/// Packets at the beginning that begin as they should, at most so many.
fn packets(bytes: &[u8], most: usize) -> usize {
    bytes.chunks(PACKET_BYTES).take(most).take_while(|packet| packet.first() == Some(&SYNC)).count()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Packets with a counter, and no byte in them that looks like the beginning of another.
    fn stream(packets: usize) -> Vec<u8> {
        let packet = |n: usize| {
            let mut packet = vec![(n % 64) as u8; PACKET_BYTES];
            packet[0] = SYNC;
            packet
        };
        (0..packets).flat_map(packet).collect()
    }

    fn cut(bytes: &[u8], at_once: usize) -> Result<(Vec<Bytes>, u64), String> {
        let (mut cutter, mut all) = (Cutter::default(), Vec::new());
        for chunk in bytes.chunks(at_once.max(1)) {
            cutter.push(chunk);
            while let Some(datagram) = cutter.next_datagram()? {
                all.push(datagram);
            }
        }
        cutter.end();
        while let Some(datagram) = cutter.next_datagram()? {
            all.push(datagram);
        }
        Ok((all, cutter.skipped()))
    }

    #[test]
    fn it_is_cut_into_sevens_however_it_comes() {
        let stream = stream(24);
        for at_once in [1, 7, 188, 189, 1000, 10_000] {
            let (all, skipped) = cut(&stream, at_once).expect("a stream");
            let sizes: Vec<_> = all.iter().map(|datagram| datagram.len() / PACKET_BYTES).collect();
            assert_eq!((sizes, skipped), (vec![7, 7, 7, 3], 0), "{at_once}");
            assert_eq!(all.concat(), stream);
        }
        for few in 1..4 {
            let (all, _) = cut(&self::stream(few), 100).expect("a stream");
            assert_eq!(all.concat(), self::stream(few));
        }
    }

    #[test]
    fn it_may_be_joined_in_the_middle_and_be_damaged() {
        let good = stream(40);
        let mut bytes = good[100..].to_vec();
        // Eleven bytes are gone from the tenth packet of what is left.
        let hole = 88 + 10 * PACKET_BYTES + 50;
        bytes.drain(hole..hole + 11);
        for at_once in [5, 188, 4000] {
            let (all, skipped) = cut(&bytes, at_once).expect("a stream");
            let kept = all.concat();
            assert!(kept.chunks(PACKET_BYTES).all(|packet| packet[0] == SYNC));
            // The damaged packet has its beginning, and the one behind it is cut.
            assert!(kept.len() >= 37 * PACKET_BYTES && skipped <= 2 * 188 + 88, "{} {skipped}", kept.len());
        }
    }

    #[test]
    fn what_is_no_stream_is_said() {
        let text = "this is no video\n".repeat(10_000);
        let why = cut(text.as_bytes(), 1000).expect_err("it is text");
        assert!(why.starts_with("it is no MPEG transport stream: in 6") && why.contains("0x47"), "{why}");
        // All the same byte is none either, unless it is the right one.
        assert!(cut(&[0; 100_000], 4096).is_err());
    }
}
