//! Messages of a flow that are handed over in their time (playout.md).

use crate::connection::flows::halves::ReceiveHalf;
use crate::connection::{Stats, Ways};
use crate::synthesis::ReceiveStack;
use uts_functions::playout::{self, Buffer, Clock, Figures, Next};
use uts_functions::sequencing::reassembly::Delivery;
use uts_functions::sequencing::{Rows, Sequencing};
use uts_functions::{Choice, Function, Time};
use uts_wire::frame;

/// The mechanism that hands messages of a flow over in their time, and its state.
#[derive(Debug)]
pub(crate) struct Playing {
    /// The epoch that says so, and its choice.
    epoch: u32,
    choice: Choice,
    mechanism: playout::Slot,
    pub buffer: Buffer,
    /// When the application is to be told of what is next, as far as is known.
    pub due: Option<Time>,
    /// Positions that the sender gave up, not counted yet.
    skipped: u64,
    /// Messages that came too late, not counted yet.
    late: u64,
}

impl Playing {
    /// Takes from the order what it lets go, and works out when something is due. At most
    /// `bytes_max` bytes wait: the rest stays where flow control sees it. (playout.md R-7)
    fn take(
        &mut self,
        now: Time,
        clock: &mut Clock,
        (bytes_max, in_order): (usize, bool),
        mut next: impl FnMut() -> Option<Delivery>,
    ) {
        let late = self.buffer.figures().late;
        while self.buffer.has_room(bytes_max)
            && let Some(what) = next()
        {
            if let Delivery::Skipped(positions) = what {
                self.skipped += positions;
            }
            self.buffer.insert(now, clock, &self.mechanism, in_order, what);
        }
        self.late += self.buffer.figures().late - late;
        self.due = self.buffer.due(clock);
    }

    /// Adds to the figures what is new.
    fn count(&mut self, stats: &mut Stats) {
        stats.positions_skipped += core::mem::take(&mut self.skipped);
        stats.messages_late += core::mem::take(&mut self.late);
    }

    /// True if there is nothing left to do for it.
    fn is_over(&self) -> bool {
        self.buffer.is_empty() && self.choice == Choice::default()
    }
}

impl ReceiveHalf {
    /// Data has come under a stack, or its sender has put it to use: when messages are handed over
    /// is what the newest of them says. Says whether it has changed: the flow is to be noted then,
    /// and its alarm updated.
    pub fn follow_playout(&mut self, stack: &ReceiveStack) -> bool {
        if self.playing.is_none() && !stack.layout.times {
            return false;
        }
        let choice = *stack.profile.get(Function::Playout);
        if let Some(playing) = self.playing.as_mut()
            && (stack.epoch <= playing.epoch || playing.choice == choice)
        {
            playing.epoch = playing.epoch.max(stack.epoch);
            return false;
        }
        let Some(mechanism) = playout::Slot::build(&choice, ()) else { return false };
        match self.playing.as_mut() {
            Some(playing) => {
                playing.buffer.follow(&mechanism);
                (playing.epoch, playing.choice, playing.mechanism) = (stack.epoch, choice, mechanism);
                // Whatever waits is looked at by the new one.
                playing.due = Some(Time::ZERO);
                true
            }
            None => {
                let buffer = Buffer::new(self.data.reached());
                let playing =
                    Playing { epoch: stack.epoch, choice, mechanism, buffer, due: None, skipped: 0, late: 0 };
                self.playing = Some(Box::new(playing));
                true
            }
        }
    }

    /// A message says when it was made. What was handed over needs no time any more.
    pub fn note_media_time(&mut self, media: &frame::MediaTime) {
        let (data, at) = (&self.data, media.start);
        if data.is_handed_over(&(at..at.saturating_add(1))) {
            return;
        }
        if let Some(playing) = &mut self.playing {
            playing.buffer.note(at, media.micros, data.consumed());
        }
    }

    /// Takes what the order lets go, if messages wait for their time; says whether they do.
    pub fn play(
        &mut self,
        now: Time,
        clock: &mut Option<Box<Clock>>,
        sequencing: &mut impl Sequencing,
        stats: &mut Stats,
    ) -> bool {
        let Some(playing) = self.playing.as_deref_mut() else { return false };
        let bytes_max = usize::try_from(self.grant.window_bytes_max).unwrap_or(usize::MAX);
        let (data, in_order) = (&mut self.data, sequencing.rows() != Rows::AnyOrder);
        playing.take(now, clock.get_or_insert_default(), (bytes_max, in_order), || {
            sequencing.next(data, usize::MAX)
        });
        playing.count(stats);
        true
    }

    /// True if something waits for its time.
    pub fn waits_for_time(&self) -> bool {
        self.playing.as_ref().is_some_and(|playing| !playing.buffer.is_empty())
    }

    /// Takes what is due of that.
    pub fn next_played(&mut self, now: Time, clock: Option<&Clock>) -> Option<Next> {
        let (playing, clock) = (self.playing.as_deref_mut()?, clock?);
        let next = playing.buffer.pop(now, clock);
        playing.due = playing.buffer.due(clock);
        if next.is_none() && playing.is_over() {
            self.playing = None;
        }
        next
    }
}

impl Ways {
    /// Tells the application once that a flow has something to read; where messages wait for their
    /// time, when that has come.
    pub(in crate::connection) fn tell_reader(&mut self, now: Time, id: u32) {
        let Some(flow) = self.flows.get_mut(id) else { return };
        let receive = &mut flow.receive;
        if receive.playing.is_none() {
            receive.tell_reader(id, &mut self.events);
            return;
        }
        let inbound = &mut self.inbound;
        let clock = &mut inbound.clock;
        let before = clock.as_deref().map(Clock::quickest);
        let stack = inbound.stacks.iter_mut().rev().find(|stack| stack.group == receive.group);
        let Some(stack) = stack else { return };
        receive.play(now, clock, &mut stack.sequencing, &mut self.stats);
        let due = receive.playing.as_ref().and_then(|playing| playing.due);
        let has_end = receive.due_reset().is_some();
        if due.is_some_and(|due| due <= now) || (has_end && due.is_none()) {
            receive.tell_reader(id, &mut self.events);
        }
        self.flows.note_received(id);
        self.flows.update_alarm(id);
        self.follow_clock(now, before);
    }

    /// The quickest way may be another than before: then what waits in any flow is due at another
    /// time. (playout.md R-2)
    pub(in crate::connection) fn follow_clock(&mut self, now: Time, before: Option<i64>) {
        let clock = self.inbound.clock.as_deref();
        if clock.is_some_and(|clock| Some(clock.quickest()) != before) {
            self.play_anew(now);
        }
    }

    /// Works out anew when something is due of what waits in any flow, and tells of what is.
    pub(in crate::connection) fn play_anew(&mut self, now: Time) {
        let playing = self.flows.iter().filter(|(_, flow)| flow.receive.playing.is_some());
        let ids: Vec<u32> = playing.map(|(id, _)| id).collect();
        if ids.is_empty() {
            return;
        }
        let clock = self.inbound.clock.get_or_insert_default();
        for id in ids {
            let Some(receive) = self.flows.get_mut(id).map(|flow| &mut flow.receive) else { continue };
            let Some(playing) = receive.playing.as_deref_mut() else { continue };
            playing.due = playing.buffer.due(clock);
            if playing.due.is_some_and(|due| due <= now) {
                receive.tell_reader(id, &mut self.events);
            }
            self.flows.update_alarm(id);
        }
    }

    /// Looks at what waits for its time, if some of it is due.
    pub(in crate::connection) fn play_due(&mut self, now: Time, id: u32) {
        let receive = self.flows.get(id).map(|flow| &flow.receive);
        let playing = receive.and_then(|receive| receive.playing.as_ref());
        if playing.and_then(|playing| playing.due).is_some_and(|due| due <= now) {
            self.tell_reader(now, id);
        }
    }

    /// Figures of how messages of a flow were handed over; `None` if they are not.
    pub(in crate::connection) fn playout(&self, id: u32) -> Option<Figures> {
        Some(self.flows.get(id)?.receive.playing.as_ref()?.buffer.figures())
    }
}
