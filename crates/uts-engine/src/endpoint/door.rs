//! The door: clients that may come in, how many have, and what strangers are answered.

use super::initial_suite;
use super::limits::ResetLimit;
use super::reflectors;
use super::tickets::Tickets;
use super::workers::{Counts, Worker};
use crate::config::EndpointConfig;
use crate::connection::{EarlyRequest, HandshakeMemory, SharedTickets};
use crate::event::ConnectionHandle;
use crate::token::TokenKeys;
use rand::Rng;
use std::collections::VecDeque;
use std::net::{IpAddr, SocketAddr};
use std::sync::{Arc, Mutex, MutexGuard};

/// Answers to strangers (retries, refusals, resets) that may wait to be sent: more are not worth
/// the memory.
const ANSWERS_MAX: usize = 64;

/// An answer to a stranger.
pub(super) struct Answer {
    pub remote: SocketAddr,
    pub local: Option<IpAddr>,
    pub bytes: Vec<u8>,
}

/// Knowledge of clients that come, and of clients that are in.
pub(super) struct Door {
    pub tokens: Option<TokenKeys>,
    pub reset_limit: ResetLimit,
    /// Where this endpoint is among those that share its port.
    pub worker: Worker,
    /// Handshakes under way that others have begun.
    pub handshakes: usize,
    pub handshake_memory: HandshakeMemory,
    /// Nobody else is let in.
    pub is_closed: bool,
    /// First packets that were answered by a refusal.
    pub refused: u64,
    /// Connections whose handshake a client has finished, and that nobody has taken yet.
    pub accepted: VecDeque<ConnectionHandle>,
    answers: VecDeque<Answer>,
    /// Tickets for early requests, if such are taken.
    pub tickets: Option<SharedTickets>,
    /// Early requests that nobody has taken yet.
    pub early: VecDeque<(ConnectionHandle, EarlyRequest)>,
}

/// Early requests that may wait to be taken. Clients make more by their connections.
pub(super) const EARLY_REQUESTS_MAX: usize = 1024;

impl Door {
    pub fn new(config: &EndpointConfig, rng: &mut impl Rng) -> Self {
        let mut token_key = [0; 32];
        rng.fill_bytes(&mut token_key);
        let worker = config.worker.clone().unwrap_or_else(Worker::alone);
        worker.counts().crowd.set_max(config.connections_per_address_max);
        let tickets = config.takes_early.then(initial_suite).flatten().map(|suite| {
            let mut seed = [0; 32];
            rng.fill_bytes(&mut seed);
            let new = || Arc::new(Mutex::new(Tickets::new(suite, seed)));
            worker.counts().tickets.get_or_insert_with(new).clone()
        });
        Door {
            tickets,
            early: VecDeque::new(),
            tokens: TokenKeys::new(&token_key),
            reset_limit: ResetLimit::new(rng.next_u64()),
            worker,
            handshakes: 0,
            handshake_memory: HandshakeMemory::new(config.handshake_bytes_max),
            is_closed: false,
            refused: 0,
            accepted: VecDeque::new(),
            answers: VecDeque::new(),
        }
    }

    /// Counts of what is held at this port, by all its workers.
    pub fn counts(&self) -> MutexGuard<'_, Counts> {
        self.worker.counts()
    }

    /// A handshake that a client began is over, either way.
    pub fn on_handshake_over(&mut self) {
        self.handshakes = self.handshakes.saturating_sub(1);
    }

    /// True if another answer may wait.
    pub fn has_room_to_answer(&self) -> bool {
        self.answers.len() < ANSWERS_MAX
    }

    /// Answers a stranger, from the address of this host that it came to.
    pub fn answer(&mut self, remote: SocketAddr, local: Option<IpAddr>, bytes: Vec<u8>) {
        // M-15
        if !reflectors::is_one(remote) {
            self.answers.push_back(Answer { remote, local, bytes });
        }
    }

    pub fn next_answer(&mut self) -> Option<Answer> {
        self.answers.pop_front()
    }
}
