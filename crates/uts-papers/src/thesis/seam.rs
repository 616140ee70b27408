//! Functions that are switched off and on in mid-transfer (section 4.6): throughput at both ends by
//! the rule of figure 4.7, over hosts that cost what the thesis measured.
//!
//! The engine moves the data; retransmission stays as it is, so that no byte is lost where flow
//! control is off and the receiver is overrun.

use super::machines::{Functions, I486, Part};
use super::server::{BUFFER_BYTES, QUEUE_PACKETS};
use crate::engine::ask;
use crate::paper::{Series, push};
use anyhow::{Context, Result, anyhow, ensure};
use core::time::Duration;
use uts_engine::{ConnectionConfig, Direction, TraceKind, TraceRow};
use uts_functions::{Function, Profile, Time, library};
use uts_path::PathConfig;
use uts_sim::cost::{Costs, MechanismCost, Work, WorkKind};
use uts_sim::identity::Identities;
use uts_sim::transfer::{Transfers, checksum};
use uts_sim::{World, WorldConfig};

const SERVER: usize = 0;
const CLIENT: usize = 1;
/// Error control: TCP's checksum. Flow control: a window of 60 KB, reported in quarters, and the
/// congestion window, which the thesis counts as part of it.
const ERRORS: &str = "internet-16";
const FLOW: &str = "sliding-window";
const CONGESTION: &str = "new-reno";
/// Length of a report at the most: a longer packet carries data.
const REPORT_BYTES_MAX: usize = 600;
/// UDP payload of a full Ethernet frame.
const PACKET_BYTES: usize = 1472;
/// 10 Mbit/s, of 1500 bytes in frames of 1538.
const RATE_BPS: u64 = 9_752_925;
/// Segments of a block of 64 KB, which the costs of a block are spread over.
const BLOCK_PACKETS: f64 = 45.0;
const BYTES: u64 = 14_000_000;
/// A transfer that is compared with what is behind a switch has switched then, as early as it can.
const BEGIN: Time = Time::from_millis(100);
/// When functions are switched, and what is averaged.
const AT: Time = Time::from_millis(3000);
const STEADY: Duration = Duration::from_millis(2000);
/// End of what is looked at; the transfer goes on.
const END: Time = Time::from_millis(10_000);
/// Length that a picture has before the switch, in milliseconds, and behind it at the most.
const SHOWN: f64 = 400.0;
const SHOWN_BEHIND_MAX: Duration = Duration::from_millis(2400);

/// Costs of the 486 without error and flow control, and what the two add (table 3.14).
fn costs() -> Result<Costs> {
    let [tcp, no_error, no_flow, neither] = Functions::ALL.map(|(_, functions)| functions);
    let number = |function, name: &str| {
        library::by_name(function, name).map(|m| m.number).with_context(|| format!("no mechanism {name}"))
    };
    let added = |of: &dyn Fn(Functions) -> Part, without| of(tcp).less(of(without)).cost();
    let (sending, receiving) = (|f| I486.sending(f), |f| I486.receiving(f));
    let mechanism = |function, number, without| MechanismCost {
        function,
        number,
        send: added(&sending, without),
        receive: added(&receiving, without),
    };
    let blocks = I486.part(1, 4).spread(BLOCK_PACKETS);
    let reads = I486.part(17, 20).spread(BLOCK_PACKETS);
    Ok(Costs {
        copy_in: blocks.and(I486.sending(neither)).and(I486.part(7, 9)).cost(),
        copy_out: I486.part(11, 13).cost(),
        receive: I486.part(13, 15).and(I486.receiving(neither)).and(reads).cost(),
        rate_bps: Some(RATE_BPS),
        send_buffers: Some(2),
        send_queue: Some(2),
        receive_queue: Some(QUEUE_PACKETS as u32),
        mechanisms: vec![
            mechanism(Function::Detection, number(Function::Detection, ERRORS)?, no_error),
            mechanism(Function::Flow, number(Function::Flow, FLOW)?, no_flow),
        ],
        ..Costs::default()
    })
}

/// Properties of a transfer with these functions.
fn properties(functions: Functions) -> [String; 10] {
    let congestion = if functions.has_flow { CONGESTION } else { "none" };
    let errors = if functions.has_errors { ERRORS } else { "none" };
    let flow = if functions.has_flow { format!("{FLOW}(window={BUFFER_BYTES})") } else { "none".into() };
    [
        "uts.adapt=off".into(),
        "uts.consent=all".into(),
        "congestionControl=avoid".into(),
        format!("uts.profile.congestion={congestion}"),
        "uts.profile.rate=none".into(),
        "uts.profile.sequencing=ordered".into(),
        "uts.profile.retransmission=selective".into(),
        "uts.profile.acknowledgement=delayed(packets=32,delay=200)".into(),
        format!("uts.profile.detection={errors}"),
        format!("uts.profile.flow={flow}"),
    ]
}

/// Packets of data at one end: when, and how many bytes.
type Packets = Vec<(Time, u64)>;

/// A transfer.
struct Passed {
    packets: [Packets; 2],
    /// When the first packet of the new profile left.
    first_at: Option<Time>,
    /// Packets that found no room before the protocol server.
    dropped: u64,
}

/// A transfer that begins with these functions, and switches to others.
fn transfer(from: Functions, switches: &[(Time, Functions)]) -> Result<Passed> {
    let mut client = ConnectionConfig {
        packet_bytes_initial: PACKET_BYTES,
        packet_bytes_min: PACKET_BYTES,
        ..ConnectionConfig::default()
    };
    ask(&mut client.requirements, properties(from))?;
    let mut config = WorldConfig { path: PathConfig::default(), seed: 1, ..WorldConfig::default() };
    config.server.accept.requirements.consents = client.requirements.consents.clone();
    config.server.accept.packet_bytes_min = PACKET_BYTES;
    let mut world = World::new(config, Identities::new()?)?;
    world.set_path(uts_path::Target::Both, "delay=5us").map_err(|error| anyhow!("{error}"))?;
    for node in [CLIENT, SERVER] {
        world.set_costs(node, costs()?)?;
        world.keep_work(node);
    }
    world.keep_packets(CLIENT);
    let mut transfers = Transfers::start(&mut world, &[(CLIENT, client)], BYTES);
    // The handshake itself brings what is mandatory.
    transfers.awaits_exchange = from.has_errors || from.has_flow;
    let mut epoch = None;
    for (at, functions) in switches {
        transfers.run(&mut world, *at);
        let (now, handle) = (world.now(), transfers.progress[&CLIENT].connection);
        let connection = world.connection(CLIENT, handle).context("the connection is gone")?;
        let profile = connection.profile(Direction::Out).context("no profile is in use")?;
        epoch = Some(connection.use_profile(now, switched(profile, *functions)?)?);
    }
    transfers.run(&mut world, END);
    let progress = &transfers.progress[&CLIENT];
    let (received, closed) = (progress.received, &progress.closed);
    // It is read in order: a sum over a beginning shows that it is right.
    ensure!(
        progress.checksum == checksum(received) && closed.is_none() && progress.done_at.is_none(),
        "{received} of {BYTES} bytes: {closed:?}"
    );
    let rows = world.take_packets(CLIENT);
    let leaves =
        |row: &TraceRow| matches!(row.kind, TraceKind::Sent | TraceKind::Repeated) && row.data.is_some();
    let first = rows.iter().map(|(_, row)| row).find(|row| Some(row.epoch) == epoch && leaves(row));
    let first_at = first.map(|row| row.at);
    let packets = [(CLIENT, WorkKind::Transmit), (SERVER, WorkKind::Receive)].map(|(node, kind)| {
        let work = world.take_work(node);
        let is_data = |work: &&Work| work.kind == kind && work.bytes > REPORT_BYTES_MAX;
        work.iter().filter(is_data).map(|work| (work.begin, work.bytes as u64)).collect()
    });
    let dropped = world.host_counters(SERVER).queue_drops;
    Ok(Passed { packets, first_at, dropped })
}

/// A profile with other error and flow control.
fn switched(profile: Profile, to: Functions) -> Result<Profile> {
    let errors = library::by_name(Function::Detection, if to.has_errors { ERRORS } else { "none" })?;
    let flow = if to.has_flow {
        library::by_name(Function::Flow, FLOW)?.choice_with(&[("window", BUFFER_BYTES.into())])?
    } else {
        library::by_name(Function::Flow, "none")?.choice()
    };
    let congestion = library::by_name(Function::Congestion, if to.has_flow { CONGESTION } else { "none" })?;
    let profile = profile.with(Function::Detection, errors.choice()).with(Function::Flow, flow);
    Ok(profile.with(Function::Congestion, congestion.choice()))
}

/// Instantaneous throughput in Mbit/s by figure 4.7: the bytes of a packet over the time since the
/// one before it where it is sent, over the time until the next where it arrives.
fn instantaneous(packets: &Packets, is_sender: bool) -> Vec<(Time, f64)> {
    let pairs = packets.iter().zip(packets.iter().skip(1)).filter(|((a, _), (b, _))| a < b);
    let of = |((a, first), (b, second)): ((&Time, &u64), (&Time, &u64))| {
        let (at, bytes) = if is_sender { (*b, *second) } else { (*a, *first) };
        (at, bytes as f64 * 8e-6 / b.since(*a).as_secs_f64())
    };
    pairs.map(|((a, first), (b, second))| of(((a, first), (b, second)))).collect()
}

/// Throughput between two instants, in Mbit/s.
fn mean(packets: &Packets, from: Time, to: Time) -> f64 {
    let bytes: u64 = packets.iter().filter(|(at, _)| (from..to).contains(at)).map(|(_, bytes)| bytes).sum();
    bytes as f64 * 8e-6 / to.since(from).as_secs_f64()
}

/// Milliseconds since the switch; below 0 before it.
fn since_switch(at: Time) -> f64 {
    (at.since(Time::ZERO).as_secs_f64() - AT.since(Time::ZERO).as_secs_f64()) * 1e3
}

/// Functions switched in mid-transfer: throughput of both ends around it, on average before and
/// behind it, once it `settles`, and in transfers under either alone, and when the first packet
/// left.
///
/// # Errors
/// A transfer fails, or what arrives is not what was sent.
pub fn switch(from: Functions, to: Functions, settles: Duration) -> Result<Series> {
    let [(_, all), ..] = Functions::ALL;
    let passed = transfer(from, &[(AT, to)])?;
    let early = [(BEGIN, to)];
    let alone = [transfer(from, &[])?, transfer(all, if to == all { &[] } else { &early })?];
    let behind = AT + settles;
    let before = Time::ZERO + (AT.since(Time::ZERO) - STEADY);
    let [from_ms, to_ms] = [-SHOWN, settles.min(SHOWN_BEHIND_MAX).as_secs_f64() * 1e3];
    let windows = [
        ("before", before, AT, &alone[0], [from_ms, 0.0]),
        ("behind", behind, behind + STEADY, &alone[1], [0.0, to_ms]),
    ];
    let mut series = Series::new();
    for (side, name) in [(0, "tx"), (1, "rx")] {
        for (at, mbps) in instantaneous(&passed.packets[side], side == 0) {
            let at_ms = since_switch(at);
            if (from_ms..to_ms).contains(&at_ms) {
                push(&mut series, [(&*format!("{name}-at"), at_ms), (&format!("{name}-mbps"), mbps)]);
            }
        }
        for (when, begin, end, alone, edges_ms) in &windows {
            let ours = mean(&passed.packets[side], *begin, *end);
            series.insert(format!("{name}-{when}"), vec![ours]);
            series.insert(format!("{name}-{when}-alone"), vec![mean(&alone.packets[side], *begin, *end)]);
            series.entry(format!("{name}-mean-at")).or_default().extend(edges_ms);
            series.entry(format!("{name}-mean")).or_default().extend([ours; 2]);
        }
    }
    let first_at = passed.first_at.context("no packet of the new profile left")?;
    series.insert("dropped".into(), vec![passed.dropped as f64]);
    series.insert("first".into(), vec![since_switch(first_at)]);
    Ok(series)
}
