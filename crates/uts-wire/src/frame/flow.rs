//! Frames about one flow, or about how many there may be.

use super::kind;
use crate::error::WireError;
use crate::varint::{Reader, Sink, VARINT_MAX, emitters};

/// Bound of what the peer may send in a flow.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Credit {
    /// The flow.
    pub flow: u32,
    /// The position that the peer must not send at or beyond.
    pub limit: u64,
}

/// Bound of what the peer may send in all flows together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ConnectionCredit {
    /// The sum of the positions that the peer's flows have reached stays at or below this.
    pub limit: u64,
}

/// Number of flows that the peer may open.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FlowLimit {
    /// Those that are gone included: the ids of its flows, halved, are below it. [F-4]
    pub max_flows: u32,
}

/// Positions that the receiver need not wait for: they will not be sent, or not again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Skip {
    /// The flow.
    pub flow: u32,
    /// The first position.
    pub start: u64,
    /// Number of positions; `start + len` stays below 2^62.
    pub len: u64,
}

/// The sender ends a flow that it has not sent whole.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ResetFlow {
    /// The flow.
    pub flow: u32,
    /// Why, for programs.
    pub code: u64,
    /// The receiver acts on it behind all that is below this position, and waits for that.
    pub final_position: u64,
    /// Position up to which data of the flow was sent, where the connection's credit counts that.
    /// [P-58]
    pub sent: Option<u64>,
}

/// The receiver wants no more of a flow.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StopFlow {
    /// The flow.
    pub flow: u32,
    /// Why, for programs.
    pub code: u64,
}

impl Credit {
    pub(crate) fn read(r: &mut Reader<'_>) -> Result<Self, WireError> {
        Ok(Credit { flow: r.varint_u32("flow")?, limit: r.varint("credit limit")? })
    }

    pub(crate) fn write<S: Sink>(&self, out: &mut S) {
        out.put_u8(kind::CREDIT);
        out.put_varint(u64::from(self.flow));
        out.put_varint(self.limit);
    }
}

impl ConnectionCredit {
    pub(crate) fn read(r: &mut Reader<'_>) -> Result<Self, WireError> {
        Ok(ConnectionCredit { limit: r.varint("connection credit")? })
    }

    pub(crate) fn write<S: Sink>(&self, out: &mut S) {
        out.put_u8(kind::CONNECTION_CREDIT);
        out.put_varint(self.limit);
    }
}

impl FlowLimit {
    pub(crate) fn read(r: &mut Reader<'_>) -> Result<Self, WireError> {
        Ok(FlowLimit { max_flows: r.varint_u32("flow limit")? })
    }

    pub(crate) fn write<S: Sink>(&self, out: &mut S) {
        out.put_u8(kind::FLOW_LIMIT);
        out.put_varint(u64::from(self.max_flows));
    }
}

impl Skip {
    pub(crate) fn read(r: &mut Reader<'_>) -> Result<Self, WireError> {
        let flow = r.varint_u32("flow")?;
        let start = r.varint("skip start")?;
        let at = r.offset();
        let len = r.varint("skip length")?;
        if start.saturating_add(len) > VARINT_MAX {
            return Err(WireError::value("skip length", at, len, "an end below 2^62")); // P-24
        }
        Ok(Skip { flow, start, len })
    }

    pub(crate) fn write<S: Sink>(&self, out: &mut S) {
        out.put_u8(kind::SKIP);
        out.put_varint(u64::from(self.flow));
        out.put_varint(self.start);
        out.put_varint(self.len);
    }
}

impl ResetFlow {
    pub(crate) fn read(frame_kind: u8, r: &mut Reader<'_>) -> Result<Self, WireError> {
        let (flow, code) = (r.varint_u32("flow")?, r.varint("reset code")?);
        let final_position = r.varint("final position")?;
        let sent = (frame_kind == kind::RESET_FLOW_SENT).then(|| r.varint("sent position")).transpose()?;
        Ok(ResetFlow { flow, code, final_position, sent })
    }

    pub(crate) const fn kind(&self) -> u8 {
        if self.sent.is_some() { kind::RESET_FLOW_SENT } else { kind::RESET_FLOW }
    }

    pub(crate) fn write<S: Sink>(&self, out: &mut S) {
        out.put_u8(self.kind());
        out.put_varint(u64::from(self.flow));
        out.put_varint(self.code);
        out.put_varint(self.final_position);
        self.sent.iter().for_each(|sent| out.put_varint(*sent));
    }
}

impl StopFlow {
    pub(crate) fn read(r: &mut Reader<'_>) -> Result<Self, WireError> {
        Ok(StopFlow { flow: r.varint_u32("flow")?, code: r.varint("stop code")? })
    }

    pub(crate) fn write<S: Sink>(&self, out: &mut S) {
        out.put_u8(kind::STOP_FLOW);
        out.put_varint(u64::from(self.flow));
        out.put_varint(self.code);
    }
}

emitters!(Credit, ConnectionCredit, FlowLimit, Skip, ResetFlow, StopFlow);
