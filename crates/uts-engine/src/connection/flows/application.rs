//! Calls of the application on a connection's flows.

use crate::connection::flows::batch::{Queue, ReadSink, Terms};
use crate::connection::flows::halves::{Rest, SendHalf, SentReset};
use crate::connection::flows::interface::{
    After, FlowError, FlowOptions, MessageOptions, Read, ReadError, WriteError,
};
use crate::connection::parts::Signal;
use crate::connection::receive::presentations::Presented;
use crate::connection::stage::Open;
use crate::connection::{Life, Ways};
use crate::event::{Direction, Event, FlowId};
use crate::requirements::Requirements;
use bytes::Bytes;
use uts_functions::congestion::Congestion;
use uts_functions::flow::FlowControl;
use uts_functions::playout::{Clock, Next};
use uts_functions::rate::Verdict;
use uts_functions::segmentation::buffer::Expired;
use uts_functions::sequencing::reassembly::Delivery;
use uts_functions::sequencing::{self, Sequencing};
use uts_functions::{Profile, Time};

impl Open {
    pub(in crate::connection) fn open_flow(&mut self, options: FlowOptions) -> Result<FlowId, FlowError> {
        if let Some(reason) = self.life.close_reason.as_deref() {
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

    pub(in crate::connection) fn set_flow_requirements(
        &mut self,
        id: FlowId,
        requirements: &Requirements,
    ) -> Result<(), FlowError> {
        if let Some(reason) = self.life.close_reason.as_deref() {
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

    pub(in crate::connection) fn set_flow_priority(
        &mut self,
        id: FlowId,
        priority: u8,
    ) -> Result<(), FlowError> {
        if let Some(reason) = self.life.close_reason.as_deref() {
            return Err(FlowError::Closed(reason.clone()));
        }
        if self.ways.flows.set_priority(id.0, priority) { Ok(()) } else { Err(FlowError::Unknown) }
    }

    pub(in crate::connection) fn flow_profile(&self, direction: Direction, id: FlowId) -> Option<Profile> {
        let flow = self.ways.flows.get(id.0)?;
        match direction {
            Direction::Out if flow.send.is_held => None,
            Direction::Out => self.ways.outbound.stack(flow.send.group).map(|s| *s.profile),
            Direction::In => Some(self.profile_of(direction, flow.receive.group)),
        }
    }

    pub(in crate::connection) fn granted(
        &mut self,
        id: FlowId,
        least: u64,
        ahead: u64,
    ) -> Result<u64, WriteError> {
        let group = self.writable(id)?.group;
        let Ways { flows, outbound, .. } = &mut self.ways;
        let stack = outbound.stack(group);
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
        if let Some(reason) = self.life.close_reason.as_deref() {
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
            self.ways.note_lack(id.0);
            return Err(WriteError::Blocked);
        }
        Ok(room)
    }

    pub(in crate::connection) fn write(
        &mut self,
        now: Time,
        id: FlowId,
        data: Bytes,
    ) -> Result<usize, WriteError> {
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
        if take < data.len() {
            self.ways.note_lack(id.0);
        }
        Ok(take)
    }

    /// True if bytes that are written to a flow may travel in a form of their own. Where they do
    /// not, this is all that is asked.
    #[inline]
    fn may_present_stream(&self, id: FlowId) -> bool {
        let send = self.ways.flows.get(id.0).map(|flow| &flow.send);
        let stack = |group| self.ways.outbound.stack(group);
        send.is_some_and(|send| send.is_held || stack(send.group).is_some_and(|stack| stack.layout.lines))
    }

    pub(in crate::connection) fn hand_over(
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
        let mut judge = Some(&mut outbound.rate).filter(|rate| rate.info().facts.judges);
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
        if let Some(lifetime) = lifetime.filter(|_| taken > 0) {
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

    pub(in crate::connection) fn finish(&mut self, id: FlowId) {
        if let Some(flow) = self.ways.flows.get_mut(id.0).filter(|flow| flow.send.reset.is_none()) {
            flow.send.buffer.finish();
            self.ways.after_send_change(id.0);
        }
    }

    pub(in crate::connection) fn stop(&mut self, id: FlowId, code: u64) {
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

    pub(in crate::connection) fn acknowledge(&mut self, now: Time) {
        let arrivals = &mut self.ways.inbound.arrivals;
        if arrivals.due.is_some() {
            arrivals.report_by(now);
        }
    }

    pub(in crate::connection) fn has_read_all(&self, id: FlowId) -> bool {
        let receive = self.ways.flows.get(id.0).map(|flow| &flow.receive);
        self.life.close_reason.is_none() && receive.is_some_and(|receive| receive.is_awaited())
    }

    pub(in crate::connection) fn read_into(
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
        let presentation = inbound.presentation(receive.group).cloned();
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

    /// A writer of a flow waits: if it waits for memory, that is looked for again.
    pub(in crate::connection) fn note_lack(&mut self, id: u32) {
        if self.lacks_room(id) {
            self.flows.outgoing.wait_for_memory();
        }
    }

    /// Tells writers that wait for memory of what there is. Those that it is too little for go on
    /// waiting.
    #[cold]
    pub(in crate::connection) fn share_memory(&mut self) {
        let looks_at = self.flows.outgoing.forget_waiting();
        self.flows.waiting_writers().into_iter().for_each(|id| self.wake_writer(id));
        self.flows.outgoing.look_at(looks_at);
    }

    /// Looks for memory for writers that wait for it, if it is time.
    pub(in crate::connection) fn look_for_memory(&mut self, now: Time) {
        if self.flows.outgoing.looks(now) && self.flows.outgoing.wakes() {
            self.share_memory();
        }
    }

    fn own_capacity(&self, id: u32) -> usize {
        let waits = |send: &SendHalf| !send.turn.is_on() && send.buffer.sent() < send.buffer.written();
        if self.flows.get(id).is_some_and(|flow| waits(&flow.send)) {
            return self.config.send_buffer_bytes;
        }
        let window: u64 = self.outbound.congestion.window_bytes();
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

    pub(in crate::connection) fn reset_flow_reliably(&mut self, now: Time, id: FlowId, code: u64) {
        let Some(send) = self.flows.get(id.0).map(|flow| &flow.send) else { return };
        if send.reset.is_some() || send.buffer.is_finished() || send.is_done {
            return;
        }
        let stack = self.outbound.stack(send.group);
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
            let again_at = now + self.outbound.probe_timeout();
            let Some(flow) = self.flows.get_mut(id) else { break };
            let release = flow.send.release(now, again_at);
            if let Some(code) = flow.send.look_at_rest(now, again_look_at) {
                self.reset_flow(FlowId(id), code);
                continue;
            }
            if release {
                self.outbound.ask_for_packet();
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
        let expired = flow.send.buffer.expire(now);
        if expired.messages > 0 {
            self.note_expired(id, expired);
        }
    }

    /// Notes messages of a flow that were given up.
    pub(in crate::connection) fn note_expired(&mut self, id: u32, expired: Expired) {
        self.count_whole(id);
        self.stats.messages_expired += expired.messages as u64;
        self.stats.bytes_given_up += expired.bytes;
        self.flows.signals.insert(Signal::Skip(id));
    }
}
