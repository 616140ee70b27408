//! Control of flows: credit, skips, resets, stops, and how many flows the peer may open. Each is
//! said as it is when the packet is built, and again if that packet is lost: what is older is of no
//! use.

use super::super::Ways;
use super::super::packet::{DATA_ROOM_MIN_BYTES, Packet};
use super::{Interest, Part, Token};
use uts_functions::Time;
use uts_wire::frame::{self, Frame};

/// Something about a flow that the peer is to be told.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Signal {
    /// How far the peer may send in it.
    Credit(u32),
    /// This end sends nothing more in it, and has not sent all.
    Reset(u32),
    /// This end wants nothing more of it.
    Stop(u32),
    /// Positions of it will not be sent.
    Skip(u32),
    /// How many flows the peer may open.
    FlowLimit,
}

/// What the peer is told of flows. The flows have it ([`Flows::signals`](super::super::Flows)).
#[derive(Debug)]
pub(crate) struct FlowControl;

impl Part for FlowControl {
    fn interest(&self, ways: &Ways) -> Interest {
        Interest::frames_if(!ways.flows.signals.is_empty())
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
                    packet.put(&Frame::Skip(frame::Skip {
                        flow,
                        start: range.start,
                        len: range.end - range.start,
                    }));
                    Token::Skip { flow, range }
                }
                signal => {
                    let Some(frame) = frame_of(&signal, ways) else { continue };
                    packet.put(&frame);
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
            Token::FlowControl(Signal::Reset(id)) => {
                if let Some(flow) = ways.flows.get_mut(*id) {
                    flow.send.is_done = true;
                }
                ways.flows.drop_if_done(*id);
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

/// What is to be said of a flow now; `None` = nothing any more.
fn frame_of(signal: &Signal, ways: &Ways) -> Option<Frame<'static>> {
    Some(match *signal {
        Signal::Credit(flow) => {
            Frame::Credit(frame::Credit { flow, limit: ways.flows.get(flow)?.receive.told_limit() })
        }
        Signal::Reset(flow) => {
            let (code, final_position) = ways.flows.get(flow)?.send.reset?;
            Frame::ResetFlow(frame::ResetFlow { flow, code, final_position })
        }
        Signal::Stop(flow) => {
            Frame::StopFlow(frame::StopFlow { flow, code: ways.flows.get(flow)?.receive.stop? })
        }
        Signal::FlowLimit => Frame::FlowLimit(frame::FlowLimit { max_flows: ways.flows.accepted_max }),
        Signal::Skip(_) => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::super::super::testing;
    use super::*;

    #[test]
    fn a_lost_credit_is_said_again_as_it_then_is() {
        let (mut part, mut ways) = (FlowControl, testing::ways());
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
        let (mut part, mut ways) = (FlowControl, testing::ways());
        ways.flows.signals.extend([Signal::Credit(2), Signal::Reset(2), Signal::Stop(2), Signal::Skip(2)]);
        let frames = testing::written(&mut ways, 100, |packet, ways| part.write(packet, ways));
        assert!(frames.is_empty() && !(part.interest(&ways) == Interest::Frames), "{frames:?}");
    }
}
