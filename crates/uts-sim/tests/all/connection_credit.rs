//! Credit of the connection (flow.md ), of peers that keep to it: it bounds what is
//! held, holds nobody up who reads, and none of it is lost.

use crate::one_client::{CLIENT, OneClient, SERVER};
use bytes::Bytes;
use core::time::Duration;
use std::collections::BTreeMap;
use uts_engine::{ConnectionConfig, Event, FlowId, FlowOptions, Read, ReadError, WriteError};

const KIB: usize = 1024;
const SECOND: Duration = Duration::from_secs(1);

/// A client that sends on flows, and a server that reads those that it is to read.
struct Bundle {
    ends: OneClient,
    /// Bytes that are still to be written, of each flow.
    left: BTreeMap<FlowId, usize>,
    read: BTreeMap<FlowId, usize>,
    /// The flow is read, and ends.
    ended: Vec<FlowId>,
    reads: fn(FlowId) -> bool,
    /// Most that the server held.
    held: usize,
}

impl Bundle {
    fn new(path: &str, properties: &[&str], change: impl Fn(&mut ConnectionConfig), seed: u64) -> Self {
        let config = || {
            let mut config = ConnectionConfig::default();
            properties.iter().for_each(|p| config.requirements.assign(p).expect("a property"));
            config.requirements.assign("uts.adapt=off").expect("a property");
            change(&mut config);
            config
        };
        let ends = OneClient::connected(path, config(), config(), seed);
        let (left, read) = (BTreeMap::new(), BTreeMap::new());
        Bundle { ends, left, read, ended: Vec::new(), reads: |_| true, held: 0 }
    }

    fn open(&mut self, bytes: usize) -> FlowId {
        let flow = self.ends.at(CLIENT).open_flow(FlowOptions::default()).expect("a flow");
        self.left.insert(flow, bytes);
        self.write(flow);
        flow
    }

    /// Opens a flow as soon as the peer allows one.
    ///
    /// # Panics
    /// If nothing has reached the server for this long before.
    fn open_within(&mut self, patience: Duration, case: &str) -> FlowId {
        let mut reached = self.reached();
        let mut until = self.ends.world.now() + patience;
        loop {
            if let Ok(flow) = self.ends.at(CLIENT).open_flow(FlowOptions::default()) {
                return flow;
            }
            assert!(self.ends.world.now() < until, "{case}: no flow, and nothing came for {patience:?}");
            self.pass(Duration::from_millis(100));
            if self.reached() > reached {
                (reached, until) = (self.reached(), self.ends.world.now() + patience);
            }
        }
    }

    /// Bytes of data that have reached the server.
    fn reached(&mut self) -> u64 {
        self.ends.at(SERVER).stats().data_bytes_received
    }

    fn write(&mut self, flow: FlowId) {
        let now = self.ends.world.now();
        let Some(left) = self.left.get_mut(&flow) else { return };
        while *left > 0 {
            let data = Bytes::from(vec![flow.0 as u8; (*left).min(64 * KIB)]);
            match self.ends.at(CLIENT).write(now, flow, data) {
                Ok(taken) => *left -= taken,
                Err(WriteError::Blocked) => return,
                Err(error) => panic!("{error}"),
            }
        }
        self.left.remove(&flow);
        self.ends.at(CLIENT).finish(flow);
    }

    fn pass(&mut self, duration: Duration) {
        let until = self.ends.world.now() + duration;
        while let Some(happening) = self.ends.next(until) {
            match (happening.node, happening.event) {
                (SERVER, Event::Readable(flow)) if (self.reads)(flow) => self.read(flow),
                (CLIENT, Event::Writable(flow)) => self.write(flow),
                (node, Event::Closed(reason)) => panic!("at {node}: {reason}"),
                _ => {}
            }
            self.held = self.held.max(self.ends.at(SERVER).held_bytes());
        }
    }

    fn read(&mut self, flow: FlowId) {
        let now = self.ends.world.now();
        loop {
            match self.ends.at(SERVER).read(now, flow, 64 * KIB) {
                Ok(Read::Bytes(_, data) | Read::Message(data)) => {
                    assert!(data.iter().all(|byte| *byte == flow.0 as u8), "of another flow");
                    *self.read.entry(flow).or_default() += data.len();
                }
                Ok(Read::End) => {
                    self.ended.push(flow);
                    self.ends.at(SERVER).finish(flow);
                    return;
                }
                Ok(other) => panic!("{other:?}"),
                Err(ReadError::Blocked | ReadError::Unknown | ReadError::Reset(_)) => return,
                Err(error) => panic!("{error}"),
            }
        }
    }
}

#[test]
fn a_hundred_flows_at_once_come_through_the_credit_of_one() {
    for path in ["rate=200mbit delay=20ms", "rate=200mbit delay=20ms loss=0.1%"] {
        let change = |config: &mut ConnectionConfig| {
            config.connection_credit_bytes_initial = 1 << 20;
            config.memory_bytes_max = 1;
            (config.credit_bytes_initial, config.credit_bytes_max) = (256 << 10, 1 << 20);
            (config.send_buffer_bytes, config.send_buffer_bytes_max) = (256 * KIB, 1024 * KIB);
        };
        let mut bundle = Bundle::new(path, &[], change, 1);
        let flows: Vec<FlowId> = (0..100).map(|_| bundle.open(1000 * KIB)).collect();
        for _ in 0..240 {
            if bundle.ended.len() < 100 {
                bundle.pass(SECOND);
            }
        }
        for flow in flows {
            assert_eq!(bundle.read.get(&flow), Some(&(1000 * KIB)), "{path}: {flow:?}");
        }
        assert_eq!(bundle.ended.len(), 100, "{path}");
        assert!(bundle.held <= 2600 * KIB, "{path}: {} bytes held", bundle.held);
    }
}

/// Flows that nobody reads hold up no others: each holds its own window, as far as there is
/// memory for.
#[test]
fn what_is_not_read_holds_up_no_others() {
    for unread in [20, 30] {
        let mut bundle = Bundle::new("rate=50mbit delay=10ms", &[], |_| {}, 2);
        bundle.reads = |_| false;
        let unread: Vec<FlowId> = (0..unread).map(|_| bundle.open(4000 * KIB)).collect();
        bundle.pass(10 * SECOND);
        let held = bundle.ends.at(SERVER).held_bytes();
        assert!(held < 50_000 * KIB, "{held} bytes held");
        println!("{held} bytes held of {} flows", unread.len());
        let read = bundle.open(300 * KIB);
        for _ in 0..100 {
            bundle.pass(SECOND / 20);
            bundle.read(read);
        }
        assert!(bundle.ended.contains(&read), "{} bytes are held of {} others", held, unread.len());
        bundle.reads = |_| true;
        unread.iter().for_each(|flow| bundle.read(*flow));
        while bundle.ended.len() <= unread.len() {
            bundle.pass(SECOND);
        }
        assert_eq!(bundle.ended.len(), unread.len() + 1);
    }
}

/// Resets, stops and what is given up, in their hundreds, on a path that loses packets: both ends
/// come to the same sum, so that nothing of the credit is lost, and nobody is taken for a liar.
#[test]
fn no_credit_is_lost_with_flows_that_do_not_end_well() {
    let lossy = "rate=20mbit delay=15ms loss=5%";
    let cases: [(&str, &[&str]); 4] = [
        ("rate=20mbit delay=15ms", &[]),
        (lossy, &[]),
        (lossy, &["reliability=avoid", "preserveMsgBoundaries=require", "uts.profile.flow=credit"]),
        (lossy, &["reliability=prefer", "preserveMsgBoundaries=require", "msgLifetime=30"]),
    ];
    for ((path, properties), seed) in cases.into_iter().zip(3..) {
        let small = |config: &mut ConnectionConfig| config.connection_credit_bytes_initial = 256 << 10;
        let mut bundle = Bundle::new(path, properties, small, seed);
        let mut sent = 0;
        for round in 0..150 {
            let flow = bundle.open_within(5 * SECOND, &format!("{path} {properties:?}, round {round}"));
            let now = bundle.ends.world.now();
            for _ in 0..6 {
                let data = Bytes::from(vec![flow.0 as u8; 8 * KIB]);
                sent += match properties.contains(&"preserveMsgBoundaries=require") {
                    true => bundle
                        .ends
                        .at(CLIENT)
                        .send_message(now, flow, data, Default::default())
                        .map_or(0, |()| 8 * KIB),
                    false => bundle.ends.at(CLIENT).write(now, flow, data).unwrap_or(0),
                };
            }
            bundle.pass(Duration::from_millis([0, 20, 60][round % 3]));
            let now = bundle.ends.world.now();
            match round % 5 {
                0 => bundle.ends.at(CLIENT).reset(flow, 1),
                1 => bundle.ends.at(CLIENT).reset_reliably(now, flow, 1),
                2 => bundle.ends.at(SERVER).stop(flow, 1),
                3 => {
                    bundle.ends.at(CLIENT).finish(flow);
                    bundle.ends.at(SERVER).stop(flow, 1);
                }
                _ => bundle.ends.at(CLIENT).finish(flow),
            }
            bundle.ends.at(SERVER).finish(flow);
            bundle.pass(Duration::from_millis(10));
        }
        assert!(sent > 10 * 256 * KIB, "{properties:?}: {sent} bytes: many times the first credit");
        let last = bundle.open_within(5 * SECOND, &format!("{path} {properties:?}, the last"));
        bundle.left.insert(last, 1000 * KIB);
        bundle.write(last);
        while !bundle.ended.contains(&last) {
            let reached = bundle.reached();
            bundle.pass(10 * SECOND);
            let (goes_on, read) = (bundle.reached() > reached, bundle.read.get(&last));
            assert!(goes_on || bundle.ended.contains(&last), "{path} {properties:?}: {read:?}");
        }
    }
}

/// A pipe that holds much more than the first credit is filled by one flow.
#[test]
fn one_flow_fills_a_long_fat_pipe() {
    let mut bundle = Bundle::new("rate=400mbit delay=50ms buffer=4000p", &[], |_| {}, 9);
    let bytes = 100_000 * KIB;
    let flow = bundle.open(bytes);
    let begun = bundle.ends.world.now();
    while !bundle.ended.contains(&flow) && bundle.ends.world.now() < begun + 30 * SECOND {
        bundle.pass(Duration::from_millis(50));
    }
    let took = bundle.ends.world.now().since(begun).as_secs_f64();
    let rate = 8.0 * bytes as f64 / took / 1e6;
    println!("{rate:.0} Mbit/s");
    assert!(rate > 200.0, "{rate} Mbit/s in {took} s");
}

/// Credit that is lost with all else is given again.
#[test]
fn an_outage_while_credit_is_short_is_outlived() {
    for (finding, acknowledgement) in
        [("overtaken", "delayed"), ("overtaken", "poll-status"), ("duplicates", "delayed")]
    {
        let finding = format!("uts.profile.finding={finding}");
        let acknowledgement = format!("uts.profile.acknowledgement={acknowledgement}");
        let properties = [finding.as_str(), acknowledgement.as_str(), "uts.consent=all"];
        for at in [150, 250, 400] {
            let small = |config: &mut ConnectionConfig| config.connection_credit_bytes_initial = 256 << 10;
            let mut bundle = Bundle::new("rate=20mbit delay=20ms buffer=200p", &properties, small, 7);
            let flow = bundle.open(1000 * KIB);
            bundle.pass(Duration::from_millis(at));
            bundle.ends.set_path("down");
            bundle.pass(3 * SECOND);
            bundle.ends.set_path("up");
            bundle.pass(25 * SECOND);
            assert!(bundle.ended.contains(&flow), "{properties:?}, {at}: {:?}", bundle.read.get(&flow));
        }
    }
}
