//! Resets of flows (flow.md ): a reset is acted on behind what was said before it, half
//! is never taken for the whole, and nothing is held for a peer that does not want it.

use crate::one_client::{CLIENT, OneClient, SERVER, with};
use bytes::Bytes;
use core::time::Duration;
use uts_engine::{ConnectionConfig, Event, FlowId, FlowOptions, MessageOptions, Read, ReadError, WriteError};
use uts_wire::frame::{Data, DataFlags, ResetFlow};

const CODE: u64 = 7;
const SECOND: Duration = Duration::from_secs(1);

/// A client that sends to a server, and resets the flow.
struct Sender {
    ends: OneClient,
    flow: FlowId,
    reads: bool,
    read: Vec<u8>,
    ended: Option<ReadError>,
    closed: Option<String>,
}

impl Sender {
    fn new(path: &str, properties: &[&str], seed: u64) -> Self {
        let config = || {
            let config = ConnectionConfig {
                credit_bytes_initial: 64 << 10,
                keep_alive: Duration::from_secs(5),
                ..ConnectionConfig::default()
            };
            with(config, properties, &["uts.adapt=off", "uts.consent=all"])
        };
        let mut ends = OneClient::connected("rate=20mbit delay=20ms", config(), config(), seed);
        ends.set_path(path);
        let flow = ends.at(CLIENT).open_flow(FlowOptions::default()).expect("a flow");
        Sender { ends, flow, reads: true, read: Vec::new(), ended: None, closed: None }
    }

    fn write(&mut self, bytes: usize) {
        let (now, flow) = (self.ends.world.now(), self.flow);
        let data = Bytes::from_iter((0..bytes).map(|n| (n % 251) as u8));
        assert_eq!(self.ends.at(CLIENT).write(now, flow, data), Ok(bytes));
    }

    fn reset_reliably(&mut self) {
        let (now, flow) = (self.ends.world.now(), self.flow);
        self.ends.at(CLIENT).reset_reliably(now, flow, CODE);
    }

    fn held(&mut self) -> u64 {
        self.ends.at(CLIENT).undelivered_bytes()
    }

    fn pass(&mut self, duration: Duration) {
        let until = self.ends.world.now() + duration;
        while let Some(happening) = self.ends.next(until) {
            match (happening.node, happening.event) {
                (SERVER, Event::Readable(_)) if self.reads => self.read(),
                (SERVER, Event::Closed(reason)) => self.closed = Some(reason.to_string()),
                (node, Event::Closed(reason)) if self.closed.is_none() => panic!("at {node}: {reason}"),
                _ => {}
            }
        }
    }

    fn read(&mut self) {
        let (now, flow) = (self.ends.world.now(), self.flow);
        loop {
            match self.ends.at(SERVER).read(now, flow, 1 << 20) {
                Ok(Read::Bytes(_, data) | Read::Message(data)) => self.read.extend_from_slice(&data),
                Ok(other) => panic!("{other:?} of a flow that was reset"),
                Err(ReadError::Blocked) => return,
                Err(error) => {
                    self.ended.get_or_insert(error);
                    return;
                }
            }
        }
    }

    /// Packets of these frames from the client.
    fn say(&mut self, packets: &[Vec<u8>]) {
        for frames in packets {
            let now = self.ends.world.now();
            let packet = self.ends.at(CLIENT).packet_of(now, frames).expect("open");
            self.ends.world.inject(CLIENT, SERVER, packet);
            self.pass(Duration::from_millis(50));
        }
    }
}

#[test]
fn what_was_written_before_a_reset_is_read_and_then_the_reset() {
    for path in ["rate=20mbit delay=20ms", "rate=20mbit delay=20ms loss=5%"] {
        for flow in ["credit(window=64)", "sliding-window(window=32000)", "stop-and-wait"] {
            for (seed, bytes) in [0, 68, 30_000, 300_000].into_iter().enumerate() {
                let pin = format!("uts.profile.flow={flow}");
                let mut sender = Sender::new(path, &[&pin], seed as u64);
                sender.write(bytes);
                sender.reset_reliably();
                let (now, flow) = (sender.ends.world.now(), sender.flow);
                let more = sender.ends.at(CLIENT).write(now, flow, Bytes::from_static(b"more"));
                assert_eq!(more, Err(WriteError::Finished));
                // In order to end the flow it is too late.
                sender.ends.at(CLIENT).finish(flow);
                sender.pass(100 * SECOND);
                let case = format!("{path}, {pin}, {bytes} bytes, seed {seed}");
                assert_eq!(sender.read.len(), bytes, "{case}");
                assert!(sender.read.iter().enumerate().all(|(n, b)| *b == (n % 251) as u8), "{case}");
                assert_eq!(sender.ended, Some(ReadError::Reset(CODE)), "{case}");
                assert_eq!(sender.held(), 0, "{case}");
            }
        }
    }
}

#[test]
fn messages_before_a_reset_are_read_whole() {
    for properties in
        [&["preserveMsgBoundaries=require"][..], &["preserveMsgBoundaries=require", "preserveOrder=avoid"]]
    {
        let mut sender = Sender::new("rate=20mbit delay=20ms loss=5%", properties, 3);
        for _ in 0..100 {
            let (now, flow) = (sender.ends.world.now(), sender.flow);
            let message = Bytes::from(vec![1; 3000]);
            let sent = sender.ends.at(CLIENT).send_message(now, flow, message, MessageOptions::default());
            assert_eq!(sent, Ok(()));
        }
        sender.reset_reliably();
        sender.pass(20 * SECOND);
        assert_eq!((sender.read.len(), sender.ended.clone()), (300_000, Some(ReadError::Reset(CODE))));
    }
}

/// Where data is not repeated, what is given up is not waited for.
#[test]
fn a_reset_waits_for_nothing_that_will_not_come() {
    for properties in [
        &["reliability=prohibit"][..],
        &["reliability=prohibit", "preserveMsgBoundaries=require", "preserveOrder=prohibit"],
        &["preserveMsgBoundaries=require", "msgLifetime=50ms", "reliability=prefer"],
    ] {
        for seed in 0..5 {
            let mut sender = Sender::new("rate=2mbit delay=20ms loss=20%", properties, seed);
            for _ in 0..50 {
                let (now, flow) = (sender.ends.world.now(), sender.flow);
                let message = Bytes::from(vec![1; 1000]);
                let sent = sender.ends.at(CLIENT).send_message(now, flow, message, MessageOptions::default());
                assert_eq!(sent, Ok(()));
            }
            sender.reset_reliably();
            sender.pass(20 * SECOND);
            assert_eq!(sender.ended, Some(ReadError::Reset(CODE)), "{properties:?}, seed {seed}");
            assert_eq!(sender.held(), 0, "{properties:?}, seed {seed}");
        }
    }
}

#[test]
fn a_peer_that_reads_nothing_is_not_waited_for_for_ever() {
    let mut sender = Sender::new("rate=20mbit delay=20ms", &["uts.profile.flow=credit(window=64)"], 1);
    sender.reads = false;
    sender.write(1_000_000);
    sender.reset_reliably();
    sender.pass(25 * SECOND);
    assert!(sender.held() > 900_000, "it may still be read");
    sender.pass(40 * SECOND);
    assert_eq!(sender.held(), 0);
    // What has come is read, and half is not taken for the whole.
    sender.read();
    assert!((1..=200_000).contains(&sender.read.len()), "{} bytes", sender.read.len());
    assert_eq!(sender.ended, Some(ReadError::Reset(CODE)));
}

#[test]
fn a_slow_reader_reads_all() {
    let mut sender = Sender::new("rate=20mbit delay=20ms", &["uts.profile.flow=credit(window=64)"], 1);
    sender.reads = false;
    sender.write(1_000_000);
    sender.reset_reliably();
    // 64 kB in 20 s: it takes minutes.
    while sender.ended.is_none() {
        sender.pass(20 * SECOND);
        sender.read();
    }
    assert_eq!((sender.read.len(), sender.ended.clone()), (1_000_000, Some(ReadError::Reset(CODE))));
}

#[test]
fn who_is_stopped_or_gives_up_holds_nothing() {
    for stops in [false, true] {
        let mut sender = Sender::new("rate=20mbit delay=20ms", &["uts.profile.flow=credit(window=64)"], 1);
        sender.reads = false;
        sender.write(1_000_000);
        sender.reset_reliably();
        sender.pass(SECOND);
        assert!(sender.held() > 900_000);
        let flow = sender.flow;
        if stops {
            sender.ends.at(SERVER).stop(flow, 1);
            sender.pass(SECOND);
        } else {
            sender.ends.at(CLIENT).reset(flow, 9);
        }
        assert_eq!(sender.held(), 0, "stops: {stops}");
        if !stops {
            sender.pass(SECOND);
            sender.read();
            assert!(sender.read.len() < 200_000, "{} bytes", sender.read.len());
            assert_eq!(sender.ended, Some(ReadError::Reset(9)));
        }
    }
}

/// The final position may fall, and never rises. It does not lie behind the end.
#[test]
fn final_positions_are_held_to_their_rules() {
    let reset = |final_position, code| {
        let mut out = Vec::new();
        ResetFlow { flow: 0, code, final_position, sent: Some(0) }.emit(&mut out);
        out
    };
    let data = |start, bytes: &[u8], fin| {
        let flags = DataFlags { fin, ..DataFlags::default() };
        let mut out = Vec::new();
        Data { flow: 0, offset: Some(start), flags, has_len: true, bytes }.emit(&mut out);
        out
    };
    let with = |packets: &[Vec<u8>]| {
        let mut sender = Sender::new("rate=20mbit delay=20ms", &[], 1);
        assert_eq!(sender.flow, FlowId(0));
        sender.say(packets);
        sender
    };
    // It waits for what stands before it.
    let mut sender = with(&[reset(6, 1), data(3, b"def", false)]);
    assert_eq!((sender.read.as_slice(), &sender.ended), (&b""[..], &None));
    sender.say(&[data(0, b"abc", false)]);
    assert_eq!((sender.read.as_slice(), &sender.ended), (&b"abcdef"[..], &Some(ReadError::Reset(1))));
    // A lower one counts, a higher one comes too late.
    let sender = with(&[data(0, b"abc", false), reset(1 << 40, 1), reset(3, 2), reset(100, 3)]);
    assert_eq!((sender.read.as_slice(), &sender.ended), (&b"abc"[..], &Some(ReadError::Reset(2))));
    // Behind the end there is nothing.
    let sender = with(&[data(3, b"", true), reset(4, 1)]);
    let why = sender.closed.expect("an error");
    assert!(why.ends_with("flow 0: a reset behind position 4 of a flow that ends at 3"), "{why}");
    let sender = with(&[data(3, b"", true), reset(3, 1)]);
    assert_eq!((sender.ended, sender.closed), (None, None));
}
