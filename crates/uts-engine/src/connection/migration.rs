//! Migration: the connection follows a peer that is reached at another address, and goes on when
//! this end has another (migration.md; RFC 9000 section 9).
//!
//! News from elsewhere -> [`Open::follow`]: packets go there, on trial, and both places are
//! challenged -> a path response proves one of them ([`Open::on_path_response`]), or the
//! trial ends where it began. After a trial that ended there, news from elsewhere makes this end
//! challenge the place aside, and nothing else, for a while.

use super::receive::inbound::{Arrived, Dropped};
use super::receive::incoming::Ecn;
use super::stage::Open;
use super::{Connection, Side, State};
use crate::endpoint::history::Known;
use crate::event::Event;
use core::time::Duration;
use std::net::{IpAddr, SocketAddr};
use uts_functions::Time;
use uts_functions::protection::Protection;
use uts_wire::ConnectionId;
use uts_wire::frame::NewId;
use uts_wire::packet::is_long;

/// A trial ends after so many probe time-outs, and not before this (M-4).
const TRIAL_TIMEOUTS: u32 = 6;
const TRIAL_MIN: Duration = Duration::from_millis(300);

/// After a trial that ended where it began no other begins for so many probe time-outs, and not
/// before this (M-12).
const CALM_TIMEOUTS: u32 = 8;
const CALM_MIN: Duration = Duration::from_secs(1);

/// A datagram from elsewhere that is shorter is not answered with a challenge aside, which is no
/// longer than three times as much (M-3).
const ASIDE_BYTES_MIN: u64 = 25;

/// Less room than this is not worth a packet. A Ping alone leaves more: a peer that says nothing
/// else from its new place is followed as well.
pub(super) const TRIAL_PACKET_BYTES: usize = 3 * ASIDE_BYTES_MIN as usize;

/// Where the peer is, and where packets to it leave from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct PeerPlace {
    pub remote: SocketAddr,
    /// The address of this host that packets come to, where that is known.
    pub local: Option<IpAddr>,
}

/// The peer may be at another place.
#[derive(Clone, Copy, Debug)]
pub(crate) struct News {
    pub place: PeerPlace,
    /// Knowledge of the way there that is remembered.
    pub known: Option<Known>,
    /// Numbers that nobody can guess, for the challenges of this place and of the one before.
    pub luck: [u64; 2],
}

/// State of an end's move. There is hardly ever one, so it takes no room until then.
#[derive(Debug, Default)]
pub(super) struct Migration(Option<Box<Moves>>);

#[derive(Debug, Default)]
struct Moves {
    trial: Option<Trial>,
    /// A challenge to a place that packets do not go to.
    aside: Option<Aside>,
    /// No trial begins before.
    calm_until: Time,
    /// The host that a way led to which was left, and what was learnt of that way.
    left: Option<(IpAddr, Known)>,
}

impl Migration {
    fn trial(&self) -> Option<&Trial> {
        self.0.as_ref()?.trial.as_ref()
    }

    fn trial_mut(&mut self) -> Option<&mut Trial> {
        self.0.as_mut()?.trial.as_mut()
    }

    fn begin(&mut self, trial: Trial) {
        self.0.get_or_insert_default().trial = Some(trial);
    }

    fn take_trial(&mut self) -> Option<Trial> {
        let moves = self.0.as_mut()?;
        let trial = moves.trial.take();
        self.tidy();
        trial
    }

    fn tidy(&mut self) {
        self.0.take_if(|moves| {
            let is_over = moves.trial.is_none() && moves.aside.is_none() && moves.left.is_none();
            is_over && moves.calm_until == Time::ZERO
        });
    }

    fn is_calm(&self, now: Time) -> bool {
        self.0.as_ref().is_some_and(|moves| now < moves.calm_until)
    }

    fn aside_mut(&mut self) -> Option<&mut Aside> {
        self.0.as_mut()?.aside.as_mut()
    }

    fn take_aside(&mut self) -> Option<Aside> {
        let aside = self.0.as_mut()?.aside.take();
        self.tidy();
        aside
    }

    /// Place that the packet built aside goes to.
    pub fn aside_place(&self) -> Option<PeerPlace> {
        self.0.as_ref()?.aside.map(|aside| aside.place)
    }

    fn leave(&mut self, host: IpAddr, learnt: Known) {
        self.0.get_or_insert_default().left = Some((host, learnt));
    }

    /// The host that a way led to which was left, and what was learnt of that way.
    pub fn take_left(&mut self) -> Option<(IpAddr, Known)> {
        let left = self.0.as_mut()?.left.take();
        self.tidy();
        left
    }
}

/// A place that the peer has not proved yet.
#[derive(Debug)]
struct Trial {
    /// It was here when it last did.
    proved: PeerPlace,
    /// It is this end that has moved.
    is_own: bool,
    is_new_path: bool,
    /// Knowledge that was learnt of the way to the proved place, and knowledge that is remembered
    /// of the way to this one.
    learnt: Option<Known>,
    known: Option<Known>,
    /// When the challenge is said again, and after how long the next time.
    again_at: Time,
    wait: Duration,
    until: Time,
}

/// A place that packets do not go to, and that may be where the peer is.
#[derive(Clone, Copy, Debug)]
struct Aside {
    place: PeerPlace,
    number: u64,
    /// Knowledge that is remembered of the way there.
    known: Option<Known>,
    /// The peer came from there with another id of this end's.
    has_other_id: bool,
    is_due: bool,
    was_said: bool,
    /// When it may be said again.
    again_at: Time,
}

impl Connection {
    /// Takes in a datagram that names this connection by `id`, and did not come from where the peer
    /// was. Says whether it was the peer's. (M-1)
    pub(crate) fn handle_from_elsewhere(
        &mut self,
        now: Time,
        (news, id): (News, ConnectionId),
        ecn: Option<Ecn>,
        datagram: &mut [u8],
    ) -> bool {
        if datagram.first().is_some_and(|first| is_long(*first)) {
            return self.handle_handshake_from_elsewhere(now, news, ecn, datagram);
        }
        self.open_mut().is_some_and(|open| open.handle_from_elsewhere(now, (news, id), ecn, datagram))
    }

    /// A client's translator may change its mind while the handshake is under way, too: a server
    /// goes on with it where an authentic packet of it comes from, and repeats there what went to
    /// the place before. (M-11)
    fn handle_handshake_from_elsewhere(
        &mut self,
        now: Time,
        news: News,
        ecn: Option<Ecn>,
        datagram: &mut [u8],
    ) -> bool {
        if self.side() != Side::Server || !self.is_handshaking() {
            return false;
        }
        let (before, bytes) = (self.stats().packets_received, datagram.len() as u64);
        self.handle_packets(now, ecn, datagram);
        if self.stats().packets_received == before {
            return false;
        }
        match &mut self.state {
            State::Establishing(fresh) => {
                fresh.identity.go_to(news.place);
                fresh.establishing.doubt_place(bytes);
            }
            State::Open(open) => {
                let proved = open.identity.place();
                open.go_to(news.place);
                open.establishing.doubt_place(bytes);
                if open.life.is_live() {
                    open.begin_trial(now, (proved, None), news, false);
                    open.ask_before(now, proved, news.luck[1]);
                }
            }
        }
        true
    }
}

impl Open {
    /// Takes in a short packet that names this connection by `id`, and did not come from where the
    /// peer was. Says whether it was the peer's.
    fn handle_from_elsewhere(
        &mut self,
        now: Time,
        (news, id): (News, ConnectionId),
        ecn: Option<Ecn>,
        datagram: &mut [u8],
    ) -> bool {
        let is_possible = self.life.is_live() && self.establishing.confirmed && !id.is_empty();
        if !is_possible {
            return false;
        }
        self.wake(now);
        let inbound = &self.ways.inbound;
        let largest = inbound.arrivals.largest.map(|(largest, _)| largest);
        let bytes = datagram.len() as u64;
        let opened = match inbound.unseal(&id, datagram) {
            Ok(opened) => opened,
            // M-14
            Err(Dropped::Forged) => {
                self.on_forged();
                return false;
            }
            Err(_) => return false,
        };
        let stack = inbound.stack(opened.epoch);
        // Without a tag anybody could take the connection away.
        if stack.and_then(|stack| stack.protection.as_ref()).is_none_or(|p| p.tag_bytes() == 0) {
            return false;
        }
        self.ways.stats.bytes_received += bytes;
        let is_news = largest.is_none_or(|largest| opened.number > largest);
        let has_other_id = self.identity.local_cid != id;
        let at = Arrived::of(now, ecn, opened.epoch, opened.number);
        self.take_in(&at, &datagram[opened.frames]);
        if self.life.is_live() && is_news {
            self.identity.came_by(&id);
            self.follow(now, news, (has_other_id, bytes));
        }
        true
    }

    /// The peer is at another place, of which this is the news: a packet of so many bytes. (M-2)
    fn follow(&mut self, now: Time, news: News, (has_other_id, bytes): (bool, u64)) {
        if self.migration.is_calm(now) {
            if bytes >= ASIDE_BYTES_MIN {
                self.ask_aside(now, news, has_other_id);
            }
            return;
        }
        let was_on_trial = self.migration.trial().is_some();
        let (proved, learnt) = self.proved();
        self.go_to(news.place);
        if proved.remote == news.place.remote {
            // M-4: it is where it was.
            self.establishing.address_proved = true;
            self.parts.control.drop_challenge();
            self.migration.take_aside();
            if was_on_trial {
                self.calm(now);
            }
            return;
        }
        if has_other_id {
            self.change_id();
        }
        // M-3
        self.establishing.doubt_address(bytes);
        self.begin_trial(now, (proved, learnt), news, false);
        // Who has taken another id has moved, and knows it. A copy has the same one.
        if has_other_id {
            self.migration.take_aside();
        } else {
            self.ask_before(now, proved, news.luck[1]);
        }
    }

    /// The peer may be where it was before a trial. (M-12)
    fn ask_before(&mut self, now: Time, place: PeerPlace, number: u64) {
        // What was asked before another trial is answered all the same: who sends copies from many
        // places makes many trials.
        let wait = self.ways.outbound.probe_timeout();
        if let Some(aside) = self.migration.aside_mut().filter(|aside| aside.place == place) {
            if now >= aside.again_at {
                (aside.is_due, aside.again_at) = (true, now + wait);
            }
            return;
        }
        let aside = Aside {
            place,
            number,
            known: None,
            has_other_id: false,
            is_due: true,
            was_said: false,
            again_at: now + wait,
        };
        self.migration.0.get_or_insert_default().aside = Some(aside);
    }

    /// The peer may be at a place that packets do not go to. (M-12)
    fn ask_aside(&mut self, now: Time, News { place, known, luck }: News, has_other_id: bool) {
        let wait = self.ways.outbound.probe_timeout();
        let moves = self.migration.0.get_or_insert_default();
        if moves.aside.as_ref().is_some_and(|aside| now < aside.again_at) {
            return;
        }
        let before = moves.aside.filter(|aside| aside.place == place);
        let aside = Aside {
            place,
            number: before.map_or(luck[0], |before| before.number),
            known,
            has_other_id,
            is_due: true,
            was_said: before.is_some_and(|before| before.was_said),
            again_at: now + wait,
        };
        moves.aside = Some(aside);
    }

    /// The number of a challenge that is to be said aside.
    pub(super) fn take_due_aside(&mut self) -> Option<u64> {
        let aside = self.migration.aside_mut().filter(|aside| aside.is_due)?;
        (aside.is_due, aside.was_said) = (false, true);
        Some(aside.number)
    }

    /// No trial begins for a while.
    fn calm(&mut self, now: Time) {
        let long = self.ways.outbound.probe_timeout();
        let moves = self.migration.0.get_or_insert_default();
        moves.calm_until = now + long.saturating_mul(CALM_TIMEOUTS).max(CALM_MIN);
    }

    /// The place that was proved last, and what was learnt of the way there. A trial is over.
    fn proved(&mut self) -> (PeerPlace, Option<Known>) {
        match self.migration.take_trial() {
            Some(trial) => (trial.proved, trial.learnt),
            None => (self.identity.place(), self.learnt()),
        }
    }

    pub(in crate::connection) fn on_moved_here(&mut self, now: Time, known: Option<Known>, luck: u64) {
        if !self.life.is_live() || !self.establishing.confirmed {
            return;
        }
        self.wake(now);
        self.change_id();
        self.identity.local = None;
        let (proved, _) = self.proved();
        self.migration.0 = None;
        self.restart_path(now, None, known);
        self.begin_trial(now, (proved, None), News { place: proved, known: None, luck: [luck; 2] }, true);
    }

    fn begin_trial(
        &mut self,
        now: Time,
        (proved, learnt): (PeerPlace, Option<Known>),
        news: News,
        is_own: bool,
    ) {
        self.parts.control.challenge(news.luck[0]);
        let outbound = &mut self.ways.outbound;
        let wait = outbound.probe_timeout();
        outbound.begin_place();
        let until = now + wait.saturating_mul(TRIAL_TIMEOUTS).max(TRIAL_MIN);
        let (is_new_path, known) = (proved.remote.ip() != news.place.remote.ip(), news.known);
        let again_at = now + wait;
        let trial = Trial { proved, is_own, is_new_path, learnt, known, again_at, wait, until };
        self.migration.begin(trial);
        self.identity.has_news = true;
    }

    /// Packets go to another place from now on.
    fn go_to(&mut self, place: PeerPlace) {
        self.identity.go_to(place);
        self.ways.outbound.begin_place();
    }

    /// The peer has answered a challenge: it is where packets go. (M-4, M-6)
    pub(super) fn on_path_response(&mut self, now: Time, number: u64) {
        let Some(round_trip) = self.parts.control.on_path_response(now, number) else {
            return self.on_response_aside(now, number);
        };
        self.migration.take_aside();
        let Some(trial) = self.migration.take_trial() else { return };
        self.on_proved(now, &trial, round_trip);
    }

    /// The peer has answered a challenge that went to a place other than packets do. (M-12)
    fn on_response_aside(&mut self, now: Time, number: u64) {
        let answered = self.migration.aside_mut().is_some_and(|a| a.was_said && a.number == number);
        let Some(aside) = self.migration.take_aside().filter(|_| answered) else { return };
        if let Some(trial) = self.migration.take_trial() {
            // It is where it was. Where it seemed to be it may still answer.
            let place = self.identity.place();
            if let Some(number) = self.parts.control.take_challenge() {
                let again_at = now + trial.wait;
                let rest = Aside { place, number, known: trial.known, is_due: false, again_at, ..aside };
                self.migration.0.get_or_insert_default().aside = Some(rest);
            }
            self.return_to(now, trial.proved);
            return;
        }
        let (proved, learnt) = (self.identity.place(), self.learnt());
        self.go_to(aside.place);
        if aside.has_other_id {
            self.change_id();
        }
        let is_new_path = proved.remote.ip() != aside.place.remote.ip();
        let (again_at, wait, until) = (now, Duration::ZERO, now);
        let known = aside.known;
        let trial = Trial { proved, is_own: false, is_new_path, learnt, known, again_at, wait, until };
        self.on_proved(now, &trial, None);
    }

    /// Packets go to the place that was proved last, and nothing is tried for a while. (M-4, M-12)
    fn return_to(&mut self, now: Time, proved: PeerPlace) {
        self.establishing.address_proved = true;
        self.go_to(proved);
        self.calm(now);
    }

    /// The peer is where packets go to. (M-4, M-6)
    fn on_proved(&mut self, now: Time, trial: &Trial, round_trip: Option<Duration>) {
        self.establishing.address_proved = true;
        if !trial.is_own {
            if trial.is_new_path {
                if let Some(learnt) = trial.learnt {
                    self.migration.leave(trial.proved.remote.ip(), learnt);
                }
                self.restart_path(now, round_trip, trial.known);
            }
            if self.identity.side == Side::Server {
                self.parts.ids.replace(); // M-8
            }
        }
        self.identity.has_news = true;
        self.ways.events.push_back(Event::Moved { remote: self.identity.remote, is_peer: !trial.is_own });
    }

    /// Begins with a new path, of which `known` is remembered: facts of the old path are not true
    /// of it. (M-6)
    fn restart_path(&mut self, now: Time, round_trip: Option<Duration>, known: Option<Known>) {
        self.parts.size.restart(now);
        self.parts.size.tell(&mut self.ways);
        let packet_bytes = self.parts.size.current() as u64;
        let seed = self.identity.seed;
        let outbound = &mut self.ways.outbound;
        outbound.restart_path(now, (packet_bytes, seed), round_trip, known.as_ref());
        self.ways.marking.restart(outbound.ledger.next_number());
        if let Some(home) = self.agreement.adaptation.as_ref().map(|adaptation| *adaptation.home()) {
            self.start_policy(now, home);
        }
    }

    pub(in crate::connection) fn learnt_of(&self) -> Option<(IpAddr, Known)> {
        match self.migration.trial() {
            Some(trial) => trial.learnt.map(|learnt| (trial.proved.remote.ip(), learnt)),
            None if self.establishing.address_proved => Some((self.identity.remote.ip(), self.learnt()?)),
            None => None,
        }
    }

    /// When something is due on a trial.
    pub(super) fn migration_timeout(&self) -> Option<Time> {
        self.migration.trial().map(|trial| trial.again_at.min(trial.until))
    }

    pub(super) fn on_migration_timeout(&mut self, now: Time) {
        let Some(trial) = self.migration.trial_mut() else { return };
        if now >= trial.until {
            let (proved, is_own) = (trial.proved, trial.is_own);
            self.migration.take_trial();
            self.parts.control.drop_challenge();
            if !is_own {
                self.migration.take_aside();
                self.return_to(now, proved);
            }
        } else if now >= trial.again_at {
            trial.wait = trial.wait.saturating_mul(2);
            trial.again_at = now + trial.wait;
            if let Some(aside) = self.migration.aside_mut() {
                aside.is_due = true;
            }
            self.parts.control.challenge_again();
            self.ways.outbound.ask_for_packet();
        }
    }

    /// True if sending has to wait until the peer has proved where it is, or has sent more. (M-3)
    pub(super) fn waits_for_proof(&self) -> bool {
        self.amplification_room() < TRIAL_PACKET_BYTES
    }

    // ---- ids
    // --------------------------------------------------------------------------------

    /// The connection is established, and the peer keeps so many spare ids.
    pub(super) fn begin_ids(&mut self, spare: u8) {
        self.parts.ids.begin(self.identity.local_cid, &self.identity.peer_cid, spare);
    }

    /// The peer is known by another id, if it has given one, so that an observer of both paths does
    /// not find it on both. (M-9)
    fn change_id(&mut self) {
        if let Some(new) = self.parts.ids.change() {
            self.use_id(&new);
        }
    }

    /// Packets to the peer carry this id of its from now on.
    pub(super) fn use_id(&mut self, new: &NewId) {
        self.identity.peer_cid = new.id;
        // P-53: servers give tokens.
        self.identity.peer_reset_token = new.reset_token.filter(|_| self.identity.side == Side::Client);
        self.identity.has_news = true;
    }

    pub(in crate::connection) fn wants_id(&self) -> bool {
        self.life.is_live() && self.establishing.confirmed && self.parts.ids.wants_one()
    }

    /// The handshake is confirmed: ids may be given.
    pub(super) fn on_confirmed(&mut self) {
        self.end_early();
        self.establishing.confirmed = true;
        self.parts.size.is_begun = true;
        self.establishing.handshake = None;
        self.identity.has_news = true;
    }
}
