//! Carries packets between two engines in memory and does nothing else: for a profiler, or a
//! counter of instructions.
//!
//! `carry PACKETS [--soon] [--in-flight MB] [--loss PER_MILLE] [--messages BYTES [--separate |
//! --batches] | --round-trips | --flows OPEN] [NAME=VALUE
//! ...]`. The last are properties of both ends. With `--soon`, packets are carried soon after the
//! exchange that the properties ask for, while the epoch before it is still open. Otherwise that
//! epoch is closed. With messages, PACKETS counts packets that would be full of them, even if each
//! message has a packet of its own. They may be handed over and read in batches. Each round trip is
//! of one byte, and PACKETS says how many. With flows, PACKETS says how many, each of 1000 bytes,
//! while OPEN others stay open.

use bytes::Bytes;
use std::process::ExitCode;
use std::time::Duration;
use uts_engine::ConnectionConfig;
use uts_sim::pair::Pair;

/// Bytes of data in a full packet of 1472 bytes: what header, frame and tag leave, nearly.
const DATA_BYTES: u64 = 1440;

struct Arguments {
    packets: u64,
    in_flight_mb: u64,
    loss_per_mille: u64,
    message_bytes: usize,
    round_trips: bool,
    flows_open: Option<u64>,
    soon: bool,
    batches: bool,
    config: ConnectionConfig,
}

fn parse() -> Result<Arguments, String> {
    let config = ConnectionConfig::default();
    let mut arguments = Arguments {
        packets: 0,
        in_flight_mb: 1,
        loss_per_mille: 0,
        message_bytes: 0,
        round_trips: false,
        flows_open: None,
        soon: false,
        batches: false,
        config,
    };
    let mut words = std::env::args().skip(1);
    let number = |text: Option<String>, of: &str| -> Result<u64, String> {
        let text = text.ok_or_else(|| format!("{of} wants a number"))?;
        text.parse().map_err(|_| format!("{of}: `{text}` is not a number"))
    };
    arguments.packets = number(words.next(), "PACKETS")?;
    while let Some(word) = words.next() {
        match word.as_str() {
            "--in-flight" => arguments.in_flight_mb = number(words.next(), "--in-flight")?.max(1),
            "--loss" => arguments.loss_per_mille = number(words.next(), "--loss")?,
            "--round-trips" => arguments.round_trips = true,
            "--flows" => arguments.flows_open = Some(number(words.next(), "--flows")?),
            "--soon" => arguments.soon = true,
            "--batches" => arguments.batches = true,
            "--separate" => arguments.config.coalesce = false,
            "--messages" => arguments.message_bytes = number(words.next(), "--messages")? as usize,
            property => {
                arguments.config.requirements.assign(property).map_err(|error| error.to_string())?;
            }
        }
    }
    Ok(arguments)
}

fn run() -> Result<(), Box<dyn std::error::Error>> {
    let arguments = parse()?;
    let Arguments { packets, in_flight_mb, loss_per_mille, message_bytes, round_trips, .. } = arguments;
    let Arguments { soon, flows_open, mut config, .. } = arguments;
    let window = in_flight_mb << 20;
    // The peer's credit is what holds the sender back.
    (config.credit_bytes_initial, config.credit_bytes_max) = (window, window);
    config.send_buffer_bytes = 2 * window as usize;
    // Long enough for a window to be under way before the first acknowledgement: 8 batches of 32
    // packets take 40 us.
    let delay = Duration::from_micros(window / (256 * DATA_BYTES) * 40 + 100);
    config.flows_max = config.flows_max.max(2 * flows_open.unwrap_or(0) as u32);
    let mut pair = Pair::new(config.clone(), delay)?;
    pair.batches = arguments.batches;
    let connection = pair.connect(config)?;
    let flow = pair.open_flow(connection)?;
    // Until the profile that was asked for is agreed and, unless it is to be soon, the epoch before
    // is closed.
    pair.pass(pair.now + if soon { 10 * delay } else { Duration::from_secs(1) })?;
    for _ in 0..flows_open.unwrap_or(0) {
        let (now, flow) = (pair.now, pair.open_flow(connection)?);
        let open = pair.client.connection(connection).ok_or("the connection is gone")?;
        open.write(now, flow, Bytes::from_static(&[0x5a]))?;
    }
    pair.pass(pair.now + 10 * delay)?;
    pair.loses_every = (loss_per_mille > 0).then(|| 1000 / loss_per_mille);
    let mut in_flight_max = 0;
    let packets_a_step = (packets / 100).max(1);
    let step = packets_a_step * DATA_BYTES;
    for _ in 0..100 {
        if flows_open.is_some() {
            pair.short_flows(connection, packets_a_step, 1000)?;
        } else if round_trips {
            pair.round_trips(connection, flow, packets_a_step)?;
        } else if message_bytes > 0 {
            pair.carry_messages(connection, flow, step, message_bytes)?;
        } else {
            pair.carry(connection, flow, step)?;
        }
        let in_flight = pair.client.peek(connection).map_or(0, uts_engine::Connection::in_flight_bytes);
        in_flight_max = in_flight_max.max(in_flight);
    }
    let stats = pair.client.peek(connection).map(uts_engine::Connection::stats).unwrap_or_default();
    let back = pair.client.peek(connection).map_or(0, |c| c.stats().packets_received);
    println!(
        "{} packets out, {back} back, {} lost, {} KiB in flight at most, {:?} virtual",
        stats.packets_sent,
        stats.packets_lost,
        in_flight_max >> 10,
        pair.now
    );
    Ok(())
}

fn main() -> ExitCode {
    match run() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("carry: {error}");
            ExitCode::FAILURE
        }
    }
}
