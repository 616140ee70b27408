//! Calls of the application on a connection's flows.

use crate::connection::flows::batch::{MessageBatch, Queue, ReadSink, Terms};
use crate::connection::flows::halves::{Rest, SendHalf, SentReset};
use crate::connection::flows::interface::{
    After, FlowError, FlowOptions, MessageOptions, Read, ReadError, WriteError,
};
use crate::connection::parts::Signal;
use crate::connection::receive::presentations::Presented;
use crate::connection::{Connection, Life, Outbound, Ways};
use crate::event::{Direction, Event, FlowId};
use crate::requirements::Requirements;
use bytes::Bytes;
use std::collections::VecDeque;
use uts_functions::congestion::Congestion;
use uts_functions::flow::FlowControl;
use uts_functions::playout::{Clock, Figures, Next};
use uts_functions::rate::Verdict;
use uts_functions::sequencing::reassembly::Delivery;
use uts_functions::sequencing::{self, Sequencing};
use uts_functions::{Profile, Time};

impl Connection {
    /// Opens a flow, which goes both ways.
    ///
    /// # Errors
    /// [`FlowError::Blocked`] while the peer allows no more; it is worth trying again at the next
    /// event. Others are about the flow's own requirements.
    pub fn open_flow(&mut self, options: FlowOptions) -> Result<FlowId, FlowError> {
        if let Some(reason) = self.close_reason() {
            return Err(FlowError::Closed(reason.clone()));
        }
        if !self.ways.flows.may_open() {
            return Err(FlowError::Blocked);
        }
        let group = options.requirements.as_ref().map(|r| self.group_for(r)).transpose()?;
        let id = self.ways.flows.open(options.priority()).ok_or(FlowError::Blocked)?;
        if let Some(group) = group {
            self.join_group(id, group);
        }
        Ok(id)
    }

    /// Gives what this end sends in a flow requirements of its own, as
    /// [`FlowOptions::requirements`] does: for flows that the peer has opened. Possible until
    /// something is written.
    ///
    /// # Errors
    /// [`FlowError`]; nothing has changed then.
    pub fn set_flow_requirements(
        &mut self,
        id: FlowId,
        requirements: &Requirements,
    ) -> Result<(), FlowError> {
        if let Some(reason) = self.close_reason() {
            return Err(FlowError::Closed(reason.clone()));
        }
        let send = &self.ways.flows.get(id.0).ok_or(FlowError::Unknown)?.send;
        if send.buffer.written() > 0 || send.reset.is_some() {
            return Err(FlowError::Begun);
        }
        let group = self.group_for(requirements)?;
        self.join_group(id, group);
        Ok(())
    }

    /// Gives what this end sends in a flow another [`FlowOptions::priority`]: 0 = the most
    /// important, 255 = the least. It holds from the next packet on.
    ///
    /// # Errors
    /// [`FlowError::Unknown`], [`FlowError::Closed`].
    pub fn set_flow_priority(&mut self, id: FlowId, priority: u8) -> Result<(), FlowError> {
        if let Some(reason) = self.close_reason() {
            return Err(FlowError::Closed(reason.clone()));
        }
        if self.ways.flows.set_priority(id.0, priority) { Ok(()) } else { Err(FlowError::Unknown) }
    }

    /// The priority of what this end sends in a flow; `None` if there is no such flow.
    pub fn flow_priority(&self, id: FlowId) -> Option<u8> {
        self.ways.flows.get(id.0).map(|flow| flow.send.priority)
    }

    /// The profile under which a flow's data travels; `None` while that is not agreed, or if there
    /// is no such flow. For what the peer sends it is the connection's until the first data has
    /// come.
    pub fn flow_profile(&self, direction: Direction, id: FlowId) -> Option<Profile> {
        let flow = self.ways.flows.get(id.0)?;
        match direction {
            Direction::Out if flow.send.is_held => None,
            Direction::Out => self.ways.outbound.as_ref()?.stack(flow.send.group).map(|s| *s.profile),
            Direction::In => {
                self.ways.inbound.as_ref().map(|_| self.profile_of(direction, flow.receive.group))
            }
        }
    }

    /// The next flow that the peer opened.
    pub fn accept_flow(&mut self) -> Option<FlowId> {
        self.ways.flows.accepted.pop_front().map(FlowId)
    }

    /// Bytes that the application has handed over and the peer has not acknowledged, of all flows.
    pub fn undelivered_bytes(&self) -> u64 {
        self.ways.flows.iter().map(|(_, flow)| flow.send.buffer.held_bytes() as u64).sum()
    }

    /// Bytes of a flow that the application has handed over and that have not left this end for the
    /// first time; ends of messages count as one each. `None` if there is no such flow.
    pub fn unsent_bytes(&self, id: FlowId) -> Option<u64> {
        let buffer = &self.ways.flows.get(id.0)?.send.buffer;
        Some(buffer.written().saturating_sub(buffer.sent()))
    }

    /// Bytes that the peer lets this end send in a flow beyond those that were handed over, as soon
    /// as there are `least`, or nothing waits to leave, and less than `ahead` waits to leave. A
    /// caller that asks before it fetches what it sends holds nothing for a peer that takes
    /// nothing.
    ///
    /// # Errors
    /// [`WriteError`]; [`WriteError::Blocked`] while that is not so.
    pub fn granted(&mut self, id: FlowId, least: u64, ahead: u64) -> Result<u64, WriteError> {
        let group = self.writable(id)?.group;
        let Ways { flows, outbound, .. } = &mut self.ways;
        let stack = outbound.as_ref().and_then(|outbound| outbound.stack(group));
        let Some(send) = flows.get_mut(id.0).map(|flow| &mut flow.send) else {
            return Err(WriteError::Unknown);
        };
        let limit = stack.map_or(send.limit, |stack| FlowControl::send_limit(&stack.flow, send.limit));
        let (written, sent) = (send.buffer.written(), send.buffer.sent());
        let (granted, unsent) = (limit.saturating_sub(written), written.saturating_sub(sent));
        if unsent < ahead && (granted >= least || (granted > 0 && unsent == 0)) {
            return Ok(granted);
        }
        send.writer_waits = true;
        Err(WriteError::Blocked)
    }

    /// A flow to which something may be written.
    pub(super) fn writable(&mut self, id: FlowId) -> Result<&mut SendHalf, WriteError> {
        if let Some(reason) = self.close_reason() {
            return Err(WriteError::Closed(reason.clone()));
        }
        let send = &mut self.ways.flows.get_mut(id.0).ok_or(WriteError::Unknown)?.send;
        if let Some(code) = send.stopped {
            return Err(WriteError::Stopped(code));
        }
        if let Some(why) = &send.refused {
            return Err(WriteError::Refused(why.to_string()));
        }
        if send.buffer.is_finished() || send.reset.is_some() {
            return Err(WriteError::Finished);
        }
        Ok(send)
    }

    /// Bytes that a flow takes now.
    fn room(&mut self, id: FlowId) -> Result<usize, WriteError> {
        let capacity = self.ways.send_capacity(id.0);
        let send = self.writable(id)?;
        let room = capacity.saturating_sub(send.buffer.load_bytes());
        if room == 0 {
            send.writer_waits = true;
            self.ways.flows.outgoing.has_waiting |= self.ways.lacks_room(id.0);
            return Err(WriteError::Blocked);
        }
        Ok(room)
    }

    /// Hands bytes over; says how many were taken.
    ///
    /// # Errors
    /// [`WriteError`]; with [`WriteError::Blocked`] nothing was taken.
    pub fn write(&mut self, now: Time, id: FlowId, data: Bytes) -> Result<usize, WriteError> {
        let room = self.room(id)?;
        let take = data.len().min(room);
        let bytes = data.slice(..take);
        let presented = if self.may_present_stream(id) {
            self.forming(id).and_then(|forming| forming.present_stream(&bytes))
        } else {
            None
        };
        let Some(flow) = self.ways.flows.get_mut(id.0) else { return Err(WriteError::Unknown) };
        match presented {
            Some(presented) => flow.send.buffer.write_presented_bytes(presented),
            None => flow.send.buffer.write(bytes),
        }
        flow.send.writer_waits = take < data.len();
        self.after_write(now, id.0, take);
        if take < data.len() && self.ways.lacks_room(id.0) {
            self.ways.flows.outgoing.has_waiting = true;
        }
        Ok(take)
    }

    /// True if bytes that are written to a flow may travel in a form of their own. Where they do
    /// not, this is all that is asked.
    #[inline]
    fn may_present_stream(&self, id: FlowId) -> bool {
        let send = self.ways.flows.get(id.0).map(|flow| &flow.send);
        let stack = |group| self.ways.outbound.as_ref().and_then(|outbound| outbound.stack(group));
        send.is_some_and(|send| send.is_held || stack(send.group).is_some_and(|stack| stack.layout.lines))
    }

    /// Hands one message over, whole or not at all. Under a profile of bytes its end is not kept.
    ///
    /// # Errors
    /// [`WriteError`]; nothing was taken then.
    pub fn send_message(
        &mut self,
        now: Time,
        id: FlowId,
        message: Bytes,
        options: MessageOptions,
    ) -> Result<(), WriteError> {
        self.hand_over(now, id, &mut Some(message), options).map(|_| ())
    }

    /// Hands messages over, each as [`Connection::send_message`] does, as many as the flow takes at
    /// present; says how many, which is one at least unless `messages` is empty. Those that were
    /// taken are no longer in `messages`.
    ///
    /// # Errors
    /// [`WriteError`], of the message in front; nothing was taken then.
    pub fn send_messages(
        &mut self,
        now: Time,
        id: FlowId,
        messages: &mut VecDeque<Bytes>,
        options: MessageOptions,
    ) -> Result<usize, WriteError> {
        self.hand_over(now, id, messages, options)
    }

    /// Hands the messages of a batch over, as [`Connection::send_messages`] does.
    ///
    /// # Errors
    /// [`WriteError`], of the message in front; nothing was taken then.
    pub fn send_batch(
        &mut self,
        now: Time,
        id: FlowId,
        batch: &mut MessageBatch,
        options: MessageOptions,
    ) -> Result<usize, WriteError> {
        self.hand_over(now, id, batch, options)
    }

    fn hand_over(
        &mut self,
        now: Time,
        id: FlowId,
        messages: &mut impl Queue,
        options: MessageOptions,
    ) -> Result<usize, WriteError> {
        if options.expedited {
            return self.expedite(now, id, messages);
        }
        self.room(id)?;
        let Some(forming) = self.forming(id) else { return Err(WriteError::Blocked) };
        let (keeps_boundaries, bytes_max) = (forming.keeps_boundaries(), forming.bytes_max());
        let group = self.ways.flows.get(id.0).map_or(0, |f| f.send.group);
        let lifetime =
            options.lifetime.or(self.requirements_of(group).msg_lifetime).filter(|_| keeps_boundaries);
        let expires = lifetime.map(|lifetime| now + lifetime);
        // detection.md R-21
        let covered = options.checksum_len.or(self.requirements_of(group).msg_checksum_len);
        let covered = covered.filter(|bytes| keeps_boundaries && *bytes < MessageOptions::ALL);
        let terms = Terms { capacity: self.ways.send_capacity(id.0), bytes_max, expires };
        let Ways { flows, outbound, stats, .. } = &mut self.ways;
        let Some(send) = flows.get_mut(id.0).map(|flow| &mut flow.send) else {
            return Err(WriteError::Unknown);
        };
        let first_bytes = messages.front().map_or(0, |message| message.len());
        let mut judge = outbound.as_mut().map(|o| &mut o.rate).filter(|rate| rate.info().facts.judges);
        let (mut taken, mut bytes) = (0, 0);
        let is_plain = judge.is_none()
            && options.after == After::Everything
            && !(options.key.is_some() || forming.is_keyed || forming.is_timed)
            && covered.is_none();
        if keeps_boundaries && is_plain && !forming.presents() {
            // As they are: what the loop below would do with each, without its questions.
            (taken, bytes) = messages.hand_over(&mut send.buffer, &terms);
        }
        let mut refused = None;
        while send.buffer.load_bytes() < terms.capacity
            && let Some(message) = messages.front()
        {
            let size = message.len();
            if size > bytes_max {
                refused = Some(WriteError::TooLarge { size, max: bytes_max });
                break;
            }
            let verdict = judge.as_mut().map_or(Verdict::Go, |rate| send.offer(rate, now, size));
            if let Verdict::Wait(_) = verdict {
                refused = Some(WriteError::Blocked);
                break;
            }
            let presented = forming.present(message);
            let Some(message) = messages.take_front() else { break };
            taken += 1;
            if verdict == Verdict::Discard {
                stats.messages_discarded += 1;
                continue;
            }
            let start = send.buffer.written();
            match presented {
                Some(presented) => send.buffer.write_presented(presented, expires),
                None if keeps_boundaries => send.buffer.write_message(message, expires),
                None => send.buffer.write(message),
            }
            send.order(start, &options, forming.is_keyed);
            if forming.is_timed {
                send.time(start, options.made.at(now).on_the_wire());
            }
            if let Some(covered) = covered.filter(|covered| (*covered as usize) < size) {
                send.cover(start, covered);
            }
            if verdict == Verdict::Tag {
                send.tag(start);
            }
            bytes += size;
        }
        if let (Some(outbound), Some(lifetime)) = (outbound, lifetime.filter(|_| taken > 0)) {
            outbound.on_message_with_lifetime(now, lifetime, first_bytes, (id.0, send.buffer.written()));
        }
        // What is wrong is said when nothing else is left to say.
        if let Some(refused) = refused.filter(|_| taken == 0) {
            self.ways.flows.update_alarm(id.0);
            return Err(refused);
        }
        self.after_write(now, id.0, bytes);
        Ok(taken)
    }

    pub(super) fn after_write(&mut self, now: Time, id: u32, bytes: usize) {
        self.life.last_write_at = now;
        self.life.liveness.on_data();
        self.ways.bytes_written += bytes as u64;
        self.ways.after_send_change(id);
    }

    /// The position in a flow behind everything that was handed over so far, for
    /// [`After::Positions`]; `None` if there is no such flow.
    pub fn position(&self, id: FlowId) -> Option<u64> {
        self.ways.flows.get(id.0).map(|flow| flow.send.buffer.written())
    }

    /// Ends the flow after what was written. Without effect if it was reset. (F-6)
    pub fn finish(&mut self, id: FlowId) {
        if let Some(flow) = self.ways.flows.get_mut(id.0).filter(|flow| flow.send.reset.is_none()) {
            flow.send.buffer.finish();
            self.ways.after_send_change(id.0);
        }
    }

    /// Gives the flow up: what was not delivered is not.
    pub fn reset(&mut self, id: FlowId, code: u64) {
        self.ways.reset_flow(id, code);
    }

    /// Resets the flow behind what was written: the peer reads all of that, and then the reset. If
    /// the peer takes nothing of it for the idle time-out, or stops the flow, the rest is given up.
    /// Data without positions is given up at once, as by [`Connection::reset`]. Without effect if
    /// the flow was finished or reset. (flow.md)
    pub fn reset_reliably(&mut self, now: Time, id: FlowId, code: u64) {
        self.ways.reset_flow_reliably(now, id, code);
    }

    /// Says that no more data of the flow is wanted; what has arrived is dropped. (F-8)
    pub fn stop(&mut self, id: FlowId, code: u64) {
        let Some(flow) = self.ways.flows.get_mut(id.0) else { return };
        let receive = &mut flow.receive;
        receive.drop_expedited();
        if receive.is_done {
            self.ways.flows.drop_if_done(id.0);
            return;
        }
        let complete = receive.data.is_complete() || receive.due_reset().is_some();
        if let Some(end) = receive.data.end_position() {
            receive.end_at(end);
        }
        receive.is_final_known |= receive.due_reset().is_some();
        receive.is_done = true;
        receive.asking = None;
        receive.playing = None;
        receive.tagged = None;
        receive.data = Default::default();
        self.ways.flows.note_received(id.0);
        self.ways.grant_again();
        let Some(flow) = self.ways.flows.get_mut(id.0) else { return };
        let receive = &mut flow.receive;
        if !complete {
            receive.stop = Some(code);
            self.ways.flows.signals.insert(Signal::Stop(id.0));
        }
        self.ways.flows.drop_if_done(id.0);
    }

    /// Takes what comes next out of a flow: at most `bytes_max` bytes of a run of bytes, or a whole
    /// message.
    ///
    /// # Errors
    /// [`ReadError`]; with [`ReadError::Blocked`], an event follows when there is something.
    pub fn read(&mut self, now: Time, id: FlowId, bytes_max: usize) -> Result<Read, ReadError> {
        let mut next = None;
        self.read_many(now, id, bytes_max, |read| {
            next = Some(read);
            false
        })?;
        next.ok_or(ReadError::Blocked)
    }

    /// Has what has arrived acknowledged at once if it is to be acknowledged at some time: for a
    /// caller that may be called again late.
    pub fn acknowledge(&mut self, now: Time) {
        if let Some(inbound) = self.ways.inbound.as_mut().filter(|inbound| inbound.arrivals.due.is_some()) {
            inbound.arrivals.report_by(now);
        }
    }

    /// Figures of how messages of a flow were handed over in their time; `None` where no profile
    /// has playout, and before the first message came.
    pub fn playout(&self, id: FlowId) -> Option<Figures> {
        self.ways.playout(id.0)
    }

    /// True if all that has arrived in a flow was read, and more may come: to read would be in
    /// vain.
    pub fn has_read_all(&self, id: FlowId) -> bool {
        let receive = self.ways.flows.get(id.0).map(|flow| &flow.receive);
        self.life.close_reason.is_none() && receive.is_some_and(|receive| receive.is_awaited())
    }

    /// Takes what comes next, as [`Connection::read`] does, again and again until `put` wants no
    /// more, or the flow has ended: of small messages that is much faster.
    ///
    /// # Errors
    /// [`ReadError`] of what comes behind that which was put.
    pub fn read_many(
        &mut self,
        now: Time,
        id: FlowId,
        bytes_max: usize,
        put: impl FnMut(Read) -> bool,
    ) -> Result<(), ReadError> {
        self.read_into(now, id, bytes_max, put)
    }

    /// Takes what comes next, as [`Connection::read_many`] does, into whatever it is to be read
    /// into: of small messages an [`IntoBatch`](crate::IntoBatch) is faster still.
    ///
    /// # Errors
    /// [`ReadError`] of what comes behind that which was put.
    pub fn read_into(
        &mut self,
        now: Time,
        id: FlowId,
        bytes_max: usize,
        mut sink: impl ReadSink,
    ) -> Result<(), ReadError> {
        let Ways { flows, inbound, stats, .. } = &mut self.ways;
        let Life { close_reason, liveness, .. } = &mut self.life;
        let closed = || close_reason.as_deref().cloned().map_or(ReadError::Unknown, ReadError::Closed);
        let receive = &mut flows.get_mut(id.0).ok_or_else(closed)?.receive;
        if receive.is_done {
            return Err(ReadError::Unknown);
        }
        let presentation = inbound.as_ref().and_then(|i| i.presentation(receive.group).cloned());
        let Some(inbound) = inbound.as_mut() else { return Err(ReadError::Blocked) };
        let clock = &mut inbound.clock;
        let quickest = clock.as_deref().map(Clock::quickest);
        let stack = inbound.stacks.iter_mut().rev().find(|stack| stack.group == receive.group);
        let Some(stack) = stack else { return Err(ReadError::Blocked) };
        let max = receive.grant.window_bytes_max as usize;
        let (mut has_widened, mut waits_for_message) = (false, false);
        let has_played = receive.playing.is_some();
        // Nobody is told any more when something is due.
        let due_by = if close_reason.is_some() { Time::NEVER } else { now };
        let outcome = loop {
            let plays = receive.playing.is_some();
            // Of small messages there are many, and nothing else.
            if !plays && !sequencing::take_rows(&stack.sequencing, &mut receive.data, |row| sink.put_row(row))
            {
                break Ok(());
            }
            let mut played = || {
                // What was read has left room for more.
                receive.play(now, clock, &mut stack.sequencing, stats);
                receive.next_played(due_by, clock.as_deref())
            };
            let (next, timing) = match plays.then(&mut played) {
                None => (stack.sequencing.next(&mut receive.data, bytes_max), None),
                Some(None) => (None, None),
                Some(Some(Next::Data(next, timing))) => (Some(next), timing),
                Some(Some(Next::Missing(positions))) => {
                    if sink.put(Read::Missing { positions }) {
                        continue;
                    }
                    break Ok(());
                }
            };
            let read = match next {
                // What the sender gave up is not read; it shows in the statistics.
                Some(Delivery::Skipped(positions)) => {
                    stats.positions_skipped += positions;
                    continue;
                }
                Some(Delivery::Bytes(position, data)) => match receive.lines.as_deref_mut() {
                    None => Read::Bytes(position, data),
                    Some(lines) => match lines.skip(position, data.len() as u64) {
                        Ok(position) => Read::Bytes(position, data),
                        Err(error) => break Err(ReadError::Presentation(error.to_string())),
                    },
                },
                Some(Delivery::PresentedBytes(position, data)) => {
                    let (lines, mut text) = (receive.lines.get_or_insert_default(), Vec::new());
                    match lines.read(position, &data, &mut text) {
                        Ok(_) if text.is_empty() => continue,
                        Ok(position) => Read::Bytes(position, text.into()),
                        Err(error) => break Err(ReadError::Presentation(error.to_string())),
                    }
                }
                Some(Delivery::Message(_, message)) => match timing {
                    Some(timing) => Read::Timed { message, timing },
                    None => Read::Message(message),
                },
                // detection.md R-21
                Some(Delivery::Damaged(_, message, right_bytes)) => Read::Damaged { message, right_bytes },
                Some(Delivery::Presented(_, data)) if timing.is_some() => {
                    let plain = presentation.as_ref().map(|known| known.read(&data, max));
                    match (plain, timing) {
                        (Some(Ok(message)), Some(timing)) => Read::Timed { message, timing },
                        (Some(Err(why)), _) => break Err(ReadError::Presentation(why)),
                        _ => break Err(ReadError::Presentation("no profile had a presentation".to_owned())),
                    }
                }
                Some(Delivery::Presented(_, data)) => {
                    let put = match &presentation {
                        Some(known) => sink.put_presented(Presented::new(data, known.clone(), max)),
                        None => Err("no profile had a presentation".to_owned()),
                    };
                    match put {
                        Ok(true) => continue,
                        Ok(false) => break Ok(()),
                        Err(why) => break Err(ReadError::Presentation(why)),
                    }
                }
                Some(Delivery::End) => {
                    (receive.is_done, receive.tagged) = (true, None);
                    if receive.lines.as_ref().is_some_and(|lines| !lines.may_end()) {
                        flows.drop_if_done(id.0);
                        break Err(ReadError::Presentation("the stream ends within a line end".to_owned()));
                    }
                    flows.drop_if_done(id.0);
                    sink.put(Read::End);
                    break Ok(());
                }
                None => {
                    liveness.on_awaited(receive.reader_told);
                    (receive.reader_told, receive.reader_waits) = (false, true);
                    let reset = receive.due_reset().filter(|_| !receive.waits_for_time());
                    has_widened = reset.is_none() && receive.widen_for_message();
                    waits_for_message = receive.data.contiguous() > receive.data.consumed();
                    if let Some(code) = reset {
                        (receive.is_done, receive.tagged) = (true, None);
                        flows.drop_if_done(id.0);
                        break Err(ReadError::Reset(code));
                    }
                    break Err(close_reason
                        .as_deref()
                        .cloned()
                        .map_or(ReadError::Blocked, ReadError::Closed));
                }
            };
            if !sink.put(read) {
                break Ok(());
            }
        };
        if has_widened {
            self.ways.flows.signals.insert(Signal::Credit(id.0));
        }
        self.ways.consumed(now, id.0);
        if has_played {
            self.ways.flows.update_alarm(id.0);
            self.ways.follow_clock(now, quickest);
        }
        // flow.md R-38
        if waits_for_message && self.ways.flows.incoming.widen() {
            self.ways.flows.signals.insert(Signal::ConnectionCredit);
        }
        outcome
    }
}

impl Ways {
    /// Bytes that a flow may hold without an acknowledgement of the peer. All flows that send share
    /// what fills the path: a thousand hold little more than one. Data that waits for the peer's
    /// credit would fill no path. All flows together hold what the connection has memory for
    /// (flow.md R-37), each no more than four times what it leaves free: flows that are not read
    /// hold up no others.
    pub(in crate::connection) fn send_capacity(&self, id: u32) -> usize {
        let held = self.flows.get(id).map_or(0, |flow| flow.send.buffer.load_bytes());
        let all = held.saturating_add(self.flows.outgoing.room());
        self.own_capacity(id).min(all - all / 5)
    }

    /// True if a flow that waits to be written waits for memory that others hold.
    fn lacks_room(&self, id: u32) -> bool {
        self.send_capacity(id) < self.own_capacity(id)
    }

    fn own_capacity(&self, id: u32) -> usize {
        let waits = |send: &SendHalf| !send.turn.is_on() && send.buffer.sent() < send.buffer.written();
        if self.flows.get(id).is_some_and(|flow| waits(&flow.send)) {
            return self.config.send_buffer_bytes;
        }
        let window: u64 = self.outbound.as_ref().map_or(0, |outbound| outbound.congestion.window_bytes());
        let share = window.saturating_mul(2) / self.flows.senders().max(1) as u64;
        let grown = usize::try_from(share).unwrap_or(usize::MAX);
        grown.min(self.config.send_buffer_bytes_max).max(self.config.send_buffer_bytes)
    }

    pub(in crate::connection) fn reset_flow(&mut self, id: FlowId, code: u64) {
        let Some(flow) = self.flows.get_mut(id.0) else { return };
        if flow.send.is_given_up() || flow.send.is_done {
            return;
        }
        // F-7, flow.md R-30: the peer has what is below, or knows that it will not come.
        let known_to = flow.send.buffer.known_to();
        let final_position = flow.send.reset.as_ref().map_or(known_to, |r| r.final_position.min(known_to));
        // What was sent so far counts for ever (flow.md R-35).
        self.flows.note_sent(id.0);
        let Some(flow) = self.flows.get_mut(id.0) else { return };
        flow.send.reset = Some(Box::new(SentReset { code, final_position, is_known: false, rest: None }));
        flow.send.buffer.clear();
        flow.send.rare = None;
        self.flows.signals.remove(&Signal::Skip(id.0));
        self.flows.signals.insert(Signal::Reset(id.0, final_position));
        self.after_send_change(id.0);
    }

    /// Time until which a peer is waited for that takes nothing of what is left of a flow.
    fn patience_from(&self, now: Time) -> Time {
        let patience = self.config.idle_timeout;
        if patience.is_zero() { Time::NEVER } else { now + patience }
    }

    fn reset_flow_reliably(&mut self, now: Time, id: FlowId, code: u64) {
        let Some(send) = self.flows.get(id.0).map(|flow| &flow.send) else { return };
        if send.reset.is_some() || send.buffer.is_finished() || send.is_done {
            return;
        }
        let stack = self.outbound.as_ref().and_then(|outbound| outbound.stack(send.group));
        if stack.is_some_and(|stack| !stack.layout.offsets) {
            return self.reset_flow(id, code);
        }
        let final_position = send.buffer.written();
        let rest = Some(Rest { look_at: self.patience_from(now), known_to: send.buffer.known_to() });
        if let Some(flow) = self.flows.get_mut(id.0) {
            flow.send.reset = Some(Box::new(SentReset { code, final_position, is_known: false, rest }));
        }
        self.flows.signals.insert(Signal::Reset(id.0, final_position));
        self.after_send_change(id.0);
    }

    /// Does what is due of flows.
    pub(in crate::connection) fn on_alarms(&mut self, now: Time) {
        while let Some((_, id)) = self.flows.next_alarm().filter(|(at, _)| *at <= now) {
            self.expire_messages(now, id);
            let again_look_at = self.patience_from(now);
            let again_at = self.outbound.as_ref().map_or(Time::NEVER, |o| now + o.probe_timeout());
            let Some(flow) = self.flows.get_mut(id) else { break };
            let release = flow.send.release(now, again_at);
            if let Some(code) = flow.send.look_at_rest(now, again_look_at) {
                self.reset_flow(FlowId(id), code);
                continue;
            }
            if release {
                self.outbound_mut(Outbound::ask_for_packet);
            }
            let Some(flow) = self.flows.get_mut(id) else { break };
            if let Some(rare) = &mut flow.send.rare {
                let may_write = rare.admits_at.take_if(|at| *at <= now).is_some();
                if may_write && core::mem::take(&mut flow.send.writer_waits) {
                    self.events.push_back(Event::Writable(FlowId(id)));
                }
                if rare.awaited.until().is_some_and(|until| until <= now) {
                    self.recover_awaited(now, id);
                }
            }
            self.look_for_missing(now, id);
            self.play_due(now, id);
            self.after_send_change(id);
        }
    }

    /// Gives up messages of a flow whose lifetime is over.
    fn expire_messages(&mut self, now: Time, id: u32) {
        let Some(flow) = self.flows.get_mut(id) else { return };
        let messages = flow.send.buffer.expire(now);
        if messages > 0 {
            self.note_expired(id, messages);
        }
    }

    /// Notes messages of a flow that were given up.
    pub(in crate::connection) fn note_expired(&mut self, id: u32, messages: usize) {
        self.count_whole(id);
        self.stats.messages_expired += messages as u64;
        self.flows.signals.insert(Signal::Skip(id));
    }
}
