//! Data and messages that were taken from a connection to be read next, and the place where they go
//! first. They are taken while the endpoint's lock is held. Messages in a form of their own are
//! turned back afterwards, one by one as they are read: decompression holds up nobody else.

use super::ReadError;
use bytes::Bytes;
use std::collections::VecDeque;
use uts_engine::{IntoBatch, MessageBatch, Presented, Read, ReadSink};
use uts_functions::sequencing::message_row::MessageRow;

/// If less than this was taken from the connection, reading also takes what comes next. Small
/// pieces would otherwise need the endpoint's lock for each of them.
pub(super) const AHEAD_BYTES: usize = 16 << 10;

/// One thing that is to be read.
#[derive(Debug)]
enum Next {
    Read(Read),
    Presented(Presented),
    Failed(ReadError),
}

/// All that is to be read next, in order.
#[derive(Debug, Default)]
pub(super) struct Ahead {
    all: VecDeque<Next>,
    /// Bytes that were taken since it was last empty.
    bytes: usize,
}

impl Ahead {
    pub fn is_empty(&self) -> bool {
        self.all.is_empty()
    }

    /// Bytes that were taken since it was last empty.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    pub fn clear(&mut self) {
        (self.all, self.bytes) = (VecDeque::new(), 0);
    }

    /// Takes the next, as it is to be read.
    pub fn pop(&mut self) -> Option<Result<Read, ReadError>> {
        let next = self.all.pop_front()?;
        if self.all.is_empty() {
            self.bytes = 0;
        }
        Some(match next {
            Next::Read(read) => Ok(read),
            Next::Presented(presented) => presented.open().map(Read::Message).map_err(ReadError::Damaged),
            Next::Failed(error) => Err(error),
        })
    }

    /// Puts back what was taken.
    pub fn push_front(&mut self, read: Result<Read, ReadError>) {
        self.all.push_front(read.map_or_else(Next::Failed, Next::Read));
    }

    pub fn fail(&mut self, error: ReadError) {
        self.all.push_back(Next::Failed(error));
    }

    fn add(&mut self, next: Next) -> bool {
        self.bytes += match &next {
            Next::Read(
                Read::Bytes(_, data)
                | Read::Message(data)
                | Read::Timed { message: data, .. }
                | Read::Damaged { message: data, .. },
            ) => data.len().max(1),
            Next::Presented(presented) => presented.len().max(1),
            _ => 0,
        };
        self.all.push_back(next);
        self.bytes < AHEAD_BYTES
    }
}

impl Ahead {
    fn put(&mut self, read: Read) -> bool {
        self.add(Next::Read(read))
    }

    fn put_presented(&mut self, presented: Presented) -> Result<bool, String> {
        Ok(self.add(Next::Presented(presented)))
    }
}

/// Places where messages are read to.
pub(super) trait Gather {
    fn count(&self) -> usize;
    fn add(&mut self, message: Bytes);
    /// Takes messages of a row, as many as this at the most and one at the least.
    fn add_row(&mut self, row: &mut MessageRow, most: usize);
}

impl Gather for Vec<Bytes> {
    fn count(&self) -> usize {
        self.len()
    }

    fn add(&mut self, message: Bytes) {
        self.push(message);
    }

    fn add_row(&mut self, row: &mut MessageRow, most: usize) {
        let full = self.len() + most;
        row.pop_each(|message| {
            self.push(message);
            self.len() < full
        });
    }
}

impl Gather for MessageBatch {
    fn count(&self) -> usize {
        self.len()
    }

    fn add(&mut self, message: Bytes) {
        self.push(&message);
    }

    fn add_row(&mut self, row: &mut MessageRow, most: usize) {
        IntoBatch::new(self, most, |_| true).put_row(row);
    }
}

/// Messages go to a place, as many as are still wanted there. Whatever else there is, and all
/// behind it, goes ahead.
pub(super) struct Sink<'a, G> {
    pub messages: &'a mut G,
    pub left: usize,
    pub ahead: &'a mut Ahead,
}

impl<G: Gather> Sink<'_, G> {
    fn is_for_messages(&self) -> bool {
        self.left > 0 && self.ahead.is_empty()
    }
}

impl<G: Gather> ReadSink for Sink<'_, G> {
    fn put(&mut self, read: Read) -> bool {
        match read {
            Read::Missing { .. } if self.is_for_messages() => true,
            Read::Message(message) | Read::Timed { message, .. } if self.is_for_messages() => {
                self.messages.add(message);
                self.left -= 1;
                self.left > 0
            }
            read => self.ahead.put(read),
        }
    }

    fn put_row(&mut self, row: &mut MessageRow) -> bool {
        if !self.is_for_messages() {
            return row.pop_each(|message| self.ahead.put(Read::Message(message)));
        }
        let before = self.messages.count();
        self.messages.add_row(row, self.left);
        self.left -= self.messages.count() - before;
        self.left > 0
    }

    fn put_presented(&mut self, presented: Presented) -> Result<bool, String> {
        self.ahead.put_presented(presented)
    }
}
