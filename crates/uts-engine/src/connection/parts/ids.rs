//! Ids by which each end is known (migration.md M-8, M-9): ids that this end has given out, and ids
//! that it was given. Both are few, whatever the peer says.

use super::super::Ways;
use super::super::packet::Packet;
use super::super::receive::inbound::Arrived;
use super::{Effect, Interest, LostPacket, Part, Reading, Token};
use crate::event::CloseReason;
use smallvec::SmallVec;
use uts_functions::Time;
use uts_wire::ConnectionId;
use uts_wire::frame::{Frame, NewId, RetireId};

/// Ids of the peer's that are kept beside the one in use: what this end says of itself (P-52).
pub(crate) const SPARE_IDS: u8 = 1;

/// Ids of this end's that the peer may use at a time: one, one to move with, and while they are
/// replaced as many again.
const OWN_MAX: usize = 4;

/// Retired ids that the peer may not have heard of yet. One that hands out ids faster than it
/// listens is broken.
const RETIRED_MAX: usize = 8;

/// Statement of a frame that must come true: it is said until it has arrived.
#[derive(Debug)]
struct Said<T> {
    what: T,
    /// It is to be said, or said again.
    waits: bool,
}

/// Ids of both ends.
#[derive(Debug, Default)]
pub(crate) struct Ids {
    /// Ids of this end that the peer may use, by their numbers. Empty if there are none to give.
    own: SmallVec<[(u32, ConnectionId); 2]>,
    /// Number of ids that were given out.
    given: u32,
    /// The number of the peer's id in use.
    in_use: u32,
    /// Its other one.
    spare: Option<Box<NewId>>,
    /// The peer keeps spare ones.
    peer_keeps: bool,
    /// The peer has ids to give.
    peer_gives: bool,
    /// The next retires all before it.
    replaces: bool,
    /// Ids have changed, and the endpoint has yet to hear of it.
    has_news: bool,
    changes: Option<Box<Changes>>,
}

/// Changes that are to be said, or that the endpoint is to carry out. Mostly there are none.
#[derive(Debug, Default)]
struct Changes {
    /// The newest id of this end, until the peer has it.
    newest: Option<Said<NewId>>,
    /// The peer's that were retired, until it knows.
    retired: Vec<Said<u32>>,
    /// Ids of this end that the peer has retired and the endpoint still knows.
    gone: Vec<ConnectionId>,
}

impl Ids {
    /// The connection is established under `own`, with a peer under `peer` that keeps so many spare
    /// ids.
    pub fn begin(&mut self, own: ConnectionId, peer: &ConnectionId, spare: u8) {
        if !own.is_empty() {
            self.own.push((0, own));
        }
        self.given = 1;
        self.peer_keeps = spare > 0;
        self.peer_gives = !peer.is_empty() && SPARE_IDS > 0;
    }

    /// True if the endpoint is to give another id.
    pub fn wants_one(&self) -> bool {
        let has_room = if self.replaces { self.own.len() < OWN_MAX } else { self.own.len() == 1 };
        self.peer_keeps && has_room && self.newest().is_none()
    }

    /// The endpoint gives another id.
    pub fn give(&mut self, id: ConnectionId, reset_token: Option<[u8; 16]>) {
        let sequence = self.given;
        self.given += 1;
        self.own.push((sequence, id));
        let retire_below = if core::mem::take(&mut self.replaces) { sequence } else { 0 };
        let what = NewId { sequence, retire_below, id, reset_token };
        self.changes().newest = Some(Said { what, waits: true });
    }

    /// All ids so far are to be replaced (M-8).
    pub fn replace(&mut self) {
        self.replaces = !self.own.is_empty();
    }

    /// True if ids have changed since this was last asked, or one is wanted.
    #[inline]
    pub fn take_news(&mut self) -> bool {
        core::mem::take(&mut self.has_news) || self.wants_one()
    }

    /// Ids of this end that are of no more use.
    pub fn take_gone(&mut self) -> Vec<ConnectionId> {
        let gone = self.changes.as_mut().map(|changes| core::mem::take(&mut changes.gone));
        self.forget_changes();
        gone.unwrap_or_default()
    }

    /// All ids of this end, to forget them.
    pub fn own(&self) -> impl Iterator<Item = &ConnectionId> {
        self.own.iter().map(|(_, id)| id).chain(self.changes.iter().flat_map(|changes| &changes.gone))
    }

    /// The peer gives an id. Says whether it is to be used from now on.
    fn on_new(&mut self, new: &NewId) -> Result<bool, &'static str> {
        if !self.peer_gives {
            return Err("it gave a connection id, and has none");
        }
        let newest = self.spare.as_ref().map_or(self.in_use, |spare| spare.sequence.max(self.in_use));
        if new.sequence == self.in_use || new.sequence == newest {
            return Ok(false);
        }
        if new.sequence < newest {
            // It was overtaken by what replaced it, or comes once more.
            self.retire(new.sequence)?;
            return Ok(false);
        }
        if let Some(spare) = self.spare.take_if(|spare| spare.sequence < new.retire_below) {
            self.retire(spare.sequence)?;
        }
        if self.in_use < new.retire_below {
            self.retire(self.in_use)?;
            self.in_use = new.sequence;
            return Ok(true);
        }
        if self.spare.is_some() {
            return Err("it gave more connection ids than this end keeps");
        }
        self.spare = Some(Box::new(*new));
        Ok(false)
    }

    /// The peer's other id is used from now on, if it has given one (M-9).
    pub fn change(&mut self) -> Option<NewId> {
        let retired = self.in_use;
        // A peer that hears of nothing is left with the id that it knows.
        if self.retired().len() >= RETIRED_MAX {
            return None;
        }
        let spare = self.spare.take()?;
        self.in_use = spare.sequence;
        self.changes().retired.push(Said { what: retired, waits: true });
        Some(*spare)
    }

    fn retire(&mut self, sequence: u32) -> Result<(), &'static str> {
        if self.retired().iter().any(|said| said.what == sequence) {
            return Ok(());
        }
        if self.retired().len() >= RETIRED_MAX {
            return Err("it gave connection ids faster than it took them back");
        }
        self.changes().retired.push(Said { what: sequence, waits: true });
        Ok(())
    }

    /// The peer no longer uses an id of this end's.
    fn on_retired(&mut self, retired: RetireId) -> Result<(), &'static str> {
        self.has_news = true;
        if retired.sequence >= self.given {
            return Err("it retired a connection id that it was not given");
        }
        let Some(at) = self.own.iter().position(|(sequence, _)| *sequence == retired.sequence) else {
            return Ok(());
        };
        if self.own.len() == 1 {
            return Err("it retired the only connection id");
        }
        let gone = self.own.remove(at).1;
        self.changes().gone.push(gone);
        Ok(())
    }

    fn changes(&mut self) -> &mut Changes {
        self.has_news = true;
        self.changes.get_or_insert_default()
    }

    fn newest(&self) -> Option<&Said<NewId>> {
        self.changes.as_ref().and_then(|changes| changes.newest.as_ref())
    }

    fn retired(&self) -> &[Said<u32>] {
        self.changes.as_ref().map_or(&[], |changes| &changes.retired)
    }

    /// Once there is nothing more to say or to do, nothing is kept.
    fn forget_changes(&mut self) {
        self.changes.take_if(|c| c.newest.is_none() && c.retired.is_empty() && c.gone.is_empty());
    }

    /// Bytes of memory that they take.
    pub fn heap_bytes(&self) -> usize {
        let changes = self.changes.as_ref().map_or(0, |changes| {
            size_of::<Changes>()
                + changes.retired.capacity() * size_of::<Said<u32>>()
                + changes.gone.capacity() * size_of::<ConnectionId>()
        });
        let spare = self.spare.as_ref().map_or(0, |spare| size_of_val(&**spare));
        let own = if self.own.spilled() { self.own.capacity() * size_of::<(u32, ConnectionId)>() } else { 0 };
        size_of::<Self>() + changes + spare + own
    }

    fn say_again(&mut self, token: &Token) {
        let Some(changes) = &mut self.changes else { return };
        match token {
            Token::NewId(number) => {
                if let Some(said) = changes.newest.as_mut().filter(|said| said.what.sequence == *number) {
                    said.waits = true;
                }
            }
            Token::RetireId(number) => {
                let said = changes.retired.iter_mut().find(|said| said.what == *number);
                said.into_iter().for_each(|said| said.waits = true);
            }
            _ => {}
        }
    }
}

impl Part for Ids {
    fn read<'f>(&mut self, _at: &Arrived, frame: &'f Frame<'f>, _ways: &mut Ways) -> Reading<'f> {
        let broken = |what: &str| CloseReason::Protocol(what.to_owned());
        match frame {
            Frame::NewId(new) if self.on_new(new).map_err(broken)? => return Ok(Effect::UseId(*new)),
            Frame::RetireId(retired) => self.on_retired(*retired).map_err(broken)?,
            _ => {}
        }
        Ok(Effect::Nothing)
    }

    fn interest(&self, _ways: &Ways) -> Interest {
        Interest::frames_if(self.changes.as_ref().is_some_and(|changes| {
            changes.newest.as_ref().is_some_and(|said| said.waits)
                || changes.retired.iter().any(|said| said.waits)
        }))
    }

    fn write(&mut self, packet: &mut Packet<'_>, _ways: &mut Ways) {
        let Some(changes) = &mut self.changes else { return };
        if let Some(said) = changes.newest.as_mut().filter(|said| said.waits)
            && packet.put_if_it_fits(&Frame::NewId(said.what))
        {
            said.waits = false;
            packet.tokens.push(Token::NewId(said.what.sequence));
        }
        for said in changes.retired.iter_mut().filter(|said| said.waits) {
            if !packet.put_if_it_fits(&Frame::RetireId(RetireId { sequence: said.what })) {
                return;
            }
            said.waits = false;
            packet.tokens.push(Token::RetireId(said.what));
        }
    }

    fn acked(&mut self, _now: Time, token: &Token, _ways: &mut Ways) {
        let Some(changes) = &mut self.changes else { return };
        match token {
            Token::NewId(number) => {
                changes.newest.take_if(|said| said.what.sequence == *number);
            }
            Token::RetireId(number) => changes.retired.retain(|said| said.what != *number),
            _ => {}
        }
        self.forget_changes();
    }

    fn lost(&mut self, _loss: &LostPacket, token: &Token, _ways: &mut Ways) {
        self.say_again(token);
    }

    fn probe(&mut self, token: &Token, _ways: &mut Ways) {
        self.say_again(token);
    }
}

#[cfg(test)]
mod tests {
    use super::super::super::testing;
    use super::*;

    fn id(byte: u8) -> ConnectionId {
        ConnectionId::new(&[byte; 8]).expect("8 bytes")
    }

    fn new(sequence: u32, retire_below: u32) -> NewId {
        NewId { sequence, retire_below, id: id(sequence as u8), reset_token: None }
    }

    fn begun() -> Ids {
        let mut ids = Ids::default();
        ids.begin(id(100), &id(200), SPARE_IDS);
        ids
    }

    fn said(ids: &mut Ids) -> Vec<Frame<'static>> {
        let mut ways = testing::ways();
        testing::written(&mut ways, 1200, |packet, ways| ids.write(packet, ways))
    }

    #[test]
    fn one_id_is_given_ahead_and_another_for_each_that_is_retired() {
        let mut ids = begun();
        assert!(ids.wants_one());
        ids.give(id(101), None);
        assert!(!ids.wants_one(), "one at a time");
        assert_eq!(said(&mut ids), [Frame::NewId(NewId { id: id(101), ..new(1, 0) })]);
        assert_eq!(said(&mut ids), []);
        ids.say_again(&Token::NewId(1));
        assert_eq!(said(&mut ids).len(), 1, "it was lost");
        ids.acked(Time::ZERO, &Token::NewId(1), &mut testing::ways());
        assert!(!ids.wants_one());
        ids.on_retired(RetireId { sequence: 0 }).expect("it was given");
        assert_eq!(ids.take_gone(), [id(100)]);
        assert!(ids.wants_one());
        assert!(ids.on_retired(RetireId { sequence: 1 }).is_err(), "the only one");
        assert!(ids.on_retired(RetireId { sequence: 2 }).is_err(), "never given");
        assert!(ids.on_retired(RetireId { sequence: 0 }).is_ok(), "said twice");
    }

    #[test]
    fn who_has_no_id_or_whose_peer_keeps_none_gives_none() {
        for (own, spare) in [(ConnectionId::EMPTY, 1), (id(1), 0)] {
            let mut ids = Ids::default();
            ids.begin(own, &id(200), spare);
            ids.replace();
            assert!(!ids.wants_one(), "{own} {spare}");
        }
    }

    #[test]
    fn a_spare_id_is_taken_once_and_kept_until_it_is_used() {
        let mut ids = begun();
        assert_eq!(ids.on_new(&new(1, 0)), Ok(false));
        assert_eq!(ids.on_new(&new(1, 0)), Ok(false), "the same again");
        assert!(ids.on_new(&new(2, 0)).is_err(), "more than is kept");
        let mut ids = begun();
        assert!(ids.change().is_none());
        assert_eq!(ids.on_new(&new(1, 0)), Ok(false));
        assert_eq!(ids.change().map(|new| new.sequence), Some(1));
        assert_eq!(said(&mut ids), [Frame::RetireId(RetireId { sequence: 0 })]);
        assert_eq!(ids.on_new(&new(1, 0)), Ok(false), "an old one, repeated");
        assert!(ids.change().is_none());
    }

    #[test]
    fn what_is_retired_by_the_peer_is_replaced_at_once_in_any_order() {
        let mut ids = begun();
        assert_eq!(ids.on_new(&new(2, 2)), Ok(true));
        assert_eq!(ids.on_new(&new(1, 0)), Ok(false), "it was overtaken");
        let frames = said(&mut ids);
        assert_eq!(frames, [0, 1].map(|sequence| Frame::RetireId(RetireId { sequence })));
        assert!(ids.change().is_none());
        // A peer that gives and gives is broken, and takes no memory.
        let flood = (3..100).find_map(|n| ids.on_new(&new(n, n)).err());
        assert!(flood.is_some() && ids.retired().len() <= RETIRED_MAX);
    }
}
