//! Feedback: what the receiver's half of a mechanism tells its other half at the sender.

use super::kind;
use crate::error::WireError;
use crate::varint::{Reader, Sink, emitters};

/// The most that is said in a frame, in bytes. [P-35]
pub const MAX_FEEDBACK_BYTES: usize = 255;

/// Feedback of a mechanism. Only that mechanism can read it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Feedback<'a> {
    /// The function.
    pub function: u8,
    /// The mechanism that says it. The receiver of the frame knows by it whether the frame is for
    /// the one that it uses.
    pub mechanism: u8,
    /// The flow that it is about; 0 where the function belongs to the connection.
    pub flow: u32,
    /// The feedback: 1 to [`MAX_FEEDBACK_BYTES`] bytes.
    pub words: &'a [u8],
}

impl<'a> Feedback<'a> {
    pub(crate) fn read(r: &mut Reader<'a>) -> Result<Self, WireError> {
        let (function, mechanism) = (r.u8("feedback function")?, r.u8("feedback mechanism")?);
        let flow = r.varint_u32("flow")?;
        let at = r.offset();
        let len = r.varint("feedback length")?;
        if len == 0 || len > MAX_FEEDBACK_BYTES as u64 {
            return Err(WireError::value("feedback length", at, len, "1 to 255")); // P-35
        }
        Ok(Feedback { function, mechanism, flow, words: r.bytes(len, "feedback")? })
    }

    pub(crate) fn write<S: Sink>(&self, out: &mut S) {
        out.put_u8(kind::FEEDBACK);
        out.put(&[self.function, self.mechanism]);
        out.put_varint(u64::from(self.flow));
        out.put_prefixed(self.words);
    }
}

emitters!(Feedback<'_>);
