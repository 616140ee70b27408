//! Tickets of a server, each for one early request. What a ticket says only the server can read. It
//! keeps nothing of those that were not used. (K-23, K-26)

use core::time::Duration;
use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha20Rng;
use ring::hmac;
use rustls::quic;
use std::collections::{BTreeSet, VecDeque};
use uts_functions::Time;
use uts_wire::ConnectionId;
use uts_wire::library::Ticket;

/// A ticket is good for at least so long. Keys are as old as twice that at the most, so that who
/// learns them can read early requests of that time and no others.
const LIFETIME: Duration = Duration::from_secs(3600);

/// Tickets of the keys of one hour that can be used. Of more the server cannot say that they were
/// not used before, and takes none.
const USED_MAX: usize = 1 << 16;

const SERIAL_BYTES: usize = 8;
const TAG_BYTES: usize = 16;

/// Keys of an hour, and which of their tickets were used.
struct Generation {
    number: u64,
    since: Time,
    tag: hmac::Key,
    secret: hmac::Key,
    mask: hmac::Key,
    next: u64,
    used: BTreeSet<u64>,
}

/// A ticket of this server: the keys, and the number among theirs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Serial(u64, u64);

/// The tickets of the endpoints that share a port.
pub(crate) struct Tickets {
    suite: quic::Suite,
    rng: ChaCha20Rng,
    next: u64,
    /// The newest last: two at the most.
    generations: VecDeque<Generation>,
}

impl Tickets {
    /// Tickets whose keys follow from a seed that nobody else has, and that no other start of the
    /// server had.
    pub fn new(suite: quic::Suite, seed: [u8; 32]) -> Self {
        Tickets { suite, rng: ChaCha20Rng::from_seed(seed), next: 0, generations: VecDeque::new() }
    }

    /// One more.
    pub fn issue(&mut self, now: Time) -> Ticket {
        self.forget(now);
        if self.generations.back().is_none_or(|newest| now.since(newest.since) >= LIFETIME) {
            let mut key = || {
                let mut bytes = [0; 32];
                self.rng.fill_bytes(&mut bytes);
                hmac::Key::new(hmac::HMAC_SHA256, &bytes)
            };
            let (tag, secret, mask) = (key(), key(), key());
            let (number, used) = (self.next, BTreeSet::new());
            self.next += 1;
            self.generations.push_back(Generation { number, since: now, tag, secret, mask, next: 0, used });
        }
        let newest = self.generations.len() - 1;
        let generation = &mut self.generations[newest];
        let serial = generation.next;
        generation.next += 1;
        let left = (2 * LIFETIME).saturating_sub(now.since(generation.since));
        Ticket {
            lifetime_s: left.as_secs() as u32,
            secret: generation.secret_of(serial),
            words: generation.words_of(serial).as_slice().into(),
        }
    }

    /// Number and keys of a ticket of ours that is good and was not used, for the connection whose
    /// first packet went to this id. (K-24)
    pub fn keys(&mut self, now: Time, words: &[u8], dcid: &ConnectionId) -> Option<(Serial, quic::Keys)> {
        self.forget(now);
        let (masked, tag) = words.split_first_chunk::<SERIAL_BYTES>()?;
        let tag: &[u8; TAG_BYTES] = tag.try_into().ok()?;
        self.generations.iter().find_map(|generation| {
            let serial = u64::from_be_bytes(generation.masked(*masked, tag));
            let is_ours = serial < generation.next && generation.words_of(serial) == *words;
            if !is_ours || generation.used.contains(&serial) || generation.used.len() >= USED_MAX {
                return None;
            }
            let keys = early_keys(&self.suite, &generation.secret_of(serial), dcid, rustls::Side::Server);
            Some((Serial(generation.number, serial), keys))
        })
    }

    /// A ticket is used; says whether it had not been before.
    pub fn use_up(&mut self, Serial(number, serial): Serial) -> bool {
        let generation = self.generations.iter_mut().find(|generation| generation.number == number);
        generation.is_some_and(|generation| generation.used.insert(serial))
    }

    fn forget(&mut self, now: Time) {
        self.generations.retain(|generation| now.since(generation.since) < 2 * LIFETIME);
    }
}

impl Generation {
    fn secret_of(&self, serial: u64) -> [u8; 32] {
        let mut secret = [0; 32];
        secret.copy_from_slice(hmac::sign(&self.secret, &serial.to_be_bytes()).as_ref());
        secret
    }

    fn words_of(&self, serial: u64) -> [u8; SERIAL_BYTES + TAG_BYTES] {
        let sum = hmac::sign(&self.tag, &serial.to_be_bytes());
        let mut tag = [0; TAG_BYTES];
        tag.copy_from_slice(&sum.as_ref()[..TAG_BYTES]);
        let mut words = [0; SERIAL_BYTES + TAG_BYTES];
        words[..SERIAL_BYTES].copy_from_slice(&self.masked(serial.to_be_bytes(), &tag));
        words[SERIAL_BYTES..].copy_from_slice(&tag);
        words
    }

    /// Number of a ticket with its mask, or without if it had one: the number of tickets is nobody
    /// else's business.
    fn masked(&self, serial: [u8; SERIAL_BYTES], tag: &[u8; TAG_BYTES]) -> [u8; SERIAL_BYTES] {
        let mask = hmac::sign(&self.mask, tag);
        core::array::from_fn(|n| serial[n] ^ mask.as_ref()[n])
    }
}

/// Keys of the level Early: those of the level Initial, from the ticket's secret and the id. (K-24)
pub(crate) fn early_keys(
    suite: &quic::Suite,
    secret: &[u8; 32],
    dcid: &ConnectionId,
    side: rustls::Side,
) -> quic::Keys {
    suite.keys(&[secret.as_slice(), dcid.as_slice()].concat(), side, quic::Version::V1)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::endpoint::initial_suite;

    fn tickets() -> Tickets {
        Tickets::new(initial_suite().expect("a suite"), [3; 32])
    }

    fn id() -> ConnectionId {
        ConnectionId::new(&[1; 8]).expect("short")
    }

    #[test]
    fn a_ticket_is_good_once() {
        let (mut tickets, now) = (tickets(), Time::from_millis(5));
        let all: Vec<Ticket> = (0..100).map(|_| tickets.issue(now)).collect();
        for ticket in &all {
            let (serial, _) = tickets.keys(now, &ticket.words, &id()).expect("good");
            // Two ends that share a port may both have looked.
            assert!(tickets.use_up(serial) && !tickets.use_up(serial));
            assert!(tickets.keys(now, &ticket.words, &id()).is_none(), "used");
        }
        let secrets: BTreeSet<[u8; 32]> = all.iter().map(|ticket| ticket.secret).collect();
        assert_eq!(secrets.len(), all.len());
    }

    #[test]
    fn what_is_changed_or_of_another_start_is_none() {
        let (mut tickets, now) = (tickets(), Time::ZERO);
        let ticket = tickets.issue(now);
        for byte in 0..ticket.words.len() {
            let mut forged = ticket.words.clone();
            forged[byte] ^= 1;
            assert!(tickets.keys(now, &forged, &id()).is_none(), "byte {byte}");
        }
        for length in 0..ticket.words.len() {
            assert!(tickets.keys(now, &ticket.words[..length], &id()).is_none(), "{length} bytes");
        }
        let mut other = Tickets::new(initial_suite().expect("a suite"), [4; 32]);
        other.issue(now);
        assert!(other.keys(now, &ticket.words, &id()).is_none());
    }

    #[test]
    fn a_ticket_is_good_for_as_long_as_it_says() {
        let mut tickets = tickets();
        for minutes in [0, 1, 59, 60, 61, 119, 121, 200, 1000] {
            let now = Time::ZERO + Duration::from_secs(60 * minutes);
            let ticket = tickets.issue(now);
            let lifetime = Duration::from_secs(u64::from(ticket.lifetime_s));
            assert!(lifetime >= LIFETIME && lifetime <= 2 * LIFETIME, "{minutes}: {lifetime:?}");
            let mut later = Tickets { generations: VecDeque::new(), ..self::tickets() };
            core::mem::swap(&mut later.generations, &mut tickets.generations);
            assert!(later.keys(now + lifetime - Duration::from_secs(1), &ticket.words, &id()).is_some());
            let known = later.keys(now + lifetime + Duration::from_secs(1), &ticket.words, &id());
            assert!(known.is_none(), "{minutes}");
            core::mem::swap(&mut later.generations, &mut tickets.generations);
        }
    }

    #[test]
    fn no_more_are_taken_than_can_be_remembered() {
        let (mut tickets, now) = (tickets(), Time::ZERO);
        for n in 0..USED_MAX as u64 + 10 {
            let ticket = tickets.issue(now);
            let known = tickets.keys(now, &ticket.words, &id());
            assert_eq!(known.is_some(), n < USED_MAX as u64, "{n}");
            if let Some((serial, _)) = known {
                tickets.use_up(serial);
            }
        }
        // Those of the next hour are.
        let later = now + LIFETIME;
        let ticket = tickets.issue(later);
        assert!(tickets.keys(later, &ticket.words, &id()).is_some());
    }
}
