//! Frames and function headers in words.

use crate::connection::{Learnt, Way};
use crate::row::Said;
use crate::secrets::Suite;
use std::fmt::Write as _;
use uts_functions::numbering::{choice_from_wire, from_wire, function_from_wire};
use uts_functions::{Numbering, Profile};
use uts_wire::frame::{AckRanges, Data, Direction, RepairId};
use uts_wire::packet::FunctionHeader;
use uts_wire::{Frame, WireChoice};

/// Ranges that are written out; of more, the number.
const RANGES_SHOWN: usize = 6;

fn said(frame: &'static str, text: impl Into<String>) -> Said {
    Said { frame, text: text.into() }
}

/// A function header of an establishment packet.
pub(crate) fn header(header: &FunctionHeader<'_>) -> Said {
    match header {
        FunctionHeader::Establishment { crypto_offset, crypto } => {
            said("handshake", format!("{crypto_offset}..{}", *crypto_offset as usize + crypto.len()))
        }
        FunctionHeader::Acknowledgement { delay_us, ranges } => {
            let ranges = ranges.iter().map(|range| (range.start, range.end.saturating_sub(1)));
            said("acknowledgement", format!("{} after {delay_us} us", in_ranges(ranges)))
        }
        FunctionHeader::Ping => said("ping", ""),
        FunctionHeader::Close { code, reason } => said("close", format!("{code} {reason:?}")),
        FunctionHeader::Unknown { function, mechanism, .. } => {
            said("header", format!("of function {function}, mechanism {mechanism}, unknown here"))
        }
    }
}

/// A message of the handshake.
pub(crate) fn learnt(learnt: &Learnt) -> Said {
    match learnt {
        Learnt::Client(None) => said("ClientHello", "without a Hello"),
        Learnt::Client(Some(hello)) => {
            let mut text = String::new();
            if !hello.service.is_empty() {
                let _ = write!(text, "for service {:?}, ", hello.service);
            }
            let profile = |wire: &Option<uts_wire::WireProfile>| {
                wire.as_ref().map_or_else(String::new, |wire| from_wire(wire, None).0.to_string())
            };
            let (out, inward) = (profile(&hello.profile_out), profile(&hello.profile_in));
            if out == inward {
                let _ = write!(text, "both ways [{out}]");
            } else {
                let _ = write!(text, "sends [{out}], receives [{inward}]");
            }
            said("ClientHello", text)
        }
        Learnt::Server(suite) => said(
            "ServerHello",
            match suite {
                Some(Suite::Aes128) => "TLS_AES_128_GCM_SHA256",
                Some(Suite::Aes256) => "TLS_AES_256_GCM_SHA384",
                Some(Suite::ChaCha20) => "TLS_CHACHA20_POLY1305_SHA256",
                None => "with a suite that is unknown here",
            },
        ),
        Learnt::Extensions(None) => said("EncryptedExtensions", "without a Hello"),
        Learnt::Extensions(Some(hello)) => {
            said("EncryptedExtensions", format!("{} mechanisms", hello.mechanisms.len()))
        }
    }
}

/// A frame that this end sent. Requests for an exchange teach what their epoch stands for.
pub(crate) fn frame(frame: &Frame<'_>, ways: &mut [Way; 2], sender: usize) -> Said {
    let of = |direction: Direction| match direction {
        Direction::FromSender => "of what it sends",
        Direction::ToSender => "of what it receives",
    };
    match frame {
        Frame::Padding { len } => said("Padding", len.to_string()),
        Frame::Ping => said("Ping", ""),
        Frame::Poll => said("Poll", ""),
        Frame::Ack(ack) => {
            let mut text = format!("{} after {} us", ranges(&ack.ranges), ack.delay_us);
            if let Some(ecn) = &ack.ecn {
                let _ = write!(text, ", ECT(0) {} ECT(1) {} CE {}", ecn.ect0, ecn.ect1, ecn.ce);
            }
            said("Ack", text)
        }
        Frame::Repaired(repaired) => said("Repaired", ranges(repaired)),
        Frame::Credit(f) => said("Credit", format!("flow {} up to {}", f.flow, f.limit)),
        Frame::ConnectionCredit(f) => said("ConnectionCredit", format!("up to {}", f.limit)),
        Frame::FlowLimit(f) => said("FlowLimit", f.max_flows.to_string()),
        Frame::Skip(f) => said("Skip", format!("flow {} {}", f.flow, span(f.start, f.len))),
        Frame::ResetFlow(f) => {
            let sent = f.sent.map(|sent| format!(", sent up to {sent}")).unwrap_or_default();
            said("ResetFlow", format!("flow {} code {} at {}{sent}", f.flow, f.code, f.final_position))
        }
        Frame::StopFlow(f) => said("StopFlow", format!("flow {} code {}", f.flow, f.code)),
        Frame::RequestPf(f) => {
            let way = match f.direction {
                Direction::FromSender => sender,
                Direction::ToSender => 1 - sender,
            };
            let profile = from_wire(&f.profile, ways[sender].numbers.as_ref()).0;
            let change = ways[way].on_request(f.epoch, f.group, profile);
            said("Request-PF", format!("epoch {} {}{}: {change}", f.epoch, of(f.direction), group(f.group)))
        }
        Frame::UsePf(f) => {
            let profile = from_wire(&f.profile, ways[sender].numbers.as_ref()).0;
            let change = ways[sender].on_request(f.epoch, f.group, profile);
            let from = f.first;
            said("Use-PF", format!("epoch {} from packet {from}{}: {change}", f.epoch, group(f.group)))
        }
        Frame::AckPf(f) => said("ACK-PF", format!("epoch {} {}", f.epoch, of(f.direction))),
        Frame::ConfirmPf(f) => said("Confirm-PF", format!("epoch {} {}", f.epoch, of(f.direction))),
        Frame::StalePf(f) => {
            said("Stale-PF", format!("epoch {} {}, highest {}", f.epoch, of(f.direction), f.highest))
        }
        Frame::NakPf(f) => {
            let numbers = ways[sender].numbers.as_ref();
            let function = function(f.function, numbers);
            let mut text =
                format!("epoch {} {}: {function}: {}", f.epoch, of(f.direction), refusal(f.reason));
            if let Some(choice) = &f.alternative {
                let _ = write!(text, ", agrees to {}", mechanism(choice, numbers));
            }
            said("NAK-PF", text)
        }
        Frame::Close(f) => said("Close", format!("{} {:?}", f.code, f.reason)),
        Frame::PathChallenge(number) => said("PathChallenge", format!("{number:016x}")),
        Frame::PathResponse(number) => said("PathResponse", format!("{number:016x}")),
        Frame::Repair(f) => {
            let id = match &f.id {
                RepairId::Block { index, parities } => format!("{} of {parities}", u32::from(*index) + 1),
                RepairId::Window { key } => format!("key {key}"),
            };
            let packets: Vec<u64> = f.packets().collect();
            let of = match (packets.first(), packets.last()) {
                (Some(first), Some(last)) => format!("{} packets in {first}..={last}", packets.len()),
                _ => "no packet".to_owned(),
            };
            said("Repair", format!("{id}, over {of}, {} bytes", f.symbol.len()))
        }
        Frame::Feedback(f) => {
            let choice =
                WireChoice { function: f.function, mechanism: f.mechanism, params: Default::default() };
            said(
                "Feedback",
                format!(
                    "of {} flow {}, {} bytes",
                    mechanism(&choice, ways[sender].numbers.as_ref()),
                    f.flow,
                    f.words.len()
                ),
            )
        }
        Frame::Order(f) => {
            said("Order", format!("flow {} at {} behind {}..{}", f.flow, f.start, f.after.start, f.after.end))
        }
        Frame::MediaTime(f) => said("MediaTime", format!("flow {} at {}: {} us", f.flow, f.start, f.micros)),
        Frame::NewId(f) => {
            let token = if f.reset_token.is_some() { ", with a reset token" } else { "" };
            said("NewId", format!("{} {}, retire below {}{token}", f.sequence, f.id, f.retire_below))
        }
        Frame::RetireId(f) => said("RetireId", f.sequence.to_string()),
        Frame::Expedited(f) => {
            said("Expedited", format!("flow {} number {}, {} bytes", f.flow, f.number, f.bytes.len()))
        }
        Frame::ExpeditedAck(f) => said("ExpeditedAck", format!("flow {} number {}", f.flow, f.number)),
        Frame::Data(f) => said("Data", data(f)),
        Frame::Messages(f) => {
            let at = f.offset.map(|offset| format!(" at {offset}")).unwrap_or_default();
            said("Messages", format!("flow {}{at}, {} of {} bytes", f.flow, f.count, f.message_bytes()))
        }
    }
}

fn data(f: &Data<'_>) -> String {
    let mut text = format!("flow {}", f.flow);
    match f.offset {
        Some(offset) => text += &format!(" {}", span(offset, f.bytes.len() as u64)),
        None => text += &format!(" {} bytes", f.bytes.len()),
    }
    let flags = [
        (f.flags.message && f.flags.begin && f.flags.end, "message"),
        (f.flags.message && f.flags.begin && !f.flags.end, "message begins"),
        (f.flags.message && !f.flags.begin && f.flags.end, "message ends"),
        (f.flags.message && !f.flags.begin && !f.flags.end, "message goes on"),
        (f.flags.fin, "FIN"),
        (f.flags.presented, "presented"),
    ];
    for (_, word) in flags.iter().filter(|(holds, _)| *holds) {
        text += &format!(" {word}");
    }
    text
}

fn span(start: u64, bytes: u64) -> String {
    format!("{start}..{}", start.saturating_add(bytes))
}

fn ranges(ranges: &AckRanges<'_>) -> String {
    in_ranges(ranges.iter().map(|range| (range.start, range.end.saturating_sub(1))))
}

/// First and last of each, from the largest down.
fn in_ranges(ranges: impl Iterator<Item = (u64, u64)>) -> String {
    let all: Vec<(u64, u64)> = ranges.collect();
    let shown = all.iter().take(RANGES_SHOWN).map(|(first, last)| match first == last {
        true => first.to_string(),
        false => format!("{first}-{last}"),
    });
    let mut text = shown.collect::<Vec<_>>().join(" ");
    if all.len() > RANGES_SHOWN {
        let _ = write!(text, " and {} more", all.len() - RANGES_SHOWN);
    }
    text
}

/// Nothing for the group that each connection has.
fn group(number: u8) -> String {
    if number == 0 { String::new() } else { format!(" in group {number}") }
}

fn function(number: u8, numbers: Option<&Numbering>) -> String {
    function_from_wire(number, numbers).map_or_else(|| format!("function {number}"), |f| f.name().to_owned())
}

fn mechanism(choice: &WireChoice, numbers: Option<&Numbering>) -> String {
    let Some(function) = function_from_wire(choice.function, numbers) else {
        return format!("function {} mechanism {}", choice.function, choice.mechanism);
    };
    let mut profile = Profile::bare();
    profile.set(function, choice_from_wire(function, choice, numbers));
    format!("{} {}", function.name(), profile.describe(function))
}

/// P-26.
fn refusal(reason: u8) -> &'static str {
    match reason {
        1 => "the mechanism is unknown",
        2 => "a parameter is out of range",
        3 => "it does not go together with the rest",
        4 => "protection none is not allowed",
        5 => "there is no consent",
        6 => "a parameter names what is not there",
        _ => "another reason",
    }
}
