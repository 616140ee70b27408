//! Both halves of a call as its two ends hold them: messages, one behind the other.

use super::value::{self, ValueError};
use super::wire::{Breach, Frames, Half, Item, code, put_message_head};
use crate::flow::{Chunk, ReadError, RecvFlow, SendFlow, Stopped, WriteError};
use crate::ledger::{Charge, Payer, Resource};
use bytes::Bytes;
use core::future::poll_fn;
use core::task::{Poll, ready};
use serde::Serialize;
use serde::de::DeserializeOwned;
use std::collections::VecDeque;

/// Messages up to this length are copied behind their heads, so that a small call is one packet. To
/// copy longer ones costs more than another packet.
const COPIED_MAX: usize = 16 << 10;
/// Bytes that are asked for of a flow at a time. It gives what is there.
const READ_BYTES: usize = 256 << 10;

/// Messages that this end sends in a call. Dropped before its end, it takes them back.
#[derive(Debug)]
pub struct MessageWriter {
    flow: SendFlow,
    /// Written before the first message, together with it.
    prefix: Vec<u8>,
    /// Handed over, and not taken by the flow yet.
    waiting: VecDeque<Bytes>,
}

/// Why a message was not sent.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum SendError {
    /// The flow takes no more. [`WriteError::Stopped`]: the other end reads no more of this half,
    /// which is no failure of the call.
    #[error(transparent)]
    Flow(#[from] WriteError),
    /// A value cannot be encoded.
    #[error(transparent)]
    Value(#[from] ValueError),
    /// The time of the call is over, and the flow has been full.
    #[error("the deadline of the call has passed")]
    DeadlinePassed,
}

impl MessageWriter {
    pub(super) fn new(flow: SendFlow, prefix: Vec<u8>) -> Self {
        MessageWriter { flow, prefix, waiting: VecDeque::new() }
    }

    /// Sends a message. Waits while the flow is full. If the wait is given up, the message is sent
    /// all the same, with what follows it.
    ///
    /// # Errors
    /// [`WriteError`].
    pub async fn send(&mut self, message: Bytes) -> Result<(), WriteError> {
        self.frame(message);
        self.flush(false).await
    }

    /// Sends the last message, and the end with it: both ride in one packet if they fit.
    ///
    /// # Errors
    /// [`WriteError`].
    pub async fn send_last(&mut self, message: Bytes) -> Result<(), WriteError> {
        self.frame(message);
        self.finish().await
    }

    /// Sends a value as a message, in postcard's form.
    ///
    /// # Errors
    /// [`SendError`].
    pub async fn send_value<T: Serialize + ?Sized>(&mut self, value: &T) -> Result<(), SendError> {
        Ok(self.send(value::encode(value)?).await?)
    }

    /// Ends the half: the other end learns that it has all.
    ///
    /// # Errors
    /// [`WriteError`].
    pub async fn finish(&mut self) -> Result<(), WriteError> {
        self.flush(true).await
    }

    /// Sends a frame that is no message, and the end.
    pub(super) async fn finish_with(&mut self, frame: Vec<u8>) -> Result<(), WriteError> {
        self.waiting.push_back(frame.into());
        self.finish().await
    }

    pub(super) async fn flush(&mut self, is_last: bool) -> Result<(), WriteError> {
        if !self.prefix.is_empty() {
            self.waiting.push_front(core::mem::take(&mut self.prefix).into());
        }
        poll_fn(|cx| {
            loop {
                let ends = is_last && self.waiting.len() == 1;
                let Some(front) = self.waiting.front_mut() else { break };
                let taken = ready!(self.flow.poll_write_bytes(cx, front, ends))?;
                let _ = front.split_to(taken.min(front.len()));
                if front.is_empty() {
                    self.waiting.pop_front();
                    if ends {
                        return Poll::Ready(Ok(()));
                    }
                }
            }
            Poll::Ready(if is_last { self.flow.finish() } else { Ok(()) })
        })
        .await
    }

    fn frame(&mut self, message: Bytes) {
        let mut head = core::mem::take(&mut self.prefix);
        put_message_head(&mut head, message.len());
        if message.len() <= COPIED_MAX {
            head.extend_from_slice(&message);
            self.waiting.push_back(head.into());
        } else {
            self.waiting.extend([head.into(), message]);
        }
    }

    pub(super) fn flow(&mut self) -> &mut SendFlow {
        &mut self.flow
    }

    pub(super) fn stopped(&self) -> Stopped {
        self.flow.stopped()
    }
}

/// Part of a message.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Part {
    /// The bytes.
    pub bytes: Bytes,
    /// The message ends with them.
    pub is_last: bool,
}

/// Messages that the other end sends in a call.
#[derive(Debug)]
pub struct MessageReader {
    flow: RecvFlow,
    frames: Frames,
    /// Bytes that were read and not cut into frames yet.
    rest: Bytes,
    /// Parts of a message that is not whole.
    gathered: Vec<Bytes>,
    gathered_bytes: usize,
    /// Pays for what is gathered, and what it has paid.
    payer: Option<Payer>,
    charges: Vec<Charge>,
    message_max: usize,
    /// A position in the flow: that of the next byte.
    position: u64,
    has_ended: bool,
}

/// Why there are no more messages.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum RecvError {
    /// The flow gives no more: reset (the other end gives the call up), or the connection has
    /// ended.
    #[error(transparent)]
    Flow(#[from] ReadError),
    /// The other end breaks a rule of calls.
    #[error("the other end breaks the rules of calls: {0}")]
    Breach(#[from] Breach),
    /// The message is longer than this end takes.
    #[error("a message is longer than {max} bytes")]
    TooLong {
        /// The longest that it takes.
        max: usize,
    },
    /// This end has no memory for the message.
    #[error("there is no memory for a message: {0}")]
    NoMemory(String),
    /// The message is no value of its type.
    #[error(transparent)]
    Value(#[from] ValueError),
    /// The half ended before a message that had to come.
    #[error("there is no message")]
    Missing,
    /// The time of the call is over.
    #[error("the deadline of the call has passed")]
    DeadlinePassed,
}

impl RecvError {
    pub(super) fn several() -> Self {
        Breach("there are several messages where one was expected".into()).into()
    }
}

/// Something that a reader finds beside messages.
#[derive(Debug)]
pub(super) enum Found {
    Part(Part),
    Other(Item),
    End,
}

impl MessageReader {
    pub(super) fn new(flow: RecvFlow, half: Half, payer: Option<Payer>, message_max: usize) -> Self {
        MessageReader {
            flow,
            frames: Frames::new(half),
            rest: Bytes::new(),
            gathered: Vec::new(),
            gathered_bytes: 0,
            payer,
            charges: Vec::new(),
            message_max,
            position: 0,
            has_ended: false,
        }
    }

    /// The longest message that [`MessageReader::recv`] gathers, in bytes. 1 MiB at first.
    pub fn set_message_max(&mut self, bytes: usize) {
        self.message_max = bytes;
    }

    /// Waits for what comes next. Nothing is lost if the wait is given up.
    pub(super) async fn next(&mut self) -> Result<Found, RecvError> {
        loop {
            if self.has_ended {
                return Ok(Found::End);
            }
            match self.frames.next(&mut self.rest) {
                Ok(Some(Item::Part(bytes, is_last))) => return Ok(Found::Part(Part { bytes, is_last })),
                Ok(Some(other)) => return Ok(Found::Other(other)),
                Ok(None) => {}
                Err(breach) => {
                    self.flow.stop(code::BREACH);
                    return Err(breach.into());
                }
            }
            match self.flow.recv_chunk(READ_BYTES).await? {
                Some(Chunk::Bytes(position, bytes)) if position == self.position => {
                    self.position += bytes.len() as u64;
                    self.rest = bytes;
                }
                Some(_) => {
                    return Err(Breach("the flow keeps no order of bytes, which calls need".into()).into());
                }
                // L-6
                None if self.frames.may_end() => self.has_ended = true,
                None => return Err(Breach("a half ends in the middle of a frame".into()).into()),
            }
        }
    }

    /// Adds a part to what is gathered; gives the message once it is whole.
    pub(super) fn gather(&mut self, part: Part) -> Result<Option<Bytes>, RecvError> {
        let max = self.message_max;
        if self.gathered_bytes.saturating_add(part.bytes.len()) > max {
            return Err(RecvError::TooLong { max });
        }
        if self.gathered.is_empty() && part.is_last {
            return Ok(Some(part.bytes));
        }
        if let Some(payer) = self.payer.as_ref().filter(|_| !part.bytes.is_empty()) {
            let charge = payer.charge(Resource::Memory, part.bytes.len());
            self.charges.push(charge.map_err(|refused| RecvError::NoMemory(refused.to_string()))?);
        }
        self.gathered_bytes += part.bytes.len();
        self.gathered.push(part.bytes);
        if !part.is_last {
            return Ok(None);
        }
        self.gathered_bytes = 0;
        self.charges.clear();
        Ok(Some(core::mem::take(&mut self.gathered).concat().into()))
    }

    /// Waits for the next message, whole; `None` at the end. Nothing is lost if the wait is given
    /// up.
    ///
    /// # Errors
    /// [`RecvError`]; after [`RecvError::TooLong`] and [`RecvError::NoMemory`] the half is of no
    /// more use.
    pub async fn recv(&mut self) -> Result<Option<Bytes>, RecvError> {
        loop {
            let Some(part) = self.recv_part().await? else { return Ok(None) };
            if let Some(message) = self.gather(part)? {
                return Ok(Some(message));
            }
        }
    }

    /// Waits for the next part of a message, as it comes in; `None` at the end of the half. Nothing
    /// is gathered, so that a message may be of any length.
    ///
    /// # Errors
    /// [`RecvError`].
    pub async fn recv_part(&mut self) -> Result<Option<Part>, RecvError> {
        match self.next().await? {
            Found::Part(part) => Ok(Some(part)),
            Found::End => Ok(None),
            Found::Other(_) => Err(Breach("a frame that ends an answer is in a request".into()).into()),
        }
    }

    /// Waits for the next message as a value, in postcard's form; `None` at the end.
    ///
    /// # Errors
    /// [`RecvError`].
    pub async fn recv_value<T: DeserializeOwned>(&mut self) -> Result<Option<T>, RecvError> {
        Ok(self.recv().await?.map(|message| value::decode(&message)).transpose()?)
    }

    /// Waits for a half that is one message.
    ///
    /// # Errors
    /// [`RecvError::Missing`], and others. A second message is a breach.
    pub async fn recv_only(&mut self) -> Result<Bytes, RecvError> {
        let message = self.recv().await?.ok_or(RecvError::Missing)?;
        match self.recv_part().await? {
            None => Ok(message),
            Some(_) => Err(RecvError::several()),
        }
    }

    pub(super) fn flow(&mut self) -> &mut RecvFlow {
        &mut self.flow
    }
}
