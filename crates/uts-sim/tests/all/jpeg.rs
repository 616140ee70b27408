//! Pictures in partial order, as a player of JPEG wants them (Richards 1995): nothing is handed
//! over before what it waits for, and nothing waits that need not.
//!
//! There are two orders. In section 1.7 control data comes in any order, then picture data in any
//! order. In section 4.1.4 the first two packets are ordered, and the rest need not be.

use crate::one_client::{CLIENT, OneClient, SERVER, message, with};
use core::time::Duration;
use std::collections::BTreeMap;
use uts_engine::{After, ConnectionConfig, Event, FlowOptions, MessageOptions, Read};
use uts_functions::Time;

/// Parts of a picture, of which these are control data; a part fills a packet.
const PARTS: u32 = 10;
const CONTROL: u32 = 3;
const PART_BYTES: usize = 1100;

const PICTURES: u32 = 2;
const EVERY: Duration = Duration::from_millis(20);

#[derive(Clone, Copy, Debug, PartialEq)]
enum Order {
    /// Each part as it arrives.
    Any,
    /// Section 1.7.
    ControlFirst,
    /// Section 4.1.4.
    TwoFirst,
    /// As they were sent.
    All,
}

impl Order {
    /// The parts of its picture that a part waits for.
    fn waits_for(self, part: u32) -> core::ops::Range<u32> {
        match self {
            Order::Any => 0..0,
            Order::ControlFirst if part < CONTROL => 0..0,
            Order::ControlFirst => 0..CONTROL,
            Order::TwoFirst => 0..part.min(2),
            Order::All => 0..part,
        }
    }
}

/// Instants at which the parts were read, by their numbers, since their picture was sent.
fn read_at(order: Order, seed: u64) -> BTreeMap<u32, Duration> {
    let properties = [
        "uts.profile.sequencing=partial-order",
        "preserveOrder=avoid",
        "preserveMsgBoundaries=require",
        "uts.adapt=off",
        "uts.profile.fec=none",
        "congestionControl=avoid",
        "uts.profile.congestion=none",
    ];
    let config = with(ConnectionConfig::default(), &properties, &[]);
    let mut ends = OneClient::connected("rate=20mbit delay=20ms", config.clone(), config, seed);
    ends.set_path("loss=0.08 jitter=5ms,reorder");
    let flow = ends.at(CLIENT).open_flow(FlowOptions::default()).expect("a flow");
    let begun = ends.world.now();
    let due = |picture: u32| begun + EVERY * picture;
    let (mut picture, mut read) = (0, BTreeMap::new());
    while read.len() < (PICTURES * PARTS) as usize {
        let now = ends.world.now();
        if picture < PICTURES && now >= due(picture) {
            send(&mut ends, flow, order, picture);
            picture += 1;
        }
        let until = if picture < PICTURES { due(picture) } else { now + EVERY };
        assert!(now < Time::from_millis(60_000), "failing seed {seed}: {} arrived", read.len());
        let Some(happening) = ends.next(until) else { continue };
        let Event::Readable(flow) = happening.event else { continue };
        let now = ends.world.now();
        while happening.node == SERVER
            && let Ok(Read::Message(data)) = ends.at(SERVER).read(now, flow, 1 << 20)
        {
            let number = u32::from_be_bytes([data[0], data[1], data[2], data[3]]);
            let since = now.since(due(number / PARTS));
            assert!(read.insert(number, since).is_none(), "failing seed {seed}: {number} twice");
        }
    }
    read
}

fn send(ends: &mut OneClient, flow: uts_engine::FlowId, order: Order, picture: u32) {
    let now = ends.world.now();
    let mut begins = Vec::new();
    for part in 0..PARTS {
        begins.push(ends.at(CLIENT).position(flow).expect("open"));
        let waits = order.waits_for(part);
        let after = match begins.get(waits.start as usize..=waits.end as usize) {
            Some([from, .., to]) if !waits.is_empty() => After::Positions { from: *from, to: *to },
            _ => After::NOTHING,
        };
        let data = message(picture * PARTS + part, PART_BYTES);
        let options = MessageOptions { after, ..MessageOptions::default() };
        ends.at(CLIENT).send_message(now, flow, data, options).expect("room");
    }
}

/// The same packets are lost in runs of one seed, so that one in which nothing waits tells when
/// each part arrives. A part is read when it and all that it waits for have arrived. The pictures
/// are few, since the runs drift apart: orders are of some bytes more or less.
#[test]
fn nothing_waits_that_need_not() {
    const SAME: Duration = Duration::from_millis(1);
    let orders = [Order::ControlFirst, Order::TwoFirst, Order::All];
    let (mut waited, mut sums) = ([0; 3], [Duration::ZERO; 3]);
    for seed in 0..60 {
        let arrived = read_at(Order::Any, seed);
        for (place, order) in orders.into_iter().enumerate() {
            let read = read_at(order, seed);
            for (number, at) in &read {
                let (picture, part) = (number / PARTS, number % PARTS);
                let waits = order.waits_for(part).map(|other| picture * PARTS + other);
                let due = waits.chain([*number]).map(|other| arrived[&other]).max().expect("itself");
                assert!(
                    due <= *at + SAME && *at <= due + SAME,
                    "failing seed {seed}, {order:?}: part {part} of picture {picture} was read after {at:?}, due {due:?}"
                );
                waited[place] += u32::from(*at > arrived[number] + SAME);
                sums[place] += *at;
            }
        }
    }
    println!("parts that waited {waited:?}, in all {sums:?}");
    assert!(waited[0] > 0 && waited[1] > 0, "some had to wait: {waited:?}");
    assert!(waited[2] > waited[0].max(waited[1]), "in order more wait: {waited:?}");
    assert!(sums[0] < sums[2] && sums[1] < sums[2], "{sums:?}");
}
