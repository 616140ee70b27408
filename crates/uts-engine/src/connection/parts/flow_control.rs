//! Control of flows: credit, skips, resets, stops, and how many flows the peer may open. Each is
//! written as it is when the packet is built, and again if that packet is lost: what is older is of
//! no use.

use super::super::Ways;
use super::super::flows::violation;
use super::super::packet::{DATA_ROOM_MIN_BYTES, Packet};
use super::super::receive::inbound::Arrived;
use super::super::receive::incoming::GAPS_MAX;
use super::{Effect, Interest, Part, Reading, Token};
use crate::event::{CloseReason, Event, FlowId};
use core::time::Duration;
use uts_functions::Time;
use uts_wire::frame::{self, Frame};
use uts_wire::varint::VARINT_MAX;

/// Something about a flow that the peer is to be told.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Signal {
    /// An expedited message of it, by its number.
    Expedited(u32, u64),
    /// The application has taken the last of its expedited messages that came.
    ExpeditedAck(u32),
    /// Bound of what the peer may send in all flows together.
    ConnectionCredit,
    /// Position up to which the peer may send in it.
    Credit(u32),
    /// This end has reset it, at this final position.
    Reset(u32, u64),
    /// This end wants nothing more of it.
    Stop(u32),
    /// Positions of it will not be sent.
    Skip(u32),
    /// Number of flows that the peer may open.
    FlowLimit,
}

/// Part that tells the peer of flows. The flows hold the signals
/// ([`Flows::signals`](super::super::Flows)).
#[derive(Debug, Default)]
pub(crate) struct FlowControl {
    /// Until then (zero: never) skips make no packet of their own: what is late comes message by
    /// message, most of all on a path that has no room for a packet about each. They go with what
    /// else leaves.
    skips_held_until: Time,
}

/// A packet about skips follows another after such a part of a round trip, which becomes longer as
/// the path fills. A receiver that waits in order for what was given up waits no longer than that.
const SKIPS_PART: u32 = 2;
const SKIPS_APART_MIN: Duration = Duration::from_millis(10);
const SKIPS_APART_MAX: Duration = Duration::from_secs(1);

impl FlowControl {
    /// Holds back the notices of data that was given up for want of room on the way: they go with
    /// what leaves instead (segmentation.md R-7).
    pub fn hold_skips(&mut self, now: Time, ways: &Ways) {
        let rtt = ways.outbound.rtt.smoothed;
        self.skips_held_until = now + rtt.clamp(SKIPS_APART_MIN, SKIPS_APART_MAX);
    }
}

impl Part for FlowControl {
    fn read<'f>(&mut self, at: &Arrived, frame: &'f Frame<'f>, ways: &mut Ways) -> Reading<'f> {
        match frame {
            Frame::Credit(credit) => ways.on_credit(*credit)?,
            Frame::ConnectionCredit(credit) => ways.on_connection_credit(*credit)?,
            Frame::FlowLimit(limit) => ways.flows.on_limit(limit.max_flows),
            Frame::Skip(skip) => ways.on_skip(at.now, *skip)?,
            Frame::ResetFlow(reset) => ways.on_reset(at.now, *reset)?,
            Frame::StopFlow(stop) => ways.on_stop(*stop)?,
            Frame::Expedited(expedited) => ways.on_expedited(expedited)?,
            Frame::ExpeditedAck(ack) => ways.on_expedited_ack(*ack)?,
            _ => {}
        }
        Ok(Effect::Nothing)
    }

    fn interest(&self, ways: &Ways) -> Interest {
        let is_held =
            |signal: &Signal| self.skips_held_until > Time::ZERO && matches!(signal, Signal::Skip(_));
        Interest::frames_if(ways.flows.signals.iter().any(|signal| !is_held(signal)))
    }

    /// When skips that are held back may leave alone (segmentation.md R-7).
    fn timeout(&self, ways: &Ways) -> Option<Time> {
        let waits = || ways.flows.signals.iter().any(|signal| matches!(signal, Signal::Skip(_)));
        (self.skips_held_until > Time::ZERO && waits()).then_some(self.skips_held_until)
    }

    fn on_timeout(&mut self, now: Time, _: &mut Ways) {
        if now >= self.skips_held_until {
            self.skips_held_until = Time::ZERO;
        }
    }

    fn write(&mut self, packet: &mut Packet<'_>, ways: &mut Ways) {
        ways.flows.let_ride();
        while packet.left() >= DATA_ROOM_MIN_BYTES
            && let Some(signal) = ways.flows.signals.pop_first()
        {
            let token = match signal {
                Signal::Skip(flow) => {
                    let skip = ways.flows.get_mut(flow).and_then(|f| f.send.buffer.pop_skip());
                    let Some(range) = skip else { continue };
                    ways.flows.signals.insert(Signal::Skip(flow));
                    let rtt = ways.outbound.rtt.smoothed;
                    let apart = (rtt / SKIPS_PART).clamp(SKIPS_APART_MIN, SKIPS_APART_MAX);
                    self.skips_held_until = packet.now + apart;
                    packet.put(&Frame::Skip(frame::Skip {
                        flow,
                        start: range.start,
                        len: range.end - range.start,
                    }));
                    Token::Skip { flow, range }
                }
                signal => {
                    let Some(frame) = frame_of(&signal, ways) else { continue };
                    if !packet.put_if_it_fits(&frame) {
                        ways.flows.signals.insert(signal);
                        break;
                    }
                    Token::FlowControl(signal)
                }
            };
            packet.tokens.push(token);
        }
    }

    fn acked(&mut self, _now: Time, token: &Token, ways: &mut Ways) {
        match token {
            Token::Skip { flow, range } => {
                if let Some(flow) = ways.flows.get_mut(*flow) {
                    flow.send.buffer.on_skip_acknowledged(range.clone());
                }
                ways.after_send_change(*flow);
            }
            Token::FlowControl(Signal::Expedited(id, number)) => ways.on_expedited_arrived(*id, *number),
            Token::FlowControl(Signal::Reset(id, final_position)) => {
                let reset = ways.flows.get_mut(*id).and_then(|flow| flow.send.reset.as_deref_mut());
                if let Some(reset) = reset.filter(|reset| reset.final_position == *final_position) {
                    reset.is_known = true;
                }
                ways.after_send_change(*id);
            }
            Token::FlowControl(Signal::Stop(id)) => {
                if let Some(flow) = ways.flows.get_mut(*id) {
                    flow.receive.stop = None;
                }
                ways.flows.drop_if_done(*id);
            }
            _ => {}
        }
    }

    fn lost(&mut self, _loss: &super::LostPacket, token: &Token, ways: &mut Ways) {
        match token {
            Token::Skip { flow, range } => {
                if let Some(f) = ways.flows.get_mut(*flow) {
                    f.send.buffer.repeat_skip(range.clone());
                    ways.flows.signals.insert(Signal::Skip(*flow));
                }
            }
            other => self.probe(other, ways),
        }
    }

    fn probe(&mut self, token: &Token, ways: &mut Ways) {
        if let Token::FlowControl(signal) = token {
            ways.flows.signals.insert(signal.clone());
        }
    }
}

/// Frame for a signal as things are now; `None` = nothing is to be said any more.
fn frame_of<'a>(signal: &Signal, ways: &'a Ways) -> Option<Frame<'a>> {
    Some(match *signal {
        Signal::Expedited(flow, number) => ways.flows.get(flow)?.send.expedited_frame(flow, number)?,
        Signal::ExpeditedAck(flow) => {
            let number = ways.flows.get(flow)?.receive.expedited_taken()?;
            Frame::ExpeditedAck(frame::ExpeditedAck { flow, number })
        }
        Signal::ConnectionCredit => {
            let limit = ways.flows.incoming.limit().min(VARINT_MAX);
            Frame::ConnectionCredit(frame::ConnectionCredit { limit })
        }
        Signal::Credit(flow) => {
            Frame::Credit(frame::Credit { flow, limit: ways.flows.get(flow)?.receive.told_limit() })
        }
        Signal::Reset(flow, final_position) => {
            let send = &ways.flows.get(flow)?.send;
            // What is said of another final position is old.
            let reset = send.reset.as_deref().filter(|reset| reset.final_position == final_position)?;
            let sent = ways.flows.incoming.is_said.then_some(send.counted);
            Frame::ResetFlow(frame::ResetFlow { flow, code: reset.code, final_position, sent })
        }
        Signal::Stop(flow) => {
            Frame::StopFlow(frame::StopFlow { flow, code: ways.flows.get(flow)?.receive.stop? })
        }
        Signal::FlowLimit => Frame::FlowLimit(frame::FlowLimit { max_flows: ways.flows.accepted_max }),
        Signal::Skip(_) => return None,
    })
}

impl Ways {
    fn on_credit(&mut self, credit: frame::Credit) -> Result<(), CloseReason> {
        let found = self.flows.of_frame(credit.flow).map_err(violation)?;
        let Some((flow, is_new)) = found else { return Ok(()) };
        flow.send.limit = flow.send.limit.max(credit.limit);
        if is_new {
            self.events.push_back(Event::FlowOpened(FlowId(credit.flow)));
        }
        self.after_send_change(credit.flow);
        Ok(())
    }

    fn on_skip(&mut self, now: Time, skip: frame::Skip) -> Result<(), CloseReason> {
        let found = self.flows.of_frame(skip.flow).map_err(violation)?;
        let Some((_, is_new)) = found else { return Ok(()) };
        if is_new {
            self.events.push_back(Event::FlowOpened(FlowId(skip.flow)));
        }
        // Messages may be given up before there is credit for them, so that a skip may reach beyond
        // what was granted. It takes no memory but that of a gap.
        if let Some(flow) = self.flows.get_mut(skip.flow) {
            flow.receive.data.skip(skip.start..skip.start.saturating_add(skip.len));
            if flow.receive.data.gaps() > 2 * GAPS_MAX {
                return Err(CloseReason::Protocol(format!("flow {}: too many gaps", skip.flow)));
            }
        }
        self.tell_reader(now, skip.flow);
        self.consumed(now, skip.flow);
        Ok(())
    }

    fn on_reset(&mut self, now: Time, reset: frame::ResetFlow) -> Result<(), CloseReason> {
        let (id, is_counted) = (reset.flow, self.flows.incoming.is_said);
        // P-58
        if reset.sent.is_some() != is_counted {
            let what = format!("flow {id}: a reset that does not count as the connection's credit does");
            return Err(CloseReason::Protocol(what));
        }
        let found = self.flows.of_frame(id).map_err(violation)?;
        let Some((flow, is_new)) = found else { return Ok(()) };
        let receive = &mut flow.receive;
        // flow.md R-30
        if let Some(end) = receive.data.end_position().filter(|end| *end < reset.final_position) {
            let at = reset.final_position;
            let what = format!("flow {id}: a reset behind position {at} of a flow that ends at {end}");
            return Err(CloseReason::Protocol(what));
        }
        let is_lower = receive.reset.is_none_or(|(_, before)| reset.final_position < before);
        if is_lower && !receive.data.is_ended() {
            receive.reset = Some((reset.code, reset.final_position));
        }
        // flow.md R-35
        if let Some(sent) = reset.sent {
            receive.final_sent = Some(receive.final_sent.unwrap_or(0).max(sent));
            receive.is_final_known |= sent >= reset.final_position;
        }
        if is_new {
            self.events.push_back(Event::FlowOpened(FlowId(id)));
        }
        self.tell_reader(now, id);
        self.flows.note_received(id);
        self.keeps_to_credit()?;
        self.consumed(now, id);
        self.flows.drop_if_done(id);
        Ok(())
    }

    fn on_stop(&mut self, stop: frame::StopFlow) -> Result<(), CloseReason> {
        let found = self.flows.of_frame(stop.flow).map_err(violation)?;
        let Some((flow, is_new)) = found else { return Ok(()) };
        if is_new {
            self.events.push_back(Event::FlowOpened(FlowId(stop.flow)));
        }
        if flow.send.stopped.replace(stop.code).is_none() {
            self.events.push_back(Event::Stopped(FlowId(stop.flow), stop.code));
            self.reset_flow(FlowId(stop.flow), stop.code);
        }
        Ok(())
    }

    /// The peer says how far this end may send in all flows together.
    fn on_connection_credit(&mut self, credit: frame::ConnectionCredit) -> Result<(), CloseReason> {
        if !self.flows.incoming.is_said {
            return Err(CloseReason::Protocol("a credit of the connection, which was not agreed".into()));
        }
        if self.flows.outgoing.on_limit(credit.limit) {
            self.go_on_sending();
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::super::super::testing;
    use super::*;

    #[test]
    fn a_lost_credit_is_said_again_as_it_then_is() {
        let (mut part, mut ways) = (FlowControl::default(), testing::ways());
        let id = ways.flows.open(100).expect("granted").0;
        ways.flows.signals.insert(Signal::Credit(id));
        let limit_of = |frames: Vec<Frame<'static>>| match frames[..] {
            [Frame::Credit(credit)] => credit.limit,
            _ => panic!("{frames:?}"),
        };
        let first = limit_of(testing::written(&mut ways, 100, |packet, ways| part.write(packet, ways)));
        assert!(!(part.interest(&ways) == Interest::Frames));
        ways.flows.get_mut(id).expect("open").receive.grant.limit += 1000;
        part.lost(&testing::LOSS, &Token::FlowControl(Signal::Credit(id)), &mut ways);
        let second = limit_of(testing::written(&mut ways, 100, |packet, ways| part.write(packet, ways)));
        assert_eq!(second, first + 1000);
    }

    #[test]
    fn nothing_is_said_of_a_flow_that_is_gone() {
        let (mut part, mut ways) = (FlowControl::default(), testing::ways());
        ways.flows.signals.extend([Signal::Credit(2), Signal::Reset(2, 0), Signal::Stop(2), Signal::Skip(2)]);
        let frames = testing::written(&mut ways, 100, |packet, ways| part.write(packet, ways));
        assert!(frames.is_empty() && !(part.interest(&ways) == Interest::Frames), "{frames:?}");
    }

    /// Each message that is late is late by itself; the path that made it late is told of many
    /// together.
    #[test]
    fn skips_make_no_packet_each() {
        let (mut part, mut ways) = (FlowControl::default(), testing::ways());
        let id = ways.flows.open(100).expect("granted").0;
        ways.outbound.rtt.smoothed = Duration::from_millis(200);
        let buffer = &mut ways.flows.get_mut(id).expect("open").send.buffer;
        (0..100).for_each(|_| buffer.write_message(vec![0; 9].into(), None));
        let (mut packets, mut skips) = (0, 0);
        for ms in 0..1000 {
            let now = Time::from_millis(ms);
            if ms % 20 == 0 {
                // Every other message, of nine bytes and an end.
                let buffer = &mut ways.flows.get_mut(id).expect("open").send.buffer;
                buffer.abandon(ms..ms + 10);
                ways.flows.signals.insert(Signal::Skip(id));
            }
            if part.timeout(&ways).is_some_and(|at| at <= now) {
                part.on_timeout(now, &mut ways);
            }
            if part.interest(&ways) == Interest::Frames {
                let frames = testing::written(&mut ways, 500, |packet, ways| {
                    packet.now = now;
                    part.write(packet, ways);
                });
                skips += frames.len();
                packets += 1;
            }
        }
        assert!((9..=11).contains(&packets), "{packets} packets");
        assert!(skips >= 40, "{skips} skips");
    }
}
