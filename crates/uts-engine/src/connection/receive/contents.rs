//! Contents of an authentic packet, read once before any of them changes anything.

use crate::connection::receive::messages::Messages;
use smallvec::SmallVec;
use uts_wire::frame::{self, Frame, FrameIter};

/// Frames of a packet that are kept as they were read; more are read again.
const FRAMES_KEPT: usize = 4;

/// Properties that some frame of a packet has.
#[derive(Clone, Copy, Debug, Default)]
pub(in crate::connection) struct Seen {
    pub eliciting: bool,
    pub polled: bool,
    pub has_data: bool,
}

/// Contents of an authentic packet: the common cases are read at once.
pub(in crate::connection) enum Contents<'p, 'a> {
    /// One frame, of data.
    Data(frame::Data<'a>),
    /// Whole messages of one flow.
    Messages(&'p Messages),
    Frames(&'p Frames<'a>),
}

/// Where what is read of a packet is kept: it is too large to be moved.
pub(in crate::connection) struct Places<'a> {
    messages: Messages,
    frames: Frames<'a>,
}

impl<'a> Places<'a> {
    #[inline]
    pub fn new(payload: &'a [u8]) -> Self {
        Places { messages: Messages::default(), frames: Frames::new(payload) }
    }
}

impl<'p, 'a> Contents<'p, 'a> {
    /// Reads all of it, before any of it changes anything; `None` if it is malformed.
    #[inline]
    pub fn read(payload: &'a [u8], places: &'p mut Places<'a>) -> Option<Self> {
        let Places { messages, frames } = places;
        let begins_so = payload.first().is_some_and(|kind| Messages::may_begin_with(*kind));
        if begins_so && messages.read(payload) {
            return Some(Contents::Messages(messages));
        }
        let data = frame::Data::only(payload).map(Contents::Data);
        data.or_else(|| frames.read().then_some(Contents::Frames(frames)))
    }

    /// Does something for each frame of redundancy.
    pub fn for_each_repair(&self, mut each: impl FnMut(&frame::Repair<'_>)) {
        if let Contents::Frames(frames) = self {
            frames.for_each(|frame| {
                if let Frame::Repair(repair) = frame {
                    each(repair);
                }
            });
        }
    }

    #[inline]
    pub fn seen(&self) -> Seen {
        match self {
            Contents::Frames(frames) => frames.seen,
            _ => Seen { eliciting: true, polled: false, has_data: true },
        }
    }
}

/// The frames of a packet, all of which can be read.
pub(in crate::connection) struct Frames<'a> {
    pub seen: Seen,
    /// The first, which are mostly all.
    first: SmallVec<[Frame<'a>; FRAMES_KEPT]>,
    rest: FrameIter<'a>,
}

impl<'a> Frames<'a> {
    /// Frames of a payload, to be read.
    #[inline]
    pub fn new(payload: &'a [u8]) -> Self {
        Frames { seen: Seen::default(), first: SmallVec::new(), rest: FrameIter::new(payload) }
    }

    /// Reads all once, before any of them changes anything. Says whether that could be done, and
    /// there are any.
    pub fn read(&mut self) -> bool {
        let mut frames = self.rest.clone();
        while let Some(frame) = frames.next() {
            let Ok(frame) = frame else { return false };
            self.seen.eliciting |= frame.elicits_ack();
            self.seen.polled |= matches!(frame, Frame::Poll);
            self.seen.has_data |= matches!(frame, Frame::Data(_) | Frame::Messages(_));
            if self.first.len() < FRAMES_KEPT {
                self.first.push(frame);
                self.rest = frames.clone();
            }
        }
        !self.first.is_empty()
    }

    /// Does something for each, until one fails.
    pub fn try_for_each<E>(&self, mut each: impl FnMut(&Frame<'_>) -> Result<(), E>) -> Result<(), E> {
        self.first.iter().try_for_each(&mut each)?;
        // All could be read before.
        self.rest.clone().flatten().try_for_each(|frame| each(&frame))
    }

    /// Does something for each.
    pub fn for_each(&self, mut each: impl FnMut(&Frame<'_>)) {
        self.first.iter().for_each(&mut each);
        self.rest.clone().flatten().for_each(|frame| each(&frame));
    }

    pub fn any(&self, mut is_so: impl FnMut(&Frame<'_>) -> bool) -> bool {
        self.first.iter().any(&mut is_so) || self.rest.clone().flatten().any(|frame| is_so(&frame))
    }
}
