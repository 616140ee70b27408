//! Events of a connection.

use crate::border::border;
use crate::code::Failure;
use crate::connection::{Connection, uts_connection};
use crate::handles::find;
use crate::memory::Out;
use crate::queue::uts_operation;
use crate::waiting::{Patience, alone, wait};
use core::ffi::{c_char, c_int};
use uts::{CloseReason, ConnectionEvent, ExchangeEvent};

/// Bytes that the text of an event has at most, the zero included.
pub const UTS_EVENT_TEXT_MAX: usize = 1024;

/// Kinds of events. Others may follow in later versions.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum uts_event_kind {
    /// Of a kind that this version has no name for; the text says what.
    UTS_EVENT_OTHER = 0,
    /// This end asks for other mechanisms. Text: what was seen; what changes; what it expects.
    UTS_EVENT_REQUESTED = 1,
    /// The peer asked, and this end agreed. Text: what changes.
    UTS_EVENT_GRANTED = 2,
    /// The profile that this end asked for is in use. Value: nanoseconds that it took. Text: the
    /// new profile.
    UTS_EVENT_COMPLETED = 3,
    /// The peer refused; all stays as it was. Text: why.
    UTS_EVENT_REFUSED = 4,
    /// The peer did not answer; all stays as it was.
    UTS_EVENT_FAILED = 5,
    /// Effect of an exchange, beside what was expected. Text: the comparison.
    UTS_EVENT_BROUGHT = 6,
    /// The path carries packets of another size. Value: bytes of UDP payload.
    UTS_EVENT_PACKET_SIZE = 7,
    /// The peer is expected to answer, and does not. Value: for how many nanoseconds.
    UTS_EVENT_SILENT = 8,
    /// It was heard again. Value: for how many nanoseconds it had been silent.
    UTS_EVENT_HEARD = 9,
    /// An end is elsewhere. Value: 1 = the peer, 0 = this end. Text: where the peer is.
    UTS_EVENT_MOVED = 10,
    /// A property has no effect under the profile in use. Text: its name.
    UTS_EVENT_NO_EFFECT = 11,
    /// The connection has ended; nothing follows. Value: the code of who closed it. Text: why.
    UTS_EVENT_CLOSED = 12,
}

use uts_event_kind::*;

/// Something that happened on a connection.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct uts_event {
    /// Its kind: a value of uts_event_kind.
    pub kind: c_int,
    /// Zero.
    pub reserved: c_int,
    /// Number, as its kind says.
    pub value: u64,
    /// Words, with a zero behind them. Longer ones are cut.
    pub text: [c_char; UTS_EVENT_TEXT_MAX],
}

impl uts_event {
    const NONE: uts_event = uts_event { kind: 0, reserved: 0, value: 0, text: [0; UTS_EVENT_TEXT_MAX] };

    fn new(kind: uts_event_kind, value: u64, words: &str) -> Self {
        let mut event = uts_event { kind: kind as c_int, value, ..Self::NONE };
        // The last place stays zero.
        let most = UTS_EVENT_TEXT_MAX - 1;
        let end = (0..=most.min(words.len())).rev().find(|at| words.is_char_boundary(*at)).unwrap_or(0);
        for (to, from) in event.text.iter_mut().zip(words.bytes().take(end)) {
            *to = if from == 0 { b' ' } else { from }.cast_signed() as c_char;
        }
        event
    }
}

fn nanos(span: &core::time::Duration) -> u64 {
    u64::try_from(span.as_nanos()).unwrap_or(u64::MAX)
}

fn of(event: &ConnectionEvent) -> uts_event {
    match event {
        ConnectionEvent::Exchange(step) => of_exchange(step),
        ConnectionEvent::PacketSize(bytes) => uts_event::new(UTS_EVENT_PACKET_SIZE, *bytes as u64, ""),
        ConnectionEvent::Silent(span) => uts_event::new(UTS_EVENT_SILENT, nanos(span), ""),
        ConnectionEvent::Heard(span) => uts_event::new(UTS_EVENT_HEARD, nanos(span), ""),
        ConnectionEvent::Moved { remote, is_peer } => {
            uts_event::new(UTS_EVENT_MOVED, (*is_peer).into(), &remote.to_string())
        }
        ConnectionEvent::NoEffect(property) => uts_event::new(UTS_EVENT_NO_EFFECT, 0, property),
        ConnectionEvent::Closed(reason) => {
            let code = match reason {
                CloseReason::Local { code, .. } | CloseReason::Peer { code, .. } => *code,
                _ => 0,
            };
            uts_event::new(UTS_EVENT_CLOSED, code, &reason.to_string())
        }
        other => uts_event::new(UTS_EVENT_OTHER, 0, &format!("{other:?}")),
    }
}

fn of_exchange(step: &ExchangeEvent) -> uts_event {
    match step {
        ExchangeEvent::Requested { seen, changes, expects, .. } => {
            let said =
                [seen, changes, expects].map(String::as_str).into_iter().filter(|part| !part.is_empty());
            uts_event::new(UTS_EVENT_REQUESTED, 0, &said.collect::<Vec<_>>().join("; "))
        }
        ExchangeEvent::Granted { changes, .. } => uts_event::new(UTS_EVENT_GRANTED, 0, changes),
        ExchangeEvent::Completed { profile, took, .. } => {
            uts_event::new(UTS_EVENT_COMPLETED, nanos(took), &profile.to_string())
        }
        ExchangeEvent::Refused { why, .. } => uts_event::new(UTS_EVENT_REFUSED, 0, why),
        ExchangeEvent::Failed { .. } => uts_event::new(UTS_EVENT_FAILED, 0, ""),
        ExchangeEvent::Brought { line, .. } => uts_event::new(UTS_EVENT_BROUGHT, 0, line),
        other => uts_event::new(UTS_EVENT_OTHER, 0, &format!("{other:?}")),
    }
}

/// Waits for the next event of a connection. The first call also finds what happened before, up to
/// 256 events.
///
/// event: where it goes.
/// timeout_ms: how long to wait; 0 = not at all, -1 = for good.
/// Returns UTS_OK; UTS_AGAIN; UTS_END behind UTS_EVENT_CLOSED; UTS_ENOTCONN, UTS_ETIMEDOUT,
/// UTS_EHANDLE, UTS_EBUSY or UTS_EINVAL.
///
/// # Safety
/// See the head of uts.h.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn uts_next_event(
    connection: *mut uts_connection,
    event: *mut uts_event,
    timeout_ms: c_int,
) -> c_int {
    border(|| {
        // SAFETY: as promised.
        let mut out = unsafe { Out::new(event, uts_event::NONE, "event") }?;
        let (common, connection) = find::<Connection>(connection.cast())?;
        let inner = connection.get()?;
        let mut events = alone(&connection.events)?;
        let events = events.get_or_insert_with(|| inner.events());
        let next = wait(&common, uts_operation::UTS_ON_EVENT, Patience::of(timeout_ms), events.next())?;
        out.set(of(&next.ok_or_else(Failure::end)?));
        Ok(())
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use core::ffi::CStr;

    #[test]
    fn long_words_are_cut_between_characters() {
        for pad in 0..4 {
            let words = format!("{}{}", "a".repeat(pad), "€".repeat(UTS_EVENT_TEXT_MAX));
            let event = uts_event::new(UTS_EVENT_BROUGHT, 7, &words);
            let bytes = event.text.map(|c| c.cast_unsigned());
            let text = CStr::from_bytes_until_nul(&bytes).expect("a zero").to_str().expect("UTF-8");
            assert!(words.starts_with(text) && text.len() + 4 > UTS_EVENT_TEXT_MAX, "{pad}");
        }
    }
}
