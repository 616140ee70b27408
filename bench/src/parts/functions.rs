//! The functions that keep state: FEC, retransmission, congestion, sequencing, segmentation.

use super::{DATA_BYTES, Part};
use crate::usage::thread_time;
use anyhow::{Context, Result, ensure};
use bytes::Bytes;
use std::collections::VecDeque;
use std::hint::black_box;
use std::time::Duration;
use uts_functions::congestion::{self, Ack, Congestion, Delivery, Snapshot, Summary};
use uts_functions::fec::{self, Fec};
use uts_functions::finding::{self, Finding, Flight};
use uts_functions::retransmission::ledger::{Carried, Departure, Ledger, Sent, Tokens};
use uts_functions::segmentation::buffer::SendBuffer;
use uts_functions::sequencing::reassembly::{Reassembly, Segment};
use uts_functions::time::Time;

const RTT: Duration = Duration::from_millis(1);

/// Time between packets: about 1.2 Gbit/s.
const GAP: Duration = Duration::from_micros(10);

/// Packets in flight: as many as fit into a round trip.
const FLIGHT: usize = 100;

/// Packets of which one is lost where a code has no blocks.
const WINDOW_GROUP: u64 = 40;

/// Packets that one acknowledgement names.
const PER_ACK: u64 = 10;

pub fn parts() -> Result<Vec<Part>> {
    let mut parts = Vec::new();
    for entry in fec::MECHANISMS.iter().filter(|m| !m.facts.inert) {
        parts.push(fec_encode(entry.name)?);
        parts.push(fec_decode(entry.name, false)?);
        parts.push(fec_decode(entry.name, true)?);
    }
    parts.push(ledger(1, "one by one"));
    parts.push(ledger(40, "in batches"));
    for entry in congestion::MECHANISMS {
        parts.push(congestion_ack(entry.name)?);
    }
    parts.extend([reassembly(false), reassembly(true), send_buffer()]);
    Ok(parts)
}

fn scheme(name: &str) -> Result<fec::Slot> {
    let entry = fec::MECHANISMS.iter().find(|m| m.name == name).context("mechanism")?;
    fec::Slot::build(&entry.choice(), ()).with_context(|| format!("{name} cannot be built"))
}

fn fec_encode(name: &'static str) -> Result<Part> {
    let slot = scheme(name)?;
    let mut encoder = slot.encoder();
    let (payload, mut number) = (vec![0x5a; DATA_BYTES], 0);
    let what = match slot.shape() {
        Some(shape) => format!("{name} ({}+{}) encode", shape.data, shape.parities),
        None => format!("{name} encode"),
    };
    Ok(Part::plain("fec", what, DATA_BYTES, move || {
        encoder.on_source(Time::ZERO, number, black_box(&payload));
        number += 1;
        while let Some(repair) = encoder.pop_repair() {
            black_box(repair);
        }
    }))
}

/// Decodes what an encoder made. With `loses`, the third packet of each group of blocks does not
/// arrive.
fn fec_decode(name: &'static str, loses: bool) -> Result<Part> {
    let slot = scheme(name)?;
    let group = slot.shape().map_or(WINDOW_GROUP, |shape| (shape.data * shape.interleave) as u64);
    let payload = vec![0x5a; DATA_BYTES];
    let what = if loses { format!("1 in {group} lost") } else { "nothing lost".to_owned() };
    let run = move |packets: u64| {
        let (mut encoder, mut decoder) = (slot.encoder(), slot.decoder());
        let (mut took, mut recovered) = (Duration::ZERO, 0);
        for first in (0..packets.next_multiple_of(group)).step_by(group as usize) {
            (first..first + group).for_each(|number| encoder.on_source(Time::ZERO, number, &payload));
            let repairs: Vec<_> = std::iter::from_fn(|| encoder.pop_repair()).collect();
            let start = thread_time();
            for number in (first..first + group).filter(|n| !(loses && n % group == 2)) {
                recovered += decoder.on_source(number, black_box(&payload)).len();
            }
            for repair in &repairs {
                recovered += decoder.on_repair(black_box(repair)).len();
            }
            took += thread_time() - start;
        }
        ensure!(loses == (recovered > 0), "{recovered} packets recovered");
        Ok(took)
    };
    Ok(Part::new("fec", format!("{name} decode, {what}"), DATA_BYTES, Box::new(run)))
}

/// Positions of data.
#[derive(Clone)]
struct Data(std::ops::Range<u64>);

impl Carried for Data {
    fn ahead(&self, places: u64) -> Self {
        let by = places * (self.0.end - self.0.start);
        Data(self.0.start + by..self.0.end + by)
    }
}

fn sent(snapshot: Snapshot) -> Sent<Data> {
    let tokens = Tokens::from_iter([Data(0..DATA_BYTES as u64)]);
    let departure = Departure::default();
    Sent { bytes: 1472, epoch: 0, eliciting: true, size_probe: false, departure, tokens, snapshot }
}

/// Packets are entered, one by one or in batches that are alike, and acknowledged ten at a time.
/// Packets behind these are checked for losses.
fn ledger(batch: u64, what: &str) -> Part {
    let finding = finding::Slot::build(&finding::MECHANISMS[0].choice(), ()).expect("mandatory");
    let (mut ledger, mut now) = (Ledger::default(), Time::ZERO);
    let (mut acknowledged, mut due) = (0, 0);
    Part::plain(
        "retransmission",
        format!("ledger: record, acknowledge, look for losses; {what}"),
        0,
        move || {
            if due == 0 {
                now += GAP;
                ledger.record_run(sent(Snapshot { sent_at: now, ..Snapshot::default() }), batch);
                due = batch;
            }
            due -= 1;
            if ledger.next_number() >= acknowledged + FLIGHT as u64 + PER_ACK {
                let range = acknowledged..acknowledged + PER_ACK;
                acknowledged = range.end;
                if let Some(done) = black_box(ledger.on_ack(std::iter::once(range), now)) {
                    ledger.take_back(done);
                }
                let flight = Flight {
                    largest_acked: ledger.largest_acked(),
                    reordering: ledger.reordering(),
                    loss_delay: 2 * RTT,
                    patience: 2 * RTT,
                    timeout: 2 * RTT,
                };
                black_box(ledger.take_lost(now, &finding.rule(&flight)));
            }
        },
    )
}

/// A packet is sent, and one that was sent a round trip ago is acknowledged.
fn congestion_ack(name: &'static str) -> Result<Part> {
    let entry = congestion::MECHANISMS.iter().find(|m| m.name == name).context("mechanism")?;
    let summary = Summary { window_bytes: 150_000, threshold_bytes: 150_000, ..Summary::initial(1472) };
    let context = congestion::Context { now: Time::ZERO, packet_bytes: 1472, summary, past: None, seed: 1 };
    let mut slot = congestion::Slot::build(&entry.choice(), &context)
        .with_context(|| format!("{name} cannot be built"))?;
    let (mut delivery, mut now, mut number) = (Delivery::new(Time::ZERO), Time::ZERO, 0);
    let mut flight: VecDeque<Snapshot> = VecDeque::with_capacity(FLIGHT + 1);
    Ok(Part::plain("congestion", format!("{name} on_sent, sample, on_ack"), 0, move || {
        now += GAP;
        flight.push_back(delivery.on_sent(now, 1472));
        slot.on_sent(now, 1472, &delivery);
        number += 1;
        if flight.len() < FLIGHT {
            return;
        }
        let Some(snapshot) = flight.pop_front() else { return };
        let prior_in_flight = delivery.in_flight;
        delivery.on_acknowledged(now, 1472, &snapshot);
        let (sample, bytes) = delivery.sample(RTT);
        let ack = Ack {
            now,
            bytes,
            largest: number - FLIGHT as u64,
            sent_at: snapshot.sent_at,
            rtt: Some(RTT),
            rtt_smoothed: RTT,
            rtt_min: RTT,
            prior_in_flight,
            sample,
            ecn_marked: 0,
            next_packet: number,
        };
        slot.on_ack(black_box(&ack), &delivery);
        black_box(slot.window_bytes());
    }))
}

/// Packets arrive (in order, or each pair of them swapped) and what is in order is taken out.
fn reassembly(swapped: bool) -> Part {
    let (mut state, mut number) = (Reassembly::default(), 0);
    let data = Bytes::from(vec![0x5a; DATA_BYTES]);
    let what = if swapped {
        "reassembly: insert, take; pairs swapped"
    } else {
        "reassembly: insert, take; in order"
    };
    Part::plain("sequencing", what, 0, move || {
        let start = (if swapped { number ^ 1 } else { number }) * DATA_BYTES as u64;
        number += 1;
        let segment = Segment {
            start,
            data: data.clone(),
            message: false,
            begin: false,
            end: false,
            fin: false,
            presented: false,
        };
        let _ = black_box(state.insert(segment, u64::MAX));
        while let Some(delivery) = state.pop_front(1 << 20) {
            black_box(delivery);
        }
    })
}

/// Writes of 64 KiB are cut into packets, copied, and acknowledged 100 packets later.
fn send_buffer() -> Part {
    let (mut buffer, mut out) = (SendBuffer::default(), Vec::with_capacity(DATA_BYTES));
    let (data, mut flight) = (Bytes::from(vec![0x5a; 64 << 10]), VecDeque::with_capacity(FLIGHT + 1));
    Part::plain("segmentation", "send buffer: write, cut, copy, acknowledge", DATA_BYTES, move || {
        if buffer.written() - buffer.sent() < DATA_BYTES as u64 {
            buffer.write(data.clone());
        }
        let Some(chunk) = buffer.next_chunk(DATA_BYTES, u64::MAX) else { return };
        out.clear();
        buffer.copy(&chunk, &mut out);
        black_box(&out);
        flight.push_back(chunk.range);
        if flight.len() > FLIGHT
            && let Some(range) = flight.pop_front()
        {
            buffer.on_acknowledged(range);
        }
    })
}
