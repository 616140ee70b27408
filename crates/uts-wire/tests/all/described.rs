//! Values of the wire as JSON, with the names of `spec/packets.md`. `spec/vectors/README.md` says
//! what stands for what.

use serde_json::{Value, json};
use uts_wire::frame::*;
use uts_wire::packet::chain::FunctionHeader;
use uts_wire::packet::*;
use uts_wire::*;

/// Bytes as text.
pub fn hex(bytes: impl AsRef<[u8]>) -> String {
    bytes.as_ref().iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Ranges as pairs of the smallest and the largest number.
fn pairs(ranges: impl Iterator<Item = core::ops::Range<u64>>) -> Value {
    ranges.map(|range| json!([range.start, range.end - 1])).collect()
}

/// Puts further fields into an object.
fn with(mut object: Value, more: Value) -> Value {
    if let (Value::Object(object), Value::Object(more)) = (&mut object, more) {
        object.extend(more);
    }
    object
}

fn direction(direction: Direction) -> u8 {
    match direction {
        Direction::FromSender => 0,
        Direction::ToSender => 1,
    }
}

fn choice(choice: &WireChoice) -> Value {
    json!({ "function": choice.function, "mechanism": choice.mechanism, "parameters": choice.params })
}

/// A profile: its choices.
pub fn profile(profile: &WireProfile) -> Value {
    profile.choices().iter().map(choice).collect()
}

/// A frame, but for its name.
fn fields(frame: &Frame<'_>) -> Value {
    match frame {
        Frame::Padding { len } => json!({ "count": len }),
        Frame::Ping | Frame::Poll => json!({}),
        Frame::Ack(ack) => {
            let fields = json!({ "delay": ack.delay_us, "ranges": pairs(ack.ranges.iter()) });
            let ecn = ack.ecn.map(|ecn| json!({ "ect0": ecn.ect0, "ect1": ecn.ect1, "ce": ecn.ce }));
            with(fields, ecn.unwrap_or_default())
        }
        Frame::Repaired(ranges) => json!({ "ranges": pairs(ranges.iter()) }),
        Frame::Credit(credit) => json!({ "flow": credit.flow, "limit": credit.limit }),
        Frame::ConnectionCredit(credit) => json!({ "limit": credit.limit }),
        Frame::FlowLimit(limit) => json!({ "bound": limit.max_flows }),
        Frame::Skip(skip) => json!({ "flow": skip.flow, "start": skip.start, "length": skip.len }),
        Frame::ResetFlow(ResetFlow { flow, code, final_position, sent }) => {
            let fields = json!({ "flow": flow, "code": code, "final_position": final_position });
            with(fields, sent.map(|sent| json!({ "sent_position": sent })).unwrap_or_default())
        }
        Frame::StopFlow(stop) => json!({ "flow": stop.flow, "code": stop.code }),
        Frame::RequestPf(request) => json!({
            "direction": direction(request.direction), "group": request.group, "epoch": request.epoch,
            "using": request.using, "profile": profile(&request.profile),
        }),
        Frame::UsePf(request) => json!({
            "group": request.group, "epoch": request.epoch, "first": request.first, "using": request.using,
            "profile": profile(&request.profile), "packet": hex(request.packet),
        }),
        Frame::AckPf(ack) => json!({ "direction": direction(ack.direction), "epoch": ack.epoch }),
        Frame::NakPf(nak) => json!({
            "direction": direction(nak.direction), "epoch": nak.epoch, "function": nak.function,
            "reason": nak.reason, "choice": nak.alternative.as_ref().map(choice),
        }),
        Frame::ConfirmPf(done) => json!({ "direction": direction(done.direction), "epoch": done.epoch }),
        Frame::StalePf(StalePf { direction: way, epoch, highest }) => {
            json!({ "direction": direction(*way), "epoch": epoch, "highest_epoch": highest })
        }
        Frame::Close(close) => json!({ "code": close.code, "reason": close.reason }),
        Frame::PathChallenge(number) | Frame::PathResponse(number) => {
            json!({ "number": hex(number.to_be_bytes()) })
        }
        Frame::Repair(repair) => {
            let fields =
                json!({ "first": repair.first, "mask": hex(repair.mask), "symbol": hex(repair.symbol) });
            with(
                fields,
                match repair.id {
                    RepairId::Block { index, parities } => json!({ "index": index, "count": parities }),
                    RepairId::Window { key } => json!({ "key": key }),
                },
            )
        }
        Frame::Feedback(Feedback { function, mechanism, flow, words }) => {
            json!({ "function": function, "mechanism": mechanism, "flow": flow, "words": hex(words) })
        }
        Frame::Order(Order { flow, start, after }) => json!({
            "flow": flow, "start": start, "distance": start - after.end, "length": after.end - after.start,
        }),
        Frame::MediaTime(MediaTime { flow, start, micros }) => {
            json!({ "flow": flow, "start": start, "time": micros })
        }
        Frame::NewId(NewId { sequence, retire_below, id, reset_token }) => {
            let fields =
                json!({ "number": sequence, "retire_below": retire_below, "id": hex(id.as_slice()) });
            with(fields, reset_token.map(|token| json!({ "token": hex(token) })).unwrap_or_default())
        }
        Frame::RetireId(retired) => json!({ "number": retired.sequence }),
        Frame::Expedited(Expedited { flow, number, bytes }) => {
            json!({ "flow": flow, "number": number, "message": hex(bytes) })
        }
        Frame::ExpeditedAck(ack) => json!({ "flow": ack.flow, "number": ack.number }),
        Frame::Data(Data { flow, offset, flags, has_len, bytes }) => json!({
            "flow": flow, "offset": offset, "END": flags.end, "BEGIN": flags.begin, "MESSAGE": flags.message,
            "FIN": flags.fin, "LEN": has_len, "bytes": hex(bytes),
        }),
        Frame::Messages(Messages { flow, offset, count, bytes }) => json!({
            "flow": flow, "offset": offset, "count": count, "length": bytes.len() / *count as usize,
            "bytes": hex(bytes),
        }),
    }
}

/// A frame under its name in the table of packets.md P-20.
pub fn frame(frame: &Frame<'_>) -> Value {
    let name = match frame {
        Frame::Data(data) if data.flags.presented => "Data, presented",
        Frame::Data(_) => "Data",
        Frame::Messages(_) => "Messages",
        other => FRAMES.iter().find(|(kind, _)| *kind == other.kind()).expect("it has a name").1,
    };
    with(json!({ "frame": name }), fields(frame))
}

/// Types and names of the frames whose type holds no flags, as P-20 has them.
pub const FRAMES: [(u8, &str); 32] = [
    (kind::PADDING, "Padding"),
    (kind::PING, "Ping"),
    (kind::ACK, "Ack"),
    (kind::ACK_ECN, "Ack with ECN"),
    (kind::REPAIRED, "Repaired"),
    (kind::CREDIT, "Credit"),
    (kind::FLOW_LIMIT, "FlowLimit"),
    (kind::SKIP, "Skip"),
    (kind::RESET_FLOW, "ResetFlow"),
    (kind::STOP_FLOW, "StopFlow"),
    (kind::REQUEST_PF, "Request-PF"),
    (kind::ACK_PF, "ACK-PF"),
    (kind::NAK_PF, "NAK-PF"),
    (kind::CONFIRM_PF, "Confirm-PF"),
    (kind::POLL, "Poll"),
    (kind::CLOSE, "Close"),
    (kind::PATH_CHALLENGE, "PathChallenge"),
    (kind::PATH_RESPONSE, "PathResponse"),
    (kind::REPAIR, "Repair"),
    (kind::WINDOW_REPAIR, "Repair of a window"),
    (kind::FEEDBACK, "Feedback"),
    (kind::STALE_PF, "Stale-PF"),
    (kind::ORDER, "Order"),
    (kind::NEW_ID, "NewId"),
    (kind::NEW_ID_RESET, "NewId with a reset token"),
    (kind::RETIRE_ID, "RetireId"),
    (kind::EXPEDITED, "Expedited"),
    (kind::EXPEDITED_ACK, "ExpeditedAck"),
    (kind::CONNECTION_CREDIT, "ConnectionCredit"),
    (kind::RESET_FLOW_SENT, "ResetFlow with what was sent"),
    (kind::USE_PF, "Use-PF"),
    (kind::MEDIA_TIME, "MediaTime"),
];

fn function_header(header: &FunctionHeader<'_>) -> Value {
    match header {
        FunctionHeader::Establishment { crypto_offset, crypto } => {
            json!({ "header": "handshake bytes", "offset": crypto_offset, "bytes": hex(crypto) })
        }
        FunctionHeader::Acknowledgement { delay_us, ranges } => {
            json!({ "header": "acknowledgement", "delay": delay_us, "ranges": pairs(ranges.iter().cloned()) })
        }
        FunctionHeader::Ping => json!({ "header": "ping" }),
        FunctionHeader::Close { code, reason } => {
            json!({ "header": "close", "code": code, "reason": reason })
        }
        FunctionHeader::Unknown { function, mechanism, fields, trailer } => json!({
            "header": "unknown", "function": function, "mechanism": mechanism, "fields": hex(fields),
            "trailer": hex(trailer),
        }),
    }
}

/// The body of an establishment packet.
pub fn body(body: &chain::EstablishmentBody<'_>) -> Value {
    let headers: Value = body.chain.headers().iter().map(function_header).collect();
    json!({ "headers": headers, "padding": body.padding })
}

/// An establishment packet; `body` is as it stands, tag included.
pub fn establishment(header: &EstablishmentHeader<'_>, number: u32, body: &[u8]) -> Value {
    let level = match header.level {
        Level::Initial => "Initial",
        Level::Handshake => "Handshake",
        Level::Early => "Early",
    };
    json!({
        "packet": level, "dcid": hex(header.dcid.as_slice()), "scid": hex(header.scid.as_slice()),
        "token": hex(header.token), "number": number, "body": hex(body),
    })
}

/// A long packet that is not protected.
pub fn unprotected(packet: &LongPacket<'_>) -> Value {
    let versions = |all: &[u32]| all.iter().map(|version| hex(version.to_be_bytes())).collect::<Vec<_>>();
    match packet {
        LongPacket::Establishment(_) => Value::Null,
        LongPacket::Retry(retry) => json!({
            "packet": "Retry", "dcid": hex(retry.dcid.as_slice()), "scid": hex(retry.scid.as_slice()),
            "token": hex(retry.token), "integrity": hex(retry.integrity),
        }),
        LongPacket::VersionRefusal(refusal) => json!({
            "packet": "version refusal", "dcid": hex(refusal.dcid), "scid": hex(refusal.scid),
            "versions": versions(&refusal.versions),
        }),
        LongPacket::OtherVersion(other) => json!({
            "packet": "another version", "version": hex(other.version.to_be_bytes()), "dcid": hex(other.dcid),
            "scid": hex(other.scid),
        }),
    }
}

/// An adaptive packet; `payload` is as it stands, tag included.
pub fn adaptive(header: &AdaptiveHeader, number: TruncatedNumber, payload: &[u8]) -> Value {
    json!({
        "packet": "adaptive", "epoch": header.epoch_low5, "dcid": hex(header.dcid.as_slice()),
        "number": number.value(), "number_bytes": number.len(), "payload": hex(payload),
    })
}

fn ticket(ticket: &Ticket) -> Value {
    json!({ "lifetime": ticket.lifetime_s, "secret": hex(ticket.secret), "words": hex(&ticket.words) })
}

fn numbers(numbers: &OwnNumbers) -> Value {
    json!({
        "functions": numbers.functions.iter().map(|(f, own)| json!([f, own])).collect::<Value>(),
        "mechanisms": numbers.mechanisms.iter().map(|((f, m), own)| json!([f, m, own])).collect::<Value>(),
        "named": numbers.named.iter().map(|((f, own), name)| json!([f, own, name])).collect::<Value>(),
    })
}

/// A Hello: its items by the names of P-52's table, as they stand in it.
pub fn hello(hello: &Hello) -> Value {
    let limits = &hello.limits;
    let versions: Vec<String> = hello.versions.iter().map(|version| hex(version.to_be_bytes())).collect();
    let id = |id: &ConnectionId| hex(id.as_slice());
    let mut items = json!({
        "1": versions, "2": id(&hello.initial_scid),
        "5": hello.mechanisms.iter().map(|(f, m)| json!([f, m])).collect::<Value>(),
        "6": limits.max_flows, "7": limits.initial_credit_bytes, "8": limits.idle_timeout_ms,
        "9": limits.max_udp_payload_bytes, "10": limits.max_ack_delay_ms, "11": limits.fec_memory_bytes,
    });
    let is_said = |said: bool| said.then_some(Value::Null);
    let service = Some(&hello.service).filter(|service| !service.is_empty());
    let spare = Some(limits.spare_ids).filter(|spare| *spare > 0);
    for (number, item) in [
        ("3", hello.original_dcid.as_ref().map(|cid| json!(id(cid)))),
        ("4", hello.retry_scid.as_ref().map(|cid| json!(id(cid)))),
        ("12", hello.reset_token.map(|token| json!(hex(token)))),
        ("13", hello.profile_out.as_ref().map(profile)),
        ("14", hello.profile_in.as_ref().map(profile)),
        ("15", is_said(hello.allows_unprotected)),
        ("16", service.map(|service| json!(service))),
        ("17", is_said(hello.reads_messages)),
        ("18", spare.map(|spare| json!(spare))),
        ("19", is_said(hello.takes_expedited)),
        ("20", limits.connection_credit_bytes.map(|credit| json!(credit))),
        ("21", is_said(hello.reads_use)),
        ("22", hello.ticket.as_ref().map(ticket)),
        ("23", hello.numbers.as_deref().map(numbers)),
    ] {
        if let Some(item) = item {
            items[number] = item;
        }
    }
    items
}
