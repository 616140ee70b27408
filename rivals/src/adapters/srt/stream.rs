//! A stream: a connection of SRT with frames in it, of which the last says that a direction ends.

use super::session::{Past, Side, SrtSession};
use super::{look_again, patiently};
use crate::native::srt::Socket;
use std::cell::Cell;
use std::rc::Rc;
use std::sync::Arc;
use uts_traffic::transport::{self, Local, ReceiveStream, SendStream, Stream, TransportError};

/// Content of a frame of a stream, at most.
const FRAME_BYTES_MAX: usize = 64 << 10;

/// The length before each frame, big-endian.
const LENGTH_BYTES: usize = 4;

/// In place of a length: the stream was given up.
const GIVEN_UP: u32 = u32::MAX;

/// What both directions of a stream have in common.
pub(super) struct Both {
    socket: Arc<Socket>,
    session: Rc<SrtSession>,
    sent_end: Cell<bool>,
    got_end: Cell<bool>,
}

impl Both {
    /// A stream over a connection of its own.
    pub(super) fn begin(socket: Arc<Socket>, session: Rc<SrtSession>) -> Stream {
        let both = Rc::new(Both { socket, session, sent_end: Cell::new(false), got_end: Cell::new(false) });
        let receive = SrtReceive { both: both.clone(), left: 0, length: Vec::new() };
        Stream { send: Box::new(SrtSend { both, within: false }), receive: Box::new(receive) }
    }

    /// Gives up both directions, as SRT can: the peer sees that the connection is gone.
    fn give_up(&self) {
        self.socket.forget_unsent();
        Past::close(&self.session.past, &self.socket);
    }
}

impl Drop for Both {
    fn drop(&mut self) {
        let session = &self.session;
        if !self.sent_end.get() {
            return self.give_up();
        }
        if Arc::ptr_eq(&self.socket, &session.first) {
            return;
        }
        // What is on its way must still arrive. SRT forgets a connection that has gone before it
        // was accepted. Only the server's end shows that it was.
        let may_close = self.got_end.get() || matches!(session.side, Side::Server(_));
        let (socket, past) = (self.socket.clone(), session.past.clone());
        session.ending.borrow_mut().spawn(async move {
            let mut ready = socket.ready();
            while socket.is_connected() == Some(true) && !(may_close && socket.waiting() == 0) {
                look_again(&mut ready).await;
            }
            Past::close(&past, &socket);
        });
    }
}

struct SrtSend {
    both: Rc<Both>,
    /// Whether a frame has begun and not ended.
    within: bool,
}

impl SrtSend {
    async fn frame(&mut self, content: &[u8]) -> transport::Result<()> {
        let length = u32::try_from(content.len()).unwrap_or(u32::MAX).to_be_bytes();
        let frame = [&length, content].concat();
        let (socket, mut done) = (&self.both.socket, 0);
        while done < frame.len() {
            done += patiently(socket, || socket.send(&frame[done..], None)).await?;
            self.within = done < frame.len();
        }
        Ok(())
    }
}

impl SendStream for SrtSend {
    fn write<'a>(&'a mut self, bytes: &'a [u8]) -> Local<'a, transport::Result<()>> {
        Box::pin(async move {
            if self.both.sent_end.get() {
                return Err(TransportError::Closed);
            }
            for content in bytes.chunks(FRAME_BYTES_MAX) {
                self.frame(content).await?;
            }
            Ok(())
        })
    }

    fn finish(&mut self) -> Local<'_, transport::Result<()>> {
        Box::pin(async move {
            if self.both.sent_end.get() {
                return Err(TransportError::Closed);
            }
            self.frame(&[]).await?;
            self.both.sent_end.set(true);
            // The peer may close at once; SRT then tells nothing more of what was sent.
            let _ = self.both.socket.status();
            Ok(())
        })
    }
}

impl Drop for SrtSend {
    fn drop(&mut self) {
        if self.both.sent_end.get() {
            return;
        }
        // The other direction may go on, unless there is no room to say so.
        let said = match self.both.socket.send(&GIVEN_UP.to_be_bytes(), None) {
            Ok(n) => n == LENGTH_BYTES,
            // There is nobody to be told, but there may be something to be read.
            Err(error) => error.is_gone(),
        };
        if !said || self.within {
            self.both.give_up();
        }
    }
}

struct SrtReceive {
    both: Rc<Both>,
    /// What is left of the frame that is being read.
    left: usize,
    /// What has come of the next one's length.
    length: Vec<u8>,
}

impl ReceiveStream for SrtReceive {
    fn read<'a>(&'a mut self, buffer: &'a mut [u8]) -> Local<'a, transport::Result<usize>> {
        Box::pin(async move {
            let socket = &self.both.socket;
            let cut_off =
                |e: TransportError| TransportError::Failed(format!("the peer gave the stream up: {e}"));
            while self.left == 0 && !self.both.got_end.get() {
                let mut next = [0; LENGTH_BYTES];
                let missing = &mut next[self.length.len()..];
                let n = patiently(socket, || socket.receive(missing)).await.map_err(cut_off)?;
                if n == 0 {
                    return Err(cut_off(TransportError::Closed));
                }
                self.length.extend_from_slice(&missing[..n]);
                if let Ok(length) = <[u8; LENGTH_BYTES]>::try_from(self.length.as_slice()) {
                    self.length.clear();
                    self.left = match u32::from_be_bytes(length) {
                        GIVEN_UP => return Err(cut_off(TransportError::Closed)),
                        length => length as usize,
                    };
                    self.both.got_end.set(self.left == 0);
                }
            }
            let room = buffer.len().min(self.left);
            if room == 0 {
                return Ok(0);
            }
            match patiently(socket, || socket.receive(&mut buffer[..room])).await.map_err(cut_off)? {
                0 => Err(cut_off(TransportError::Closed)),
                n => {
                    self.left -= n;
                    Ok(n)
                }
            }
        })
    }
}
