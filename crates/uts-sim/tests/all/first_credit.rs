//! With what credit a flow begins: that of the flow control that was agreed (flow.md R-24), whoever
//! begins, and whatever was exchanged before.

use crate::one_client::{CLIENT, OneClient, SERVER, with};
use bytes::Bytes;
use core::time::Duration;
use uts_engine::{ConnectionConfig, Direction, Event, FlowId, FlowOptions, Read, requirements::Requirements};
use uts_functions::{Function, library};

const KIB: u64 = 1024;

struct Pair {
    ends: OneClient,
    /// Readable flows of the server, and whether it reads.
    readable: Vec<FlowId>,
    reads: bool,
    read: u64,
}

impl Pair {
    fn new(properties: &[&str]) -> Self {
        let config = ConnectionConfig { send_buffer_bytes: 8 << 20, ..ConnectionConfig::default() };
        let client = with(config, properties, &["uts.adapt=off", "uts.consent=all"]);
        let ends = OneClient::connected("rate=50mbit delay=20ms", client, ConnectionConfig::default(), 5);
        Pair { ends, readable: Vec::new(), reads: false, read: 0 }
    }

    fn pass(&mut self, duration: Duration) {
        let until = self.ends.world.now() + duration;
        while let Some(happening) = self.ends.next(until) {
            match happening.event {
                Event::Readable(flow) if happening.node == SERVER => self.readable.push(flow),
                Event::Closed(reason) => panic!("at {}: {reason}", happening.node),
                _ => {}
            }
            if self.reads {
                self.read_all();
            }
        }
    }

    fn read_all(&mut self) {
        let now = self.ends.world.now();
        for flow in core::mem::take(&mut self.readable) {
            while let Ok(Read::Bytes(_, bytes)) = self.ends.at(SERVER).read(now, flow, 1 << 20) {
                self.read += bytes.len() as u64;
            }
        }
    }

    /// Bytes of a new flow that arrive as long as nobody reads, and then, of two megabytes, in all.
    fn first(&mut self, options: FlowOptions) -> (u64, u64) {
        let flow = self.ends.at(CLIENT).open_flow(options).expect("a flow");
        let (now, before) = (self.ends.world.now(), self.ends.at(SERVER).stats().data_bytes_received);
        let data = Bytes::from(vec![7; 2 << 20]);
        assert_eq!(self.ends.at(CLIENT).write(now, flow, data).expect("room"), 2 << 20);
        self.pass(Duration::from_secs(3));
        let first = self.ends.at(SERVER).stats().data_bytes_received - before;
        let read = self.read;
        self.reads = true;
        self.read_all();
        self.pass(Duration::from_secs(20));
        self.reads = false;
        (first, self.read - read)
    }

    fn exchange(&mut self, flow_control: (&str, &str, u64)) {
        let (name, parameter, value) = flow_control;
        let mechanism = library::by_name(Function::Flow, name).expect("in the library");
        let choice = mechanism.choice_with(&[(parameter, value)]).expect("in range");
        let now = self.ends.world.now();
        let profile =
            self.ends.at(CLIENT).profile(Direction::Out).expect("connected").with(Function::Flow, choice);
        self.ends.at(CLIENT).request_profile(now, Direction::Out, profile).expect("it is asked for");
        self.pass(Duration::from_secs(1));
        assert_eq!(self.ends.at(CLIENT).profile(Direction::Out), Some(profile));
    }
}

#[test]
fn a_flow_begins_with_the_window_of_its_flow_control() {
    for (property, window) in [
        ("uts.profile.flow=credit", 1024 * KIB),
        ("uts.profile.flow=credit(window=64)", 64 * KIB),
        ("uts.profile.flow=credit(window=1)", KIB),
        ("uts.profile.flow=sliding-window(window=32768)", 32 * KIB),
        ("uts.profile=xtp", 64 * KIB),
    ] {
        let (first, all) = Pair::new(&[property]).first(FlowOptions::default());
        assert_eq!((first, all), (window, 2 << 20), "{property}");
    }
}

/// Whatever was in use before, a new flow begins with what is in use now, and never stands still.
#[test]
fn after_an_exchange_flows_begin_with_the_new_window() {
    let mut pair = Pair::new(&["uts.profile.flow=credit(window=64)"]);
    assert_eq!(pair.first(FlowOptions::default()).0, 64 * KIB);
    pair.exchange(("credit", "window", 256));
    assert_eq!(pair.first(FlowOptions::default()), (256 * KIB, 2 << 20));
    pair.exchange(("credit", "window", 16));
    assert_eq!(pair.first(FlowOptions::default()), (16 * KIB, 2 << 20));
    pair.exchange(("sliding-window", "window", 20_000));
    assert_eq!(pair.first(FlowOptions::default()), (20_000, 2 << 20));
    pair.exchange(("credit", "window", 1024));
    assert_eq!(pair.first(FlowOptions::default()), (1024 * KIB, 2 << 20));
}

/// A flow with requirements of its own begins with the window of its own flow control.
#[test]
fn a_group_begins_with_its_own_window() {
    for (connection, flow) in [(64, 256), (256, 64), (1024, 16), (16, 1024)] {
        let mut pair = Pair::new(&[&format!("uts.profile.flow=credit(window={connection})")]);
        let mut requirements = Requirements::default();
        for property in ["uts.adapt=off", "uts.consent=all"] {
            requirements.assign(property).expect("a property");
        }
        requirements.assign(&format!("uts.profile.flow=credit(window={flow})")).expect("a property");
        let (first, all) = pair.first(FlowOptions::requiring(requirements));
        assert_eq!((first, all), (flow * KIB, 2 << 20), "{connection} and {flow} KiB");
        assert_eq!(pair.first(FlowOptions::default()), (connection * KIB, 2 << 20));
    }
}
