//! Helpers for tests of a part alone: ways without a peer, and a packet to write into.

use super::packet::{Packet, Reason};
use super::parts::{LostPacket, Token};
use super::secrets::SecretChain;
use super::{Inbound, Outbound, Side, Ways};
use std::sync::Arc;
use uts_functions::protection::{Direction, Secret};
use uts_functions::{Function, Profile, Time};
use uts_wire::ConnectionId;
use uts_wire::frame::{Frame, FrameIter};
use uts_wire::packet::{AdaptiveHeader, TruncatedNumber};

/// A packet that was lost.
pub const LOSS: LostPacket = LostPacket { now: Time::ZERO, number: 1, sent_at: Time::ZERO, next_packet: 5 };

/// The ways of a client that is established, under a profile that repeats what is lost.
pub fn ways() -> Ways {
    ways_with(&[])
}

/// The same with other mechanisms.
pub fn ways_with(others: &[(Function, &str)]) -> Ways {
    let named = [
        (Function::Protection, "aes-128-gcm"),
        (Function::Retransmission, "selective"),
        (Function::Flow, "credit"),
        (Function::Segmentation, "messages"),
    ];
    let profile = named.iter().chain(others).fold(Profile::bare(), |profile, (function, name)| {
        profile.with_named(*function, name).expect("it exists")
    });
    ways_under(profile)
}

/// The same under this profile.
pub fn ways_under(profile: Profile) -> Ways {
    let profile = Arc::new(profile);
    let chain = || SecretChain::new(Secret::from_exporter(&[7; Secret::BYTES], Direction::ClientToServer));
    let outbound = Outbound::new(Time::ZERO, &profile, chain(), 1200, 1).expect("it can be built");
    let inbound = Inbound::new(&profile, chain()).expect("it can be built");
    let mut ways = Ways::new(Arc::default(), Default::default()).opened(Side::Client, outbound, inbound);
    (ways.flows.opened_max, ways.flows.credit_initial_out) = (10, 100_000);
    ways
}

/// The frames that are written into a packet with so much room for them.
pub fn written(
    ways: &mut Ways,
    room: usize,
    write: impl FnOnce(&mut Packet<'_>, &mut Ways),
) -> Vec<Frame<'static>> {
    packet_of(ways, Reason::Admitted, room, write).0
}

/// The same of a packet that may leave for this reason, and what it notes.
pub fn packet_of(
    ways: &mut Ways,
    reason: Reason,
    room: usize,
    write: impl FnOnce(&mut Packet<'_>, &mut Ways),
) -> (Vec<Frame<'static>>, Vec<Token>) {
    let mut out = Vec::new();
    let header = AdaptiveHeader { epoch_low5: 0, dcid: ConnectionId::new(&[1; 8]).expect("short") };
    let mark = header.emit(TruncatedNumber::of(0, None), &mut out);
    let (start, end) = (out.len(), out.len() + room);
    let mut packet = Packet::new(&mut out, Time::ZERO, reason, (0, mark), end);
    packet.packet_bytes = 1200;
    write(&mut packet, ways);
    assert!(packet.out.len() <= end, "{} of {end} bytes", packet.out.len());
    let tokens = packet.tokens.to_vec();
    let frames: &'static [u8] = Box::leak(out[start..].to_vec().into_boxed_slice());
    (FrameIter::new(frames).map(|frame| frame.expect("it was just written")).collect(), tokens)
}
