//! Door of a connection: calls of the endpoint and of the application, and the answers of one
//! that is not established yet. Calls about flows are in `flows/door.rs`.

use super::establish::early::{EARLY_BYTES_MAX, EarlyError, EarlyRequest};
use super::migration::PeerPlace;
use super::receive::incoming::Ecn;
use super::{Connection, ExchangeError, State, both};
use crate::endpoint::history::Known;
use crate::event::Direction;
use crate::requirements::Requirements;
use crate::selector::Contradiction;
use bytes::Bytes;
use core::time::Duration;
use rustls::pki_types::CertificateDer;
use std::net::IpAddr;
use std::sync::{Arc, Weak};
use uts_functions::{Function, Profile, Time};
use uts_wire::ConnectionId;

/// Calls of the application.
impl Connection {
    /// Asks the peer to change the profile of group 0 of a direction. Its progress comes as
    /// [`ExchangeEvent`](crate::ExchangeEvent)s.
    ///
    /// # Errors
    /// [`ExchangeError`] if the profile cannot be had, or another exchange of the direction is
    /// under way.
    pub fn request_profile(
        &mut self,
        now: Time,
        direction: Direction,
        profile: Profile,
    ) -> Result<u32, ExchangeError> {
        let open = self.open_mut().ok_or(ExchangeError::NotConnected)?;
        open.request_profile(now, direction, profile)
    }

    /// Leaves a mechanism alone from now on: it is neither asked for nor agreed to. What is in use
    /// stays, and the peer, which has been told that this end has it, may still ask, and is
    /// refused.
    pub fn withdraw(&mut self, function: Function, mechanism: u8) {
        let config = both!(&mut self.state, core => &mut core.ways.config);
        Arc::make_mut(config).withdrawn.push((function, mechanism));
    }

    /// Uses a profile for group 0 of what this end sends from now on, and not once the peer has
    /// agreed: its packets carry the request. If the peer refuses, what it could not read is sent
    /// again under what was in use before. Progress comes as
    /// [`ExchangeEvent`](crate::ExchangeEvent)s. Where that cannot be taken back, or the peer does
    /// not read such packets, it is asked for as by [`Self::request_profile`] (exchange.md X-38).
    ///
    /// # Errors
    /// [`ExchangeError`] if the profile cannot be had, or another exchange of the direction is
    /// under way.
    pub fn use_profile(&mut self, now: Time, profile: Profile) -> Result<u32, ExchangeError> {
        self.open_mut().ok_or(ExchangeError::NotConnected)?.use_profile(now, profile)
    }

    /// The application's needs have changed: the selector chooses anew, knowing the path, and the
    /// difference is asked for.
    ///
    /// # Errors
    /// [`Contradiction`] if the requirements cannot be met, or change what is fixed once a
    /// connection is established; nothing changes then.
    pub fn set_requirements(&mut self, now: Time, requirements: Requirements) -> Result<(), Contradiction> {
        match &mut self.state {
            State::Establishing(fresh) => fresh.set_requirements(requirements),
            State::Open(open) => open.set_requirements(now, requirements),
        }
    }

    /// The first function or mechanism that the two ends write by different numbers, and how many
    /// others; `None` = there is none, or the connection is not open. They understand each other
    /// all the same.
    pub fn numbers_difference(&self) -> Option<String> {
        let State::Open(open) = &self.state else { return None };
        open.ways.rare.as_ref()?.numbers.as_ref()?.difference()
    }

    /// For how long nothing has been heard of the peer although something is expected of it; `None`
    /// = nothing is, or the connection is not open. It is zero mostly, and some round trips where
    /// packets are lost.
    pub fn silence(&self, now: Time) -> Option<Duration> {
        self.open()?.silence(now)
    }

    /// Asks at once whether the peer is there.
    pub fn ask(&mut self, now: Time) {
        if let Some(open) = self.open_mut() {
            open.ask(now);
        }
    }

    /// Others need what this connection holds: its peer is asked whether it is there, and given up
    /// if it does not answer in time. (timing.md R-21)
    pub fn ask_for_answer(&mut self, now: Time) {
        if let Some(open) = self.open_mut() {
            open.ask_for_answer(now);
        }
    }

    /// True if its peer has yet to answer [`Connection::ask_for_answer`].
    pub fn is_asked_for_answer(&self) -> bool {
        self.open().is_some_and(|open| open.is_asked_for_answer())
    }

    /// Closes the connection; what was not delivered is lost. (F-13)
    pub fn close(&mut self, now: Time, code: u64, reason: &str) {
        both!(&mut self.state, core => core.close(now, code, reason));
    }

    /// Closes a connection that this end does not take, for this reason. The peer, which has shown
    /// its address and its key, hears it as [`CloseReason::Refused`](crate::CloseReason::Refused).
    pub fn refuse(&mut self, now: Time, why: &str) {
        both!(&mut self.state, core => core.refuse(now, why));
    }

    /// Bytes of memory that the connection takes, its data and the TLS library's state left out.
    /// The latter is gone once the handshake is confirmed.
    pub fn memory_bytes(&self) -> usize {
        self.memory_parts().into_iter().map(|(_, bytes)| bytes).sum()
    }

    /// The same, by part.
    pub fn memory_parts(&self) -> [(&'static str, usize); 10] {
        match &self.state {
            State::Establishing(fresh) => fresh.memory_parts(),
            State::Open(open) => open.memory_parts(),
        }
    }

    /// Bytes of memory that flows take: what was received and not read, what was written and not
    /// acknowledged, and what it takes to keep track of both. It is bounded by
    /// [`ConnectionConfig::memory_bytes_max`](crate::ConnectionConfig::memory_bytes_max) and
    /// [`EndpointConfig::memory_bytes_max`](crate::EndpointConfig::memory_bytes_max).
    pub fn held_bytes(&self) -> usize {
        self.open().map_or(0, |open| open.ways.flows.incoming.charge() + open.ways.flows.outgoing.held())
    }
}

/// Calls of tests.
impl Connection {
    /// True if nothing is under way: no packet in flight, nothing waits to be sent, no exchange is
    /// being negotiated, no flow is open. For tests of what a connection comes to rest in.
    #[doc(hidden)]
    pub fn is_at_rest(&self) -> bool {
        self.open().is_none_or(|open| open.is_at_rest())
    }

    /// Timers and their instants, as text, for tests that find a connection busy.
    #[doc(hidden)]
    pub fn timers(&self) -> String {
        match &self.state {
            State::Establishing(fresh) => format!("handshake {:?}", fresh.handshake_timer()),
            State::Open(open) => open.timers(),
        }
    }

    /// A packet that carries just these frames, right or wrong: what a broken or hostile peer could
    /// send.
    #[doc(hidden)]
    pub fn packet_of(&mut self, now: Time, frames: &[u8]) -> Option<Vec<u8>> {
        self.open_mut()?.packet_of(now, frames)
    }

    /// Counts as if so many packets had been sealed under the keys in use. For tests, which cannot
    /// send 2^23 of them.
    #[doc(hidden)]
    pub fn age_keys(&mut self, packets: u64) {
        if let Some(open) = self.open_mut() {
            open.age_keys(packets);
        }
    }
}

/// Calls of the endpoint: the handshake.
impl Connection {
    /// The server asks for proof of address. Says whether this end gives it.
    pub(crate) fn on_retry(&mut self, initial: rustls::quic::Keys, scid: ConnectionId, token: Bytes) -> bool {
        match &mut self.state {
            State::Establishing(fresh) => fresh.on_retry(initial, scid, token),
            State::Open(_) => false,
        }
    }

    /// The server speaks other versions.
    pub(crate) fn on_version_refusal(&mut self, ours: String, theirs: String) {
        if let State::Establishing(fresh) = &mut self.state {
            fresh.on_version_refusal(ours, theirs);
        }
    }

    /// The early request of a client, once: when all of it and of the client's greeting is there.
    pub(crate) fn take_early_request(&mut self) -> Option<EarlyRequest> {
        match &mut self.state {
            State::Establishing(fresh) => fresh.take_early_request(),
            State::Open(_) => None,
        }
    }

    /// Answers the client's early request.
    pub(crate) fn answer_early(&mut self, answer: &[u8]) -> Result<(), EarlyError> {
        if answer.len() > EARLY_BYTES_MAX {
            return Err(EarlyError::TooLong(answer.len()));
        }
        match &mut self.state {
            State::Establishing(fresh) => fresh.answer_early(answer),
            State::Open(_) => Err(EarlyError::Over),
        }
    }

    /// Holds the peer's certificates together with the connection that was made before, if they are
    /// the same: a client often has many connections to one server.
    pub(crate) fn share_certificates(&mut self, last: &mut Option<Weak<[CertificateDer<'static>]>>) {
        both!(&mut self.state, core => core.establishing.share_certificates(last));
    }
}

/// Calls of the endpoint: place and ids.
impl Connection {
    /// Notes the id by which a packet of the peer has come.
    #[inline]
    pub(crate) fn came_by(&mut self, id: &ConnectionId) {
        both!(&mut self.state, core => core.identity.came_by(id));
    }

    /// Place that the packet built aside goes to.
    pub(crate) fn aside_place(&self) -> Option<PeerPlace> {
        self.open()?.migration.aside_place()
    }

    /// This end has moved, and knows it: its packets leave from elsewhere from now on. (M-9, M-10)
    pub(crate) fn on_moved_here(&mut self, now: Time, known: Option<Known>, luck: u64) {
        if let Some(open) = self.open_mut() {
            open.on_moved_here(now, known, luck);
        }
    }

    /// Knowledge that was learnt, and the host to which the way leads: never of a place that is not
    /// proved. (M-13)
    pub(crate) fn learnt_of(&self) -> Option<(IpAddr, Known)> {
        self.open()?.learnt_of()
    }

    /// The host that a way led to which was left, and what was learnt of that way.
    pub(crate) fn take_left(&mut self) -> Option<(IpAddr, Known)> {
        self.open_mut()?.migration.take_left()
    }

    /// True if place or ids have changed since this was last asked, or an id is wanted: see
    /// [`Connection::wants_id`], [`Connection::take_gone_ids`].
    #[inline]
    pub(crate) fn take_migration_news(&mut self) -> bool {
        let has_moved = both!(&mut self.state, core => core.identity.take_news());
        self.open_mut().is_some_and(|open| open.parts.ids.take_news()) || has_moved
    }

    /// The peer is to be given another id. (M-8)
    pub(crate) fn wants_id(&self) -> bool {
        self.open().is_some_and(|open| open.wants_id())
    }

    /// The peer is given another id.
    pub(crate) fn give_id(&mut self, id: ConnectionId, reset_token: Option<[u8; 16]>) {
        if let Some(open) = self.open_mut() {
            open.parts.ids.give(id, reset_token);
        }
    }

    /// Ids of this end by which nothing more will come.
    pub(crate) fn take_gone_ids(&mut self) -> Vec<ConnectionId> {
        self.open_mut().map_or_else(Vec::new, |open| open.parts.ids.take_gone())
    }

    /// All ids of this end beyond the id of the handshake.
    pub(crate) fn own_ids(&self) -> impl Iterator<Item = &ConnectionId> {
        self.open().into_iter().flat_map(|open| open.parts.ids.own())
    }
}

/// Calls of the endpoint: packets, and whether the peer is there.
impl Connection {
    /// Takes in datagrams of `segment_bytes` that came with one that was just taken in, as far as
    /// they are a run: each with nothing but the next bytes of a flow, its next messages, or whole
    /// ones that have no positions. One that is anything else is taken in, too, and ends the run;
    /// none is that is for another connection. Says how many bytes they are.
    pub(crate) fn handle_run(
        &mut self,
        now: Time,
        ecn: Option<Ecn>,
        segment_bytes: usize,
        datagrams: &mut [u8],
    ) -> usize {
        self.open_mut().map_or(0, |open| open.handle_run(now, ecn, segment_bytes, datagrams))
    }

    /// The peer has lost all state.
    pub(crate) fn on_stateless_reset(&mut self, now: Time) {
        if let Some(open) = self.open_mut() {
            open.on_stateless_reset(now);
        }
    }

    /// This end was stopped, and did nothing for so long after something was due: that is no
    /// silence of its peer. A client asks: the way back to it may be forgotten. (timing.md R-22)
    pub(crate) fn on_stopped(&mut self, now: Time, long: Duration) {
        if let Some(open) = self.open_mut() {
            open.on_stopped(now, long);
        }
    }

    /// The network says that nobody listens at the peer's port, or that there is no way to it. It
    /// may be wrong, or lie: the peer is asked at once. (timing.md R-15)
    pub(crate) fn on_unreachable(&mut self, now: Time) {
        if let Some(open) = self.open_mut() {
            open.on_unreachable(now);
        }
    }

    /// Closes a connection whose place others need. Its peer is told once, if it has shown to be at
    /// its address, and then nothing is kept of it.
    pub(crate) fn give_up(&mut self, now: Time, why: &str) {
        match &mut self.state {
            State::Establishing(fresh) if fresh.life.is_live() && !fresh.establishing.address_proved => {
                fresh.give_up_silently(why);
            }
            state => both!(state, core => core.give_up(now, why)),
        }
    }
}
