//! What was taken from a connection and is to be read next, and where what is read goes first. It
//! is taken while the endpoint's lock is held; messages in a form of their own are turned back
//! afterwards, one by one as they are read, so that decompression holds up nobody else.

use super::ReadError;
use bytes::Bytes;
use std::collections::VecDeque;
use uts_engine::{Connection, FlowId, IntoBatch, MessageBatch, Presented, Read, ReadSink};
use uts_functions::Time;
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
            Next::Read(Read::Bytes(_, data) | Read::Message(data) | Read::Damaged { message: data, .. }) => {
                data.len().max(1)
            }
            Next::Presented(presented) => presented.len().max(1),
            _ => 0,
        };
        self.all.push_back(next);
        self.bytes < AHEAD_BYTES
    }
}

impl ReadSink for &mut Ahead {
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

    /// Reads from the connection, as far as it is for this, up to this many messages. Whatever else
    /// there is, and all behind it, goes ahead, up to this many bytes.
    fn read(
        &mut self,
        connection: &mut Connection,
        now: Time,
        id: FlowId,
        most: (usize, usize),
        ahead: &mut Ahead,
    ) -> Result<(), uts_engine::ReadError>;
}

/// Messages that go to a list, until something goes ahead.
struct Listed<'a> {
    list: &'a mut Vec<Bytes>,
    left: usize,
    ahead: &'a mut Ahead,
}

impl ReadSink for Listed<'_> {
    fn put(&mut self, read: Read) -> bool {
        match read {
            Read::Message(message) if self.ahead.is_empty() => {
                self.list.push(message);
                self.left = self.left.saturating_sub(1);
                self.left > 0
            }
            read => self.ahead.put(read),
        }
    }

    fn put_presented(&mut self, presented: Presented) -> Result<bool, String> {
        self.ahead.put_presented(presented)
    }
}

impl Gather for Vec<Bytes> {
    fn count(&self) -> usize {
        self.len()
    }

    fn add(&mut self, message: Bytes) {
        self.push(message);
    }

    fn read(
        &mut self,
        connection: &mut Connection,
        now: Time,
        id: FlowId,
        (bytes_max, most): (usize, usize),
        ahead: &mut Ahead,
    ) -> Result<(), uts_engine::ReadError> {
        connection.read_into(now, id, bytes_max, Listed { list: self, left: most, ahead })
    }
}

/// The same, of a batch.
struct Batched<'a> {
    batch: &'a mut MessageBatch,
    left: usize,
    ahead: &'a mut Ahead,
}

impl ReadSink for Batched<'_> {
    fn put(&mut self, read: Read) -> bool {
        match read {
            Read::Message(message) if self.ahead.is_empty() => {
                self.put_row(&mut MessageRow::one(message, false))
            }
            read => self.ahead.put(read),
        }
    }

    fn put_row(&mut self, row: &mut MessageRow) -> bool {
        if !self.ahead.is_empty() {
            return row.pop_each(|message| self.ahead.put(Read::Message(message)));
        }
        let before = self.batch.len();
        let wants_more = IntoBatch::new(self.batch, self.left, |_| true).put_row(row);
        self.left = self.left.saturating_sub(self.batch.len() - before);
        wants_more
    }

    fn put_presented(&mut self, presented: Presented) -> Result<bool, String> {
        self.ahead.put_presented(presented)
    }
}

impl Gather for MessageBatch {
    fn count(&self) -> usize {
        self.len()
    }

    fn add(&mut self, message: Bytes) {
        self.push(&message);
    }

    fn read(
        &mut self,
        connection: &mut Connection,
        now: Time,
        id: FlowId,
        (bytes_max, most): (usize, usize),
        ahead: &mut Ahead,
    ) -> Result<(), uts_engine::ReadError> {
        connection.read_into(now, id, bytes_max, Batched { batch: self, left: most, ahead })
    }
}

/// Messages, too, go where everything else does.
pub(super) struct Nowhere;

impl Gather for Nowhere {
    fn count(&self) -> usize {
        0
    }

    fn add(&mut self, _: Bytes) {}

    fn read(
        &mut self,
        connection: &mut Connection,
        now: Time,
        id: FlowId,
        (bytes_max, _): (usize, usize),
        ahead: &mut Ahead,
    ) -> Result<(), uts_engine::ReadError> {
        connection.read_into(now, id, bytes_max, ahead)
    }
}
