//! The ids that this endpoint gives out, and the words that reset their connections.
//!
//! An id carries a check under the endpoint's key, over its random part and the peer's address. So
//! an endpoint that has forgotten everything still knows its own ids, and to whom it gave each: for
//! no other does it ever say a word.

use super::workers::Worker;
use rand::Rng;
use ring::{hkdf, hmac};
use std::net::{IpAddr, SocketAddr};
use uts_wire::ConnectionId;
use uts_wire::packet::adaptive::RESET_TOKEN_BYTES;

/// The shortest id that has room for a check: its other half leaves 2^32 ids. Shorter ones have
/// none, and no word. [P-53]
const CHECKED_CID_BYTES: usize = 8;

/// One guess in 2^32 passes.
const CHECK_BYTES: usize = 4;

/// The key of an endpoint's ids.
pub(super) struct OwnIds {
    key: hmac::Key,
    bytes: usize,
    worker: Worker,
}

impl OwnIds {
    /// Ids of so many bytes, at most 20, under a key that follows from the endpoint's secret.
    /// Packets to them come to `worker`.
    pub fn new(secret: &[u8; 32], bytes: usize, worker: Worker) -> Self {
        let key = hmac::Key::new(hmac::HMAC_SHA256, &derive(secret, b"connection ids"));
        OwnIds { key, bytes, worker }
    }

    /// A new id for a peer.
    pub fn draw(&self, rng: &mut impl Rng, remote: SocketAddr) -> ConnectionId {
        self.draw_with(rng, self.bytes, |id| {
            if id.len() >= CHECKED_CID_BYTES {
                let (random, check) = id.split_at_mut(id.len() - CHECK_BYTES);
                check.copy_from_slice(&self.tag(random, remote)[..CHECK_BYTES]);
            }
        })
    }

    /// An id of so many bytes, at most 20, for a client that begins again. It has no check, and its
    /// packets come to the same worker.
    pub fn draw_for_retry(&self, rng: &mut impl Rng, bytes: usize) -> ConnectionId {
        self.draw_with(rng, bytes, |_| {})
    }

    /// A random id of this endpoint's worker, which `finish` may write a check into.
    fn draw_with(&self, rng: &mut impl Rng, bytes: usize, finish: impl FnOnce(&mut [u8])) -> ConnectionId {
        let mut id = [0; uts_wire::MAX_CID_LEN];
        let id = &mut id[..bytes.min(uts_wire::MAX_CID_LEN)];
        rng.fill_bytes(id);
        self.worker.mark(id);
        finish(id);
        ConnectionId::new(id).unwrap_or(ConnectionId::EMPTY)
    }

    /// The word that resets the connection of an id; `None` if this endpoint did not give it to
    /// this peer.
    pub fn reset_token(&self, id: &ConnectionId, remote: SocketAddr) -> Option<[u8; RESET_TOKEN_BYTES]> {
        if id.len() != self.bytes || id.len() < CHECKED_CID_BYTES {
            return None;
        }
        let (random, check) = id.as_slice().split_at_checked(id.len() - CHECK_BYTES)?;
        let tag = self.tag(random, remote);
        let (own, rest) = tag.split_at_checked(CHECK_BYTES)?;
        if own != check {
            return None;
        }
        rest.first_chunk().copied()
    }

    /// The check of an id, and behind it the word for it. [P-53]
    fn tag(&self, random: &[u8], remote: SocketAddr) -> [u8; 32] {
        let mut context = hmac::Context::with_key(&self.key);
        match remote.ip().to_canonical() {
            IpAddr::V4(ip) => context.update(&ip.octets()),
            IpAddr::V6(ip) => context.update(&ip.octets()),
        }
        context.update(&remote.port().to_be_bytes());
        context.update(random);
        let mut tag = [0; 32];
        tag.copy_from_slice(context.sign().as_ref());
        tag
    }
}

struct KeyBytes;

impl hkdf::KeyType for KeyBytes {
    fn len(&self) -> usize {
        32
    }
}

/// A key that follows from the endpoint's secret; `label` keeps keys of different use apart.
fn derive(secret: &[u8; 32], label: &[u8]) -> [u8; 32] {
    let mut out = [0; 32];
    let prk = hkdf::Salt::new(hkdf::HKDF_SHA256, b"uts tokens").extract(secret);
    // 32 bytes are always within what HKDF can give.
    if let Ok(okm) = prk.expand(&[label], KeyBytes) {
        let _ = okm.fill(&mut out);
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use rand::SeedableRng;
    use rand_chacha::ChaCha20Rng;

    fn address(text: &str) -> SocketAddr {
        text.parse().expect("an address")
    }

    /// Ids of an endpoint that has its port alone.
    fn alone(secret: u8, bytes: usize) -> OwnIds {
        OwnIds::new(&[secret; 32], bytes, Worker::alone())
    }

    #[test]
    fn only_who_gave_an_id_out_has_a_word_for_it_and_only_for_its_peer() {
        let mut rng = ChaCha20Rng::from_seed([1; 32]);
        let (here, there) = (address("192.0.2.1:1000"), address("192.0.2.1:1001"));
        let ids = alone(7, 8);
        let id = ids.draw(&mut rng, here);
        let word = ids.reset_token(&id, here).expect("its own");
        assert_eq!(alone(7, 8).reset_token(&id, here), Some(word), "after a restart");
        assert_eq!(ids.reset_token(&id, address("[::ffff:192.0.2.1]:1000")), Some(word));
        assert_eq!(ids.reset_token(&id, there), None, "another peer");
        assert_eq!(alone(8, 8).reset_token(&id, here), None, "another instance");
        for bit in 0..64 {
            let mut bytes = id.as_slice().to_vec();
            bytes[bit / 8] ^= 1 << (bit % 8);
            let forged = ConnectionId::new(&bytes).expect("8 bytes");
            assert_eq!(ids.reset_token(&forged, here), None, "bit {bit}");
        }
    }

    /// Also those of retries: a token is good with the worker that gave it.
    #[test]
    fn all_ids_lead_to_their_worker() {
        let mut rng = ChaCha20Rng::from_seed([1; 32]);
        for worker in Worker::crew(5) {
            let ids = OwnIds::new(&[7; 32], 8, worker.clone());
            for _ in 0..100 {
                let drawn = ids.draw(&mut rng, address("192.0.2.1:1000"));
                for id in [drawn, ids.draw_for_retry(&mut rng, 8)] {
                    let packet = [[0x40].as_slice(), id.as_slice()].concat();
                    assert_eq!(super::super::worker_of(&packet, 5), worker.index());
                }
            }
        }
    }

    #[test]
    fn ids_without_room_for_a_check_have_no_word() {
        let mut rng = ChaCha20Rng::from_seed([1; 32]);
        let here = address("192.0.2.1:1000");
        for bytes in 0..=uts_wire::MAX_CID_LEN {
            let ids = alone(7, bytes);
            let id = ids.draw(&mut rng, here);
            assert_eq!(id.len(), bytes);
            assert_eq!(ids.reset_token(&id, here).is_some(), bytes >= CHECKED_CID_BYTES, "{bytes} bytes");
        }
    }
}
