//! Values of every kind, drawn at random, for the property tests. What they borrow is leaked,
//! because a test is short.
#![allow(dead_code, reason = "each test program uses some of them")]

use proptest::prelude::*;
use proptest::test_runner::{Config, RngSeed};
use std::collections::BTreeSet;
use std::ops::Range;
use uts_wire::frame::*;
use uts_wire::packet::*;
use uts_wire::*;

/// The same cases on every run; `PROPTEST_RNG_SEED` and `PROPTEST_CASES` ask for others.
pub fn config() -> Config {
    let config = Config::default();
    let rng_seed = match config.rng_seed {
        RngSeed::Random => RngSeed::Fixed(0x5554_5301),
        given => given,
    };
    Config { rng_seed, failure_persistence: None, ..config }
}

/// A value below 2^62 of any magnitude.
pub fn position() -> impl Strategy<Value = u64> {
    (0..=MAX_POSITION, 0u32..62).prop_map(|(value, shift)| value >> shift)
}

/// A value below 2^32 of any magnitude.
pub fn small() -> impl Strategy<Value = u32> {
    (any::<u32>(), 0u32..32).prop_map(|(value, shift)| value >> shift)
}

pub fn bytes(lengths: Range<usize>) -> impl Strategy<Value = &'static [u8]> {
    prop::collection::vec(any::<u8>(), lengths).prop_map(|bytes| &*bytes.leak())
}

pub fn text(most: usize) -> impl Strategy<Value = &'static str> {
    prop::collection::vec(any::<char>(), 0..most / 4 + 1)
        .prop_map(|chars| &*chars.into_iter().collect::<String>().leak())
}

pub fn cid() -> impl Strategy<Value = ConnectionId> {
    prop::collection::vec(any::<u8>(), 0..=MAX_CID_LEN)
        .prop_map(|b| ConnectionId::new(&b).expect("short enough"))
}

/// Descending, non-empty ranges that do not touch, the top one below `bound`.
pub fn descending(
    bound: u64,
    gap: u64,
    len: u64,
    counts: Range<usize>,
) -> impl Strategy<Value = Vec<Range<u64>>> {
    (1..bound, prop::collection::vec((0..gap, 0..len, 0u32..64), counts)).prop_map(|(top, pairs)| {
        let mut end = top;
        let mut ranges = Vec::new();
        for (gap, len, shift) in pairs {
            let first = ranges.is_empty();
            let below = if first { end } else { end.saturating_sub((gap >> shift) + 1) };
            if below == 0 {
                break;
            }
            let start = below.saturating_sub((len >> shift) + 1);
            ranges.push(start..below);
            end = start;
        }
        ranges
    })
}

pub fn ecn() -> impl Strategy<Value = Option<EcnCounts>> {
    prop::option::of((position(), position(), position()).prop_map(|(ect0, ect1, ce)| EcnCounts {
        ect0,
        ect1,
        ce,
    }))
}

pub fn choice() -> impl Strategy<Value = WireChoice> {
    let params = prop::array::uniform4(prop_oneof![Just(0), small()]);
    (any::<u8>(), any::<u8>(), params).prop_map(|(function, mechanism, params)| WireChoice {
        function,
        mechanism,
        params,
    })
}

pub fn profile() -> impl Strategy<Value = WireProfile> {
    prop::collection::vec(choice(), 0..=15).prop_map(|choices| {
        let mut profile = WireProfile::new();
        for choice in choices {
            let doubled = profile.get(choice.function).is_some();
            assert_eq!(profile.push(choice).is_err(), doubled);
        }
        profile
    })
}

pub fn direction() -> impl Strategy<Value = Direction> {
    prop_oneof![Just(Direction::FromSender), Just(Direction::ToSender)]
}

fn reparsed(encoded: Vec<u8>) -> Frame<'static> {
    let mut frames = FrameIter::new(encoded.leak());
    frames.next().expect("a frame").expect("well formed")
}

fn ack_frame() -> impl Strategy<Value = Frame<'static>> {
    let ranges = descending(MAX_POSITION, 1 << 40, 1 << 40, 1..70);
    (ranges, position(), ecn()).prop_map(|(ranges, delay_us, ecn)| {
        let mut out = Vec::new();
        assert!(emit_ack(&mut out, ranges, delay_us, ecn, usize::MAX) > 0);
        reparsed(out)
    })
}

fn repaired_frame() -> impl Strategy<Value = Frame<'static>> {
    descending(MAX_POSITION, 1 << 40, 1 << 40, 1..70).prop_map(|ranges| {
        let mut out = Vec::new();
        assert!(emit_repaired(&mut out, ranges, usize::MAX) > 0);
        reparsed(out)
    })
}

pub fn flags() -> impl Strategy<Value = DataFlags> {
    prop::array::uniform5(any::<bool>()).prop_map(|[fin, message, begin, end, presented]| DataFlags {
        fin,
        message,
        begin: message && begin,
        end: message && end,
        presented,
    })
}

fn data_frame() -> impl Strategy<Value = Frame<'static>> {
    (small(), prop::option::of(position()), flags(), any::<bool>(), bytes(0..60)).prop_map(
        |(flow, offset, flags, has_len, bytes)| {
            let offset = offset.map(|offset| offset.min(MAX_POSITION - bytes.len() as u64));
            Frame::Data(Data { flow, offset, flags, has_len, bytes })
        },
    )
}

fn messages_frame() -> impl Strategy<Value = Frame<'static>> {
    (small(), prop::option::of(position()), 1..6_u32, 1..20_usize).prop_map(|(flow, offset, count, len)| {
        let bytes: &[u8] = (0..len * count as usize).map(|n| n as u8).collect::<Vec<_>>().leak();
        let offset = offset.map(|offset| offset.min(MAX_POSITION - bytes.len() as u64 - u64::from(count)));
        Frame::Messages(Messages { flow, offset, count, bytes })
    })
}

fn repair_frame() -> impl Strategy<Value = Frame<'static>> {
    (position(), bytes(1..33), any::<u16>(), 0u8.., bytes(0..100)).prop_filter_map(
        "a repair has a packet",
        |(first, mask, key, parities, symbol)| {
            let first = first.min(MAX_POSITION - 256);
            let some = mask.iter().any(|byte| *byte != 0);
            let index = |parities| key.to_be_bytes()[0] % parities;
            let id = match parities {
                0 => RepairId::Window { key },
                _ => RepairId::Block { index: index(parities), parities },
            };
            some.then_some(Frame::Repair(Repair { first, mask, id, symbol }))
        },
    )
}

fn flow_frame() -> impl Strategy<Value = Frame<'static>> {
    prop_oneof![
        (small(), position()).prop_map(|(flow, limit)| Frame::Credit(Credit { flow, limit })),
        small().prop_map(|max_flows| Frame::FlowLimit(FlowLimit { max_flows })),
        (small(), position(), position()).prop_map(|(flow, start, len)| {
            Frame::Skip(Skip { flow, start, len: len.min(MAX_POSITION - start) })
        }),
        (small(), position(), position(), prop::option::of(position())).prop_map(
            |(flow, code, final_position, sent)| {
                Frame::ResetFlow(ResetFlow { flow, code, final_position, sent })
            }
        ),
        position().prop_map(|limit| Frame::ConnectionCredit(ConnectionCredit { limit })),
        (small(), position()).prop_map(|(flow, code)| Frame::StopFlow(StopFlow { flow, code })),
    ]
}

fn exchange_frame() -> impl Strategy<Value = Frame<'static>> {
    prop_oneof![
        (
            direction(),
            0..MAX_GROUPS as u8,
            small(),
            prop::array::uniform8(prop::option::of(small())),
            profile()
        )
            .prop_map(|(direction, group, epoch, using, profile)| {
                Frame::RequestPf(RequestPf { direction, group, epoch, using, profile: Box::new(profile) })
            }),
        (
            0..MAX_GROUPS as u8,
            small(),
            position(),
            prop::array::uniform8(prop::option::of(small())),
            profile(),
            bytes(0..60)
        )
            .prop_map(|(group, epoch, first, using, profile, packet)| {
                Frame::UsePf(UsePf { group, epoch, first, using, profile: Box::new(profile), packet })
            }),
        (direction(), small(), small()).prop_map(|(direction, epoch, highest)| Frame::StalePf(StalePf {
            direction,
            epoch,
            highest
        })),
        (direction(), small()).prop_map(|(direction, epoch)| Frame::AckPf(AckPf { direction, epoch })),
        (direction(), small())
            .prop_map(|(direction, epoch)| Frame::ConfirmPf(ConfirmPf { direction, epoch })),
        (direction(), small(), any::<u8>(), any::<u8>(), prop::option::of(choice())).prop_map(
            |(direction, epoch, function, reason, alternative)| {
                Frame::NakPf(NakPf { direction, epoch, function, reason, alternative })
            }
        ),
    ]
}

fn control_frame() -> impl Strategy<Value = Frame<'static>> {
    prop_oneof![
        (1usize..40).prop_map(|len| Frame::Padding { len }),
        Just(Frame::Ping),
        Just(Frame::Poll),
        (small(), prop::array::uniform3(position())).prop_map(|(flow, mut places)| {
            places.sort_unstable();
            let [from, end, start] = places;
            Frame::Order(Order { flow, start, after: from..end })
        }),
        (small(), position(), any::<u32>()).prop_map(|(flow, start, micros)| Frame::MediaTime(MediaTime {
            flow,
            start,
            micros
        })),
        (any::<u8>(), any::<u8>(), small(), bytes(1..MAX_FEEDBACK_BYTES + 1)).prop_map(
            |(function, mechanism, flow, words)| Frame::Feedback(Feedback {
                function,
                mechanism,
                flow,
                words
            })
        ),
        any::<u64>().prop_map(Frame::PathChallenge),
        (small(), small(), cid(), prop::option::of(any::<[u8; 16]>())).prop_map(|(a, b, id, reset_token)| {
            Frame::NewId(NewId {
                sequence: a.max(b),
                retire_below: a.min(b),
                id: if id.is_empty() { ConnectionId::new(&[7]).expect("a byte") } else { id },
                reset_token,
            })
        }),
        small().prop_map(|sequence| Frame::RetireId(RetireId { sequence })),
        (small(), position(), bytes(0..MAX_EXPEDITED_BYTES + 1))
            .prop_map(|(flow, number, bytes)| Frame::Expedited(Expedited { flow, number, bytes })),
        (small(), position()).prop_map(|(flow, number)| Frame::ExpeditedAck(ExpeditedAck { flow, number })),
        any::<u64>().prop_map(Frame::PathResponse),
        (position(), text(MAX_REASON_BYTES)).prop_map(|(code, reason)| Frame::Close(Close { code, reason })),
    ]
}

pub fn frame() -> impl Strategy<Value = Frame<'static>> {
    prop_oneof![
        data_frame(),
        messages_frame(),
        ack_frame(),
        repaired_frame(),
        repair_frame(),
        flow_frame(),
        exchange_frame(),
        control_frame()
    ]
}

/// Frames that can stand after each other: only the last runs to the end, and runs of padding are
/// one.
pub fn payload() -> impl Strategy<Value = Vec<Frame<'static>>> {
    prop::collection::vec(frame(), 0..8).prop_map(|mut frames| {
        frames.dedup_by(|a, b| matches!((a, b), (Frame::Padding { .. }, Frame::Padding { .. })));
        // An envelope runs to the end.
        let envelope = frames.iter().position(|frame| matches!(frame, Frame::UsePf(_)));
        frames.truncate(envelope.map_or(frames.len(), |at| at + 1));
        let last = frames.len().saturating_sub(1);
        for frame in frames.iter_mut().take(last) {
            if let Frame::Data(data) = frame {
                data.has_len = true;
            }
        }
        frames
    })
}

pub fn establishment_header() -> impl Strategy<Value = EstablishmentHeader<'static>> {
    (0..Level::ALL.len(), cid(), cid(), bytes(0..MAX_TOKEN_BYTES + 1)).prop_map(
        |(level, dcid, scid, token)| {
            let level = Level::ALL[level];
            EstablishmentHeader {
                level,
                dcid,
                scid,
                token: if level == Level::Handshake { &[] } else { token },
            }
        },
    )
}

fn function_header() -> impl Strategy<Value = FunctionHeader<'static>> {
    prop_oneof![
        (any::<u32>(), bytes(0..300)).prop_map(|(offset, crypto)| FunctionHeader::Establishment {
            crypto_offset: offset.min(u32::MAX - 300),
            crypto
        }),
        (any::<u32>(), descending(1 << 32, 1 << 16, 1 << 16, 1..17)).prop_map(|(delay_us, ranges)| {
            FunctionHeader::Acknowledgement { delay_us, ranges: ranges.into_iter().collect() }
        }),
        Just(FunctionHeader::Ping),
        (any::<u16>(), text(255)).prop_map(|(code, reason)| FunctionHeader::Close { code, reason }),
        (any::<u8>(), 1u8.., bytes(0..30), bytes(0..20)).prop_map(
            |(function, mechanism, fields, trailer)| {
                let fields = &fields[..fields.len() / 4 * 4];
                FunctionHeader::Unknown { function, mechanism, fields, trailer }
            }
        ),
    ]
}

pub fn establishment_body() -> impl Strategy<Value = EstablishmentBody<'static>> {
    (prop::collection::vec(function_header(), 0..6), 0usize..40).prop_map(|(headers, padding)| {
        let mut chain = HeaderChain::new();
        for header in headers {
            let doubled = chain.headers().iter().any(|other| other.number() == header.number());
            assert_eq!(chain.push(header).is_err(), doubled);
        }
        EstablishmentBody { chain, padding }
    })
}

pub fn retry() -> impl Strategy<Value = Retry<'static>> {
    (cid(), cid(), bytes(1..MAX_TOKEN_BYTES + 1), any::<[u8; 16]>())
        .prop_map(|(dcid, scid, token, integrity)| Retry { dcid, scid, token, integrity })
}

pub fn refusal() -> impl Strategy<Value = VersionRefusal<'static>> {
    (bytes(0..256), bytes(0..256), prop::collection::vec(any::<u32>(), 1..17))
        .prop_map(|(dcid, scid, versions)| VersionRefusal { dcid, scid, versions: versions.into() })
}

pub fn limits() -> impl Strategy<Value = Limits> {
    let credit = prop::option::of(position());
    (small(), position(), small(), 1200u16.., any::<u16>(), small(), credit, any::<u8>()).prop_map(
        |(
            max_flows,
            initial_credit_bytes,
            idle_timeout_ms,
            max_udp_payload_bytes,
            max_ack_delay_ms,
            fec_memory_bytes,
            connection_credit_bytes,
            spare_ids,
        )| {
            Limits {
                max_flows,
                initial_credit_bytes,
                idle_timeout_ms,
                max_udp_payload_bytes,
                max_ack_delay_ms,
                fec_memory_bytes,
                connection_credit_bytes,
                spare_ids,
            }
        },
    )
}

/// Numbers of an end's own. No two of a function are alike: named mechanisms have those from 128
/// on.
fn own_numbers() -> impl Strategy<Value = OwnNumbers> {
    let functions = prop::collection::btree_map(any::<u8>(), any::<u8>(), 0..9);
    let mechanisms = prop::collection::btree_map(any::<(u8, u8)>(), 0u8..128, 0..40);
    let named = prop::collection::btree_map((0u8..32, 128u8..), "[a-z0-9-]{1,32}", 0..20);
    (functions, mechanisms, named).prop_map(|(mut functions, mut mechanisms, mut named)| {
        let (mut owns, mut taken, mut names) = (BTreeSet::new(), BTreeSet::new(), BTreeSet::new());
        functions.retain(|_, own| owns.insert(*own));
        mechanisms.retain(|(function, _), own| taken.insert((*function, *own)));
        named.retain(|(function, _), name| names.insert((*function, name.clone())));
        OwnNumbers { functions, mechanisms, named }
    })
}

/// A Hello, and the end that says it.
pub fn hello() -> impl Strategy<Value = (End, Hello)> {
    let ids = (cid(), cid(), prop::option::of(cid()), prop::option::of(any::<[u8; 16]>()));
    let lists =
        (prop::collection::vec(any::<u32>(), 1..17), prop::collection::btree_set(any::<(u8, u8)>(), 0..80));
    let profiles = (profile(), profile());
    let ticket = (any::<u32>(), any::<[u8; 32]>(), bytes(1..MAX_TICKET_BYTES + 1));
    let beyond = (prop::option::of(ticket), prop::option::of(own_numbers()));
    (ids, lists, limits(), profiles, any::<[bool; 5]>(), text(64), beyond).prop_map(
        |(ids, lists, limits, profiles, flags, service, (ticket, numbers))| {
            let [of_client, allows_unprotected, reads_messages, takes_expedited, reads_use] = flags;
            let of_server = !of_client;
            let (initial_scid, original_dcid, retry_scid, reset_token) = ids;
            let (versions, mechanisms): (Vec<u32>, BTreeSet<(u8, u8)>) = lists;
            let (profile_out, profile_in) = profiles;
            let service = service.to_owned();
            let hello = Hello {
                versions: versions.into(),
                initial_scid,
                original_dcid: of_server.then_some(original_dcid),
                retry_scid: retry_scid.filter(|_| of_server),
                mechanisms,
                limits,
                reset_token: reset_token.filter(|_| of_server),
                profile_out: of_client.then_some(profile_out),
                profile_in: of_client.then_some(profile_in),
                allows_unprotected,
                service,
                reads_messages,
                takes_expedited,
                reads_use,
                ticket: ticket.filter(|_| of_server).map(|(lifetime_s, secret, words)| Ticket {
                    lifetime_s,
                    secret,
                    words: words.into(),
                }),
                numbers: numbers.map(Box::new),
            };
            (if of_client { End::Client } else { End::Server }, hello)
        },
    )
}

/// A mask as header protection makes one.
pub fn mask() -> impl Strategy<Value = [u8; 5]> {
    any::<[u8; 5]>()
}
