//! Memory of one end of a stream: what it has said and the peer has not taken, and what the peer
//! has said and the application has not taken. It knows no carrier and no clock.
//!
//! Whatever a peer says, `kept` has no more than this end's own bound, and `waiting` no more than
//! its own window.

use super::room::Room;
use super::wire::{self, DATA_BYTES_MAX, How, Welcome, wrong};
use std::collections::VecDeque;
use std::io;
use uts_ledger::{Payer, Refused};

/// Bytes that are paid for each byte that was said: what is under way is in its carrier, too.
const COPIES: usize = 2;

/// See the head of this file.
pub struct Memory {
    /// Bytes that were said and not taken.
    kept: VecDeque<u8>,
    /// The position of the first of them.
    kept_at: u64,
    kept_room: Room,
    /// The end of what is said, once it is.
    end: Option<How>,
    end_is_taken_by_peer: bool,
    /// Bytes that the peer has room for beyond what its application has taken.
    peer_window: u64,
    /// Bytes that have come and were not taken.
    waiting: VecDeque<u8>,
    waiting_room: Room,
    window: usize,
    /// Bytes that the application has taken.
    taken: u64,
    /// The end of what comes, once it is.
    peer_end: Option<How>,
    peer_end_is_taken: bool,
}

impl Memory {
    /// An empty one, with so much room for each direction.
    pub fn new(bytes_max: usize) -> Memory {
        Memory::with([Room::whole(bytes_max), Room::whole(bytes_max)], bytes_max)
    }

    /// The same, of which is paid for what it holds.
    ///
    /// # Errors
    /// There is no room at all.
    pub fn paid(bytes_max: usize, payer: &Payer) -> Result<Memory, Refused> {
        let rooms = [Room::paid(payer, bytes_max, COPIES)?, Room::paid(payer, bytes_max, 1)?];
        Ok(Memory::with(rooms, bytes_max))
    }

    fn with([kept_room, waiting_room]: [Room; 2], window: usize) -> Memory {
        Memory {
            kept: VecDeque::new(),
            kept_at: 0,
            kept_room,
            end: None,
            end_is_taken_by_peer: false,
            peer_window: 0,
            waiting: VecDeque::new(),
            waiting_room,
            window,
            taken: 0,
            peer_end: None,
            peer_end_is_taken: false,
        }
    }

    /// Bytes that may still be said; none once the end is.
    pub fn room(&mut self) -> usize {
        if self.end.is_some() {
            return 0;
        }
        if self.kept.len() >= self.kept_room.bytes() {
            self.kept_room.grow();
        }
        self.kept_room.bytes().saturating_sub(self.kept.len())
    }

    /// True if so many bytes can be taken in now. What waits makes room once the application has
    /// taken it.
    pub fn takes(&mut self, bytes: usize) -> bool {
        while !self.waiting.is_empty() && self.waiting.len() + bytes > self.waiting_room.bytes() {
            if !self.waiting_room.grow() {
                // What is too much is no matter of room.
                return self.waiting.len() + bytes > self.window;
            }
        }
        true
    }

    /// The bytes that this end has room for beyond what its application has taken.
    pub fn window(&self) -> u32 {
        u32::try_from(self.window).unwrap_or(u32::MAX)
    }

    /// The position up to which the application has taken what comes.
    pub fn taken(&self) -> u64 {
        self.taken + u64::from(self.peer_end_is_taken)
    }

    /// The position up to which what comes has come.
    pub fn received(&self) -> u64 {
        self.taken + self.waiting.len() as u64 + u64::from(self.peer_end.is_some())
    }

    /// The end of what comes, once that is known.
    pub fn peer_end(&self) -> Option<How> {
        self.peer_end
    }

    /// True if the application has taken the end.
    pub fn is_taken(&self) -> bool {
        self.peer_end_is_taken
    }

    /// True if both directions have ended, and both ends know.
    pub fn is_over(&self) -> bool {
        self.end_is_taken_by_peer && self.peer_end_is_taken
    }

    /// True if anything was said that the peer has yet to take.
    pub fn is_outstanding(&self) -> bool {
        !self.kept.is_empty() || (self.end.is_some() && !self.end_is_taken_by_peer)
    }

    /// The end of the stream, of both directions.
    pub fn how(&self) -> How {
        if [self.end, self.peer_end].contains(&Some(How::Reset)) { How::Reset } else { How::Orderly }
    }

    /// The position up to which something was said, without the end.
    pub fn said(&self) -> u64 {
        self.kept_at + self.kept.len() as u64
    }

    fn said_with_end(&self) -> u64 {
        self.said() + u64::from(self.end.is_some())
    }

    /// The application says this. It has asked for the room.
    pub fn say(&mut self, data: &[u8]) {
        self.kept.extend(data);
    }

    /// The application says no more. What was said first counts.
    pub fn say_end(&mut self, how: How) {
        self.end.get_or_insert(how);
    }

    /// Copies what comes next to `out`, up to `bytes_max`. Once the application has taken it,
    /// [`Memory::on_taken`] is to be told.
    pub fn next_for_application(&self, out: &mut Vec<u8>, bytes_max: usize) {
        let (first, second) = self.waiting.as_slices();
        let first = &first[..first.len().min(bytes_max)];
        out.extend_from_slice(first);
        out.extend_from_slice(&second[..second.len().min(bytes_max - first.len())]);
    }

    /// The application has taken the first of what waits.
    pub fn on_taken(&mut self, bytes: usize) {
        self.waiting.drain(..bytes);
        self.taken += bytes as u64;
        if self.waiting.is_empty() {
            self.waiting.shrink_to(DATA_BYTES_MAX);
            self.waiting_room.shrink();
        }
    }

    /// The application has taken the end.
    pub fn on_end_taken(&mut self) {
        self.peer_end_is_taken = true;
    }

    /// The bytes that the peer has room for, as it says at the begin of a carrier.
    pub fn on_window(&mut self, bytes: u32) {
        self.peer_window = bytes.into();
    }

    /// Answers a client that has received up to a position. (T-7)
    ///
    /// # Errors
    /// It cannot have received that.
    pub fn welcome(&self, received: u64) -> io::Result<Welcome> {
        self.check(received)?;
        Ok(Welcome { received: self.received(), begins: received.max(self.kept_at), window: self.window() })
    }

    /// Checks a position up to which the peer says that it has what was said.
    ///
    /// # Errors
    /// It was not said up to there.
    pub fn check(&self, position: u64) -> io::Result<()> {
        let said = self.said_with_end();
        if position > said {
            return Err(wrong(format!("the peer has {position} of {said} bytes that were sent")));
        }
        Ok(())
    }

    /// The peer's application has taken what was said up to a position.
    ///
    /// # Errors
    /// It was not said up to there.
    pub fn on_taken_by_peer(&mut self, position: u64) -> io::Result<()> {
        self.check(position)?;
        let bytes = position.min(self.said()).saturating_sub(self.kept_at);
        self.kept.drain(..bytes as usize);
        self.kept_at += bytes;
        if self.kept.is_empty() {
            self.kept.shrink_to(DATA_BYTES_MAX);
            self.kept_room.shrink();
        }
        self.end_is_taken_by_peer |= self.end.is_some() && position == self.said_with_end();
        Ok(())
    }

    /// Appends the frame with what comes next behind a position, if there is any for which the peer
    /// has room. Returns the position behind it. (T-9)
    pub fn put_next(&self, out: &mut Vec<u8>, position: u64) -> u64 {
        let from = position.saturating_sub(self.kept_at).min(self.kept.len() as u64) as usize;
        let most = self.kept_at.saturating_add(self.peer_window).saturating_sub(position);
        let bytes =
            (self.kept.len() - from).min(DATA_BYTES_MAX).min(usize::try_from(most).unwrap_or(usize::MAX));
        if bytes > 0 {
            let (first, second) = self.kept.as_slices();
            let (skipped, rest) = (from.min(first.len()), from.saturating_sub(first.len()));
            let first = &first[skipped..(skipped + bytes).min(first.len())];
            let second = &second[rest..rest + bytes - first.len()];
            wire::put_data(out, (first, second));
            return position + bytes as u64;
        }
        match self.end {
            Some(how) if position == self.said() => {
                wire::put_end(out, how);
                position + 1
            }
            _ => position,
        }
    }

    /// Data that begins at a position. What has come before is left out.
    ///
    /// # Errors
    /// It is more than this end has said that it has room for, or goes on behind the end.
    pub fn on_data(&mut self, position: u64, data: &[u8]) -> io::Result<()> {
        let come = self.taken + self.waiting.len() as u64;
        let is_behind_end = self.peer_end.is_some() && position + data.len() as u64 > come;
        if position > come || is_behind_end {
            return Err(wrong("data behind the end"));
        }
        let fresh = &data[((come - position) as usize).min(data.len())..];
        // T-10
        if self.waiting.len() + fresh.len() > self.window {
            return Err(wrong(format!("more than {} bytes that there is room for", self.window)));
        }
        self.waiting.extend(fresh);
        Ok(())
    }

    /// The end of what comes, at a position.
    ///
    /// # Errors
    /// There is more, or it has ended elsewhere or otherwise.
    pub fn on_end(&mut self, position: u64, how: How) -> io::Result<()> {
        if position != self.taken + self.waiting.len() as u64 || self.peer_end.is_some_and(|end| end != how) {
            return Err(wrong("an end where there is none"));
        }
        self.peer_end = Some(how);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn next(memory: &Memory, position: u64) -> (u64, Vec<u8>) {
        let mut out = Vec::new();
        (memory.put_next(&mut out, position), out)
    }

    #[test]
    fn what_was_not_taken_is_said_again_from_any_position() {
        let mut memory = Memory::new(10);
        memory.on_window(100);
        assert_eq!(memory.room(), 10);
        memory.say(b"abcdefgh");
        assert_eq!(memory.room(), 2);
        assert_eq!(next(&memory, 0).0, 8);
        memory.on_taken_by_peer(6).expect("said");
        // It goes round the end of the buffer.
        memory.say(b"ijklmnop");
        assert_eq!(next(&memory, 6), (16, [&[0, 0, 10][..], b"ghijklmnop"].concat()));
        assert_eq!(next(&memory, 9), (16, [&[0, 0, 7][..], b"jklmnop"].concat()));
        assert_eq!(next(&memory, 16), (16, Vec::new()));
        memory.say_end(How::Orderly);
        memory.say_end(How::Reset);
        assert_eq!((memory.room(), next(&memory, 16)), (0, (17, vec![2])));
        assert_eq!(next(&memory, 17), (17, Vec::new()));
        memory.on_taken_by_peer(16).expect("said");
        assert!(!memory.end_is_taken_by_peer);
        memory.on_taken_by_peer(17).expect("said");
        assert!(memory.end_is_taken_by_peer);
        assert!(memory.on_taken_by_peer(18).is_err() && memory.welcome(18).is_err());
    }

    #[test]
    fn no_more_is_sent_than_the_peer_has_room_for() {
        let mut memory = Memory::new(10);
        memory.on_window(4);
        memory.say(b"abcdefgh");
        assert_eq!(next(&memory, 0), (4, vec![0, 0, 4, b'a', b'b', b'c', b'd']));
        assert_eq!(next(&memory, 4), (4, Vec::new()));
        memory.on_taken_by_peer(1).expect("said");
        assert_eq!(next(&memory, 4), (5, vec![0, 0, 1, b'e']));
    }

    #[test]
    fn what_comes_twice_is_taken_once_and_what_cannot_come_is_refused() {
        let mut memory = Memory::new(4);
        memory.on_data(0, b"ab").expect("room");
        memory.on_data(0, b"abc").expect("room");
        memory.on_data(1, b"b").expect("old");
        assert_eq!(memory.received(), 3);
        let mut out = Vec::new();
        memory.next_for_application(&mut out, 2);
        assert_eq!(out, b"ab");
        memory.on_taken(2);
        assert!(memory.on_data(3, b"defg").is_err(), "more than the window");
        assert!(memory.on_data(4, b"x").is_err(), "a gap");
        assert!(memory.on_end(2, How::Orderly).is_err(), "there is more");
        memory.on_end(3, How::Orderly).expect("the end");
        memory.on_end(3, How::Orderly).expect("again");
        memory.on_data(2, b"c").expect("old");
        assert!(memory.on_end(3, How::Reset).is_err() && memory.on_data(3, b"d").is_err());
        assert_eq!((memory.received(), memory.taken()), (4, 2));
        memory.on_taken(1);
        memory.on_end_taken();
        assert_eq!((memory.taken(), memory.how()), (4, How::Orderly));
    }
}
