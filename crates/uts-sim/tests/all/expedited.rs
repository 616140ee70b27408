//! Expedited data (flow.md ): it passes a closed window and all that waits, arrives
//! once whatever the path does, and takes no more memory than it was given.

use crate::one_client::{CLIENT, OneClient, SERVER, with};
use bytes::Bytes;
use core::time::Duration;
use uts_engine::{ConnectionConfig, Event, FlowId, FlowOptions, MessageOptions, Read, ReadError, WriteError};
use uts_functions::Time;
use uts_wire::frame::{Expedited, ExpeditedAck};

const EXPEDITED: MessageOptions = MessageOptions {
    made: uts_engine::Made::Now,
    lifetime: None,
    after: uts_engine::After::Everything,
    key: None,
    checksum_len: None,
    expedited: true,
};

const ON: &str = "uts.expedited=on";

/// A client that sends to a server.
struct Transfer {
    ends: OneClient,
    flow: FlowId,
    /// The server reads data, and takes expedited messages.
    reads: bool,
    takes: bool,
    read_bytes: u64,
    has_ended: bool,
    /// Expedited messages that the server has taken, when it was told of the last, and of how many
    /// it was told.
    taken: Vec<Bytes>,
    told_at: Time,
    told: usize,
    writable: usize,
    closed: Option<String>,
}

fn config(properties: &[&str]) -> ConnectionConfig {
    let config = ConnectionConfig { credit_bytes_initial: 64 << 10, ..ConnectionConfig::default() };
    with(config, properties, &["uts.adapt=off", "uts.consent=all"])
}

impl Transfer {
    fn new(path: &str, client: &[&str], server: &[&str], seed: u64) -> Self {
        let mut transfer = Transfer {
            ends: OneClient::connected("rate=20mbit delay=20ms", config(client), config(server), seed),
            flow: FlowId(0),
            reads: true,
            takes: true,
            read_bytes: 0,
            has_ended: false,
            taken: Vec::new(),
            told_at: Time::ZERO,
            told: 0,
            writable: 0,
            closed: None,
        };
        transfer.ends.set_path(path);
        transfer.flow = transfer.ends.at(CLIENT).open_flow(FlowOptions::default()).expect("a flow");
        transfer
    }

    fn expedite(&mut self, message: &[u8]) -> Result<(), WriteError> {
        let (now, flow) = (self.ends.world.now(), self.flow);
        self.ends.at(CLIENT).send_message(now, flow, Bytes::copy_from_slice(message), EXPEDITED)
    }

    fn write(&mut self, bytes: usize) -> usize {
        let (now, flow) = (self.ends.world.now(), self.flow);
        self.ends.at(CLIENT).write(now, flow, Bytes::from(vec![7; bytes])).expect("room")
    }

    fn pass(&mut self, duration: Duration) {
        let until = self.ends.world.now() + duration;
        while let Some(happening) = self.ends.next(until) {
            match (happening.node, happening.event) {
                (SERVER, Event::Readable(_)) => self.read(),
                (SERVER, Event::Expedited(flow)) => {
                    assert_eq!(flow, self.flow);
                    (self.told_at, self.told) = (self.ends.world.now(), self.told + 1);
                    self.take();
                }
                (CLIENT, Event::Writable(_)) => self.writable += 1,
                (SERVER, Event::Closed(reason)) => self.closed = Some(reason.to_string()),
                (node, Event::Closed(reason)) if self.closed.is_none() => panic!("at {node}: {reason}"),
                _ => {}
            }
        }
    }

    fn take(&mut self) {
        let flow = self.flow;
        while self.takes
            && let Ok(message) = self.ends.at(SERVER).read_expedited(flow)
        {
            self.taken.push(message);
        }
    }

    fn read(&mut self) {
        let (now, flow) = (self.ends.world.now(), self.flow);
        while self.reads
            && let Ok(read) = self.ends.at(SERVER).read(now, flow, 1 << 20)
        {
            match read {
                Read::Bytes(_, data) | Read::Message(data) => self.read_bytes += data.len() as u64,
                Read::End => self.has_ended = true,
                other => panic!("{other:?}"),
            }
        }
    }
}

/// The server reads nothing and the client has used up its credit, whatever mechanism gives it.
#[test]
fn it_passes_a_closed_window_within_a_round_trip() {
    const WRITTEN: u64 = 1 << 20;
    let mechanisms =
        ["credit(window=64)", "sliding-window(window=32000)", "stop-and-wait", "fixed-window(packets=4)"];
    for flow in mechanisms {
        let pin = format!("uts.profile.flow={flow}");
        let mut transfer = Transfer::new("rate=20mbit delay=20ms", &[&pin, ON], &[ON], 1);
        (transfer.reads, transfer.takes) = (false, false);
        assert_eq!(transfer.write(WRITTEN as usize) as u64, WRITTEN);
        transfer.pass(Duration::from_secs(20));
        let before = transfer.ends.at(SERVER).stats().data_bytes_received;
        transfer.expedite(b"stop").expect("it passes");
        let sent_at = transfer.ends.world.now();
        transfer.pass(Duration::from_secs(3));
        assert_eq!(transfer.told, 1, "{flow}: it did not arrive");
        let took = transfer.told_at.since(sent_at);
        assert!(took < Duration::from_millis(40), "{flow}: {took:?} for a round trip of 40 ms");
        let after = transfer.ends.at(SERVER).stats().data_bytes_received;
        assert_eq!(after, before, "{flow}: the window is closed for all else");
        assert!((1..WRITTEN).contains(&before), "{flow}: {before} bytes");
        transfer.takes = true;
        transfer.take();
        assert_eq!(transfer.taken, ["stop"], "{flow}: it can be read before what waits");
        transfer.reads = true;
        transfer.read();
        transfer.pass(Duration::from_secs(60));
        assert_eq!((transfer.read_bytes, transfer.told), (WRITTEN, 1), "{flow}: all else follows");
    }
}

/// One at a time, on a path that loses, reorders and duplicates, under profiles of all kinds, also
/// one that repeats no data.
#[test]
fn each_arrives_once_and_in_order() {
    const COUNT: u8 = 40;
    let path = "rate=20mbit delay=20ms loss=0.1 reorder=0.1,30ms duplicate=0.05";
    let profiles = [
        &["uts.profile=tp4"][..],
        &[],
        &["preserveMsgBoundaries=require"],
        &["reliability=avoid", "preserveOrder=no-preference", "preserveMsgBoundaries=require"],
        &["uts.profile=xtp"],
        &["uts.profile.acknowledgement=missing"],
    ];
    for (seed, profile) in (0..).zip(profiles) {
        let (mut ours, at) = (profile.to_vec(), format!("{profile:?}, seed {seed}"));
        ours.push(ON);
        let mut transfer = Transfer::new(path, &ours, &ours, seed);
        let mut refused = 0;
        for number in 0..COUNT {
            transfer.write(2000);
            while let Err(error) = transfer.expedite(&[number; 16]) {
                assert_eq!(error, WriteError::Blocked, "{at}");
                refused += 1;
                transfer.pass(Duration::from_millis(10));
                assert!(refused < 10_000, "{at}: {number} does not arrive");
            }
        }
        transfer.pass(Duration::from_secs(20));
        let sent = (0..COUNT).map(|number| Bytes::from(vec![number; 16]));
        assert!(sent.eq(transfer.taken.iter().cloned()), "{at}: {:?}", transfer.taken);
        assert_eq!(transfer.told, usize::from(COUNT), "{at}");
        assert!(refused > 0 && transfer.writable > 0, "{at}: one is under way at a time");
    }
}

/// Data that is written behind an expedited message, the flow's end too, arrives behind it (flow.md
///
#[test]
fn what_is_written_behind_it_arrives_behind_it() {
    for seed in 0..20 {
        let path = "rate=20mbit delay=20ms loss=0.3 reorder=0.3,30ms";
        let mut transfer = Transfer::new(path, &[ON], &[ON], seed);
        transfer.takes = false;
        transfer.write(100);
        transfer.expedite(b"first").expect("it is the first");
        // So that another packet has it.
        transfer.pass(Duration::from_millis(5));
        transfer.write(1000);
        let flow = transfer.flow;
        transfer.ends.at(CLIENT).finish(flow);
        while transfer.told == 0 {
            transfer.pass(Duration::from_millis(1));
            assert!(transfer.read_bytes <= 100 && !transfer.has_ended, "seed {seed}: overtaken");
        }
        transfer.pass(Duration::from_secs(20));
        assert_eq!((transfer.read_bytes, transfer.has_ended), (1100, true), "seed {seed}");
        assert_eq!(transfer.ends.at(SERVER).read_expedited(flow), Ok(Bytes::from_static(b"first")));
        assert_eq!(transfer.ends.at(SERVER).read_expedited(flow), Err(ReadError::Unknown), "none can follow");
    }
}

#[test]
fn it_is_sent_where_both_ends_ask_for_it() {
    for (client, server) in [(&[ON][..], &[][..]), (&[], &[ON])] {
        let mut transfer = Transfer::new("rate=20mbit delay=20ms", client, server, 1);
        assert_eq!(transfer.expedite(b"stop"), Err(WriteError::NotExpedited));
    }
    let mut transfer = Transfer::new("rate=20mbit delay=20ms", &[ON], &[ON], 1);
    assert_eq!(transfer.expedite(&[0; 17]), Err(WriteError::TooLarge { size: 17, max: 16 }));
    transfer.expedite(&[]).expect("it may be empty");
    assert_eq!(transfer.expedite(b"next"), Err(WriteError::Blocked));
    transfer.pass(Duration::from_secs(1));
    assert_eq!((transfer.taken.len(), transfer.writable), (1, 1));
    transfer.expedite(b"next").expect("the one before was taken");
    // Who stops a flow wants none of it, and the flow is not kept for it (flow.md R-28).
    let flow = transfer.flow;
    let now = transfer.ends.world.now();
    transfer.ends.at(SERVER).stop(flow, 1);
    transfer.ends.at(SERVER).finish(flow);
    transfer.pass(Duration::from_secs(1));
    assert_eq!(transfer.taken.len(), 1);
    assert_eq!(transfer.ends.at(SERVER).read(now, flow, 1), Err(ReadError::Unknown));
    assert_eq!(transfer.ends.at(SERVER).flow_priority(flow), None, "the flow is gone");
    assert_eq!(transfer.expedite(b"last"), Err(WriteError::Stopped(1)));
}

/// A sender that keeps to nothing gets no more memory than one that does, and is found out.
#[test]
fn a_peer_that_exceeds_what_it_may_is_found_out() {
    let expedited = |number, bytes: &'static [u8]| {
        let mut frame = Vec::new();
        Expedited { flow: 2, number, bytes }.emit(&mut frame);
        frame
    };
    let mut ack = Vec::new();
    ExpeditedAck { flow: 2, number: 0 }.emit(&mut ack);
    let before = "an expedited message before the one before it was taken";
    let cases: [(&[Vec<u8>], &str, &str); 5] = [
        (&[expedited(0, b"a"), expedited(1, b"b")], ON, before),
        (&[expedited(1, b"a")], ON, before),
        (&[expedited(u64::MAX >> 2, b"a")], ON, before),
        (&[expedited(0, b"a")], "uts.expedited=off", "an expedited message, which this end does not take"),
        (&[ack], ON, "an expedited message was taken that was not sent"),
    ];
    for (packets, server, what) in cases {
        let mut transfer = Transfer::new("rate=20mbit delay=20ms", &[ON], &[server], 1);
        transfer.takes = false;
        transfer.say(packets);
        let why = transfer.closed.clone().unwrap_or_default();
        assert!(why.ends_with(&format!("flow 2: {what}")), "{why}");
    }
    // The same message again and again takes what as many pings take.
    let mut held = Vec::new();
    for frame in [vec![uts_wire::frame::kind::PING], expedited(0, b"and again")] {
        let mut transfer = Transfer::new("rate=20mbit delay=20ms", &[ON], &[ON], 1);
        transfer.takes = false;
        transfer.say(&[expedited(0, b"once")]);
        (0..100).for_each(|_| transfer.say(core::slice::from_ref(&frame)));
        held.push(transfer.ends.at(SERVER).memory_bytes());
        assert_eq!(transfer.told, 1);
        assert_eq!(transfer.ends.at(SERVER).read_expedited(FlowId(2)), Ok(Bytes::from_static(b"once")));
    }
    assert_eq!(held[0], held[1]);
}

impl Transfer {
    /// Packets of these frames from the client.
    fn say(&mut self, packets: &[Vec<u8>]) {
        self.flow = FlowId(2);
        for frames in packets {
            let now = self.ends.world.now();
            let packet = self.ends.at(CLIENT).packet_of(now, frames).expect("open");
            self.ends.world.inject(CLIENT, SERVER, packet);
            self.pass(Duration::from_millis(50));
        }
    }
}
