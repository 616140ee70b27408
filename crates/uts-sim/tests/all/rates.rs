//! `maxSendRate` and `maxRecvRate` are kept, in either direction, whatever else is asked
//! (rate.md R-9, flow.md ).

use core::time::Duration;
use uts_engine::{ConnectionConfig, ConnectionHandle, EndpointConfig, Event, FlowId, FlowOptions, Read};
use uts_functions::{Function, Time};
use uts_path::{Direction, PathConfig};
use uts_sim::identity::Identities;
use uts_sim::world::SERVER;
use uts_sim::{World, WorldConfig};

const CLIENT: usize = 1;

fn config(properties: &[&str]) -> ConnectionConfig {
    let mut config = ConnectionConfig::default();
    for property in properties {
        config.requirements.assign(property).expect("a valid property");
    }
    config
}

/// Two ends that send each other as much as they can.
struct Busy {
    world: World,
    /// The connection at each end.
    handles: [Option<ConnectionHandle>; 2],
    /// Flows in which each end sends.
    flows: [Vec<FlowId>; 2],
    /// Bytes that each end's application has read.
    read: [u64; 2],
    /// Which ends send, and how many flows each of them opens.
    sends: [usize; 2],
    /// Events without effect that the applications are told of.
    without_effect: Vec<(usize, &'static str)>,
}

impl Busy {
    fn new(path: &str, client: &[&str], server: &[&str], sends: [usize; 2]) -> Self {
        let path = PathConfig::both(format!("{path} overhead=28").parse().expect("a valid path"));
        let server = EndpointConfig { accept: config(server), ..EndpointConfig::default() };
        let world = WorldConfig { path, server, seed: 3, ..WorldConfig::default() };
        let mut world = World::new(world, Identities::new().expect("keys")).expect("a valid world");
        let handle = world.connect(CLIENT, config(client)).expect("begun");
        Busy {
            world,
            handles: [None, Some(handle)],
            flows: [Vec::new(), Vec::new()],
            read: [0, 0],
            sends,
            without_effect: Vec::new(),
        }
    }

    fn write(&mut self, node: usize) {
        let now = self.world.now();
        let (Some(handle), flows) = (self.handles[node], &mut self.flows[node]) else { return };
        let Some(connection) = self.world.connection(node, handle) else { return };
        while flows.len() < self.sends[node] {
            let Ok(flow) = connection.open_flow(FlowOptions::default()) else { break };
            flows.push(flow);
        }
        for flow in flows {
            while connection.write(now, *flow, vec![7; 64 << 10].into()).is_ok() {}
        }
    }

    fn run(&mut self, until: Time) {
        while let Some(happening) = self.world.next(until) {
            let (node, now) = (happening.node, self.world.now());
            match happening.event {
                Event::Connected => {
                    self.handles[node] = Some(happening.connection);
                    self.write(node);
                }
                Event::Writable(_) => self.write(node),
                Event::Readable(flow) => {
                    let connection = self.world.connection(node, happening.connection).expect("open");
                    while let Ok(Read::Bytes(_, data) | Read::Message(data)) =
                        connection.read(now, flow, 1 << 20)
                    {
                        self.read[node] += data.len() as u64;
                    }
                }
                Event::NoEffect(property) => self.without_effect.push((node, property)),
                Event::Closed(reason) => panic!("{node}: {reason}"),
                _ => {}
            }
        }
    }

    /// Bytes of UDP payload that have left an end, and that its peer has read.
    fn counts(&mut self, node: usize) -> (u64, u64) {
        let direction = if node == CLIENT { Direction::Forward } else { Direction::Backward };
        let stats = self.world.path_stats(direction);
        (stats.bytes_in, self.read[1 - node])
    }

    /// Bit/s of both over some seconds.
    fn rates(&mut self, node: usize, seconds: u64) -> (f64, f64) {
        let (before, from) = (self.counts(node), self.world.now());
        self.run(from + Duration::from_secs(seconds));
        let after = self.counts(node);
        let rate = |bytes: u64| 8.0 * bytes as f64 / seconds as f64;
        (rate(after.0 - before.0), rate(after.1 - before.1))
    }
}

/// Within five percent.
fn is_near(rate: f64, wanted: f64) -> bool {
    (rate / wanted - 1.0).abs() < 0.05
}

#[test]
fn sending_keeps_the_rate_with_repeats_and_redundancy() {
    let fec = ["uts.adapt=off", "uts.profile.fec=reed-solomon"];
    for (path, more) in [
        ("rate=50mbit delay=10ms buffer=200p", &[][..]),
        ("rate=50mbit delay=10ms buffer=200p loss=0.03", &[]),
        ("rate=50mbit delay=10ms buffer=200p loss=0.01", &fec),
        ("rate=50mbit delay=100ms buffer=2000p", &["uts.profile.congestion=bbr"]),
    ] {
        for megabits in [0.2, 2.0, 10.0] {
            for node in [CLIENT, SERVER] {
                let own = [
                    &[format!("maxSendRate={megabits}Mbit/s")][..],
                    &more.iter().map(|m| m.to_string()).collect::<Vec<_>>(),
                ]
                .concat();
                let own: Vec<&str> = own.iter().map(String::as_str).collect();
                let (client, server) = if node == CLIENT { (&own[..], &[][..]) } else { (more, &own[..]) };
                let mut sends = [0, 0];
                sends[node] = 1;
                let mut busy = Busy::new(path, client, server, sends);
                busy.run(Time::from_millis(100));
                busy.write(node);
                busy.run(Time::from_millis(3_000));
                let (rate, goodput) = busy.rates(node, 10);
                println!("{path} {more:?} {megabits} from {node}: {rate:.0} bit/s, {goodput:.0} of it data");
                assert!(rate < 1.01e6 * megabits, "{rate}");
                // Congestion control may want less where packets are lost.
                assert!(path.contains("loss") || is_near(rate, 1e6 * megabits), "{rate}");
            }
        }
    }
}

#[test]
fn no_mechanism_sends_faster_than_was_asked() {
    // Pinned at the beginning, it is a contradiction.
    let both = config(&["maxSendRate=2Mbit/s", "congestionControl=avoid", "uts.profile.rate=none"]);
    let mut busy = Busy::new("rate=50mbit delay=10ms buffer=200p", &[], &[], [0, 1]);
    let error = busy.world.connect(CLIENT, both).expect_err("refused").to_string();
    assert!(error.contains("maxSendRate") && error.contains("rate"), "{error}");
    // Asked for later, the bound holds all the same.
    busy.run(Time::from_millis(1_000));
    busy.write(CLIENT);
    let handle = busy.handles[CLIENT].expect("connected");
    let profile = |busy: &mut Busy| {
        busy.world
            .connection(CLIENT, handle)
            .and_then(|c| c.profile(uts_engine::Direction::Out))
            .expect("open")
    };
    let none = profile(&mut busy).with_named(Function::Rate, "none").expect("in the library");
    let now = busy.world.now();
    let connection = busy.world.connection(CLIENT, handle).expect("open");
    connection.request_profile(now, uts_engine::Direction::Out, none).expect("asked");
    let mut requirements = config(&["maxSendRate=2Mbit/s", "uts.adapt=off"]).requirements;
    requirements.adapt = false;
    connection.set_requirements(now, requirements).expect("no contradiction");
    busy.run(Time::from_millis(3_000));
    let (rate, _) = busy.rates(CLIENT, 5);
    println!("{} {rate}", profile(&mut busy));
    assert!(is_near(rate, 2e6), "{rate}");
}

#[test]
fn receiving_keeps_the_rate() {
    for path in [
        "rate=50mbit delay=10ms buffer=200p",
        "rate=50mbit delay=100ms buffer=2000p",
        "rate=50mbit delay=10ms buffer=200p loss=0.01",
    ] {
        for megabits in [0.2, 2.0, 10.0] {
            for flows in [1, 10] {
                for node in [CLIENT, SERVER] {
                    let own = [&*format!("maxRecvRate={megabits}Mbit/s")];
                    // The other end is the one that sends.
                    let (client, server) =
                        if node == CLIENT { (&own[..], &[][..]) } else { (&[][..], &own[..]) };
                    let mut sends = [0, 0];
                    sends[1 - node] = flows;
                    let mut busy = Busy::new(path, client, server, sends);
                    busy.run(Time::from_millis(200));
                    busy.write(1 - node);
                    busy.run(Time::from_millis(3_000));
                    let (_, rate) = busy.rates(1 - node, 10);
                    println!("{path} {megabits}, {flows} flows to {node}: {rate:.0} bit/s");
                    let all = 8.0 * busy.read[node] as f64 / 13.0;
                    assert!(all < 1.05e6 * megabits, "{path} {megabits}: {all} from the beginning");
                    assert!(is_near(rate, 1e6 * megabits), "{path} {megabits} {flows} to {node}: {rate}");
                }
            }
        }
    }
}

#[test]
fn a_rate_of_receiving_can_change_at_any_time() {
    let mut busy = Busy::new("rate=20mbit delay=20ms buffer=200p", &[], &[], [3, 0]);
    busy.run(Time::from_millis(500));
    busy.write(SERVER);
    busy.run(Time::from_millis(3_000));
    let handle = busy.handles[CLIENT].expect("connected");
    for (property, wanted) in [("4Mbit/s", 4e6), ("1Mbit/s", 1e6), ("unlimited", 19e6), ("2Mbit/s", 2e6)] {
        let requirements = config(&[&*format!("maxRecvRate={property}")]).requirements;
        let now = busy.world.now();
        busy.world
            .connection(CLIENT, handle)
            .expect("open")
            .set_requirements(now, requirements)
            .expect("set");
        // What was granted before is still sent.
        let until = busy.world.now() + Duration::from_secs(60);
        busy.run(until);
        let (_, rate) = busy.rates(SERVER, 10);
        println!("{property}: {rate:.0}");
        assert!(is_near(rate, wanted), "{property}: {rate}");
    }
}

#[test]
fn an_idle_connection_with_a_rate_does_nothing() {
    let mut busy = Busy::new("rate=20mbit delay=20ms buffer=200p", &["maxRecvRate=1Mbit/s"], &[], [0, 0]);
    busy.run(Time::from_millis(500));
    let handle = busy.handles[SERVER].expect("accepted");
    let now = busy.world.now();
    let connection = busy.world.connection(SERVER, handle).expect("open");
    let flow = connection.open_flow(FlowOptions::default()).expect("opened");
    connection.write(now, flow, vec![7; 100_000].into()).expect("written");
    busy.run(Time::from_millis(5_000));
    assert_eq!(busy.read[CLIENT], 100_000);
    let before = busy.world.packets();
    busy.run(Time::from_millis(25_000));
    // Questions whether the other is there.
    assert!(busy.world.packets() - before <= 20, "{}", busy.world.packets() - before);
}

#[test]
fn where_nothing_is_granted_the_application_is_told_that_the_rate_has_no_effect() {
    for (properties, wanted) in [
        (&["maxRecvRate=1Mbit/s"][..], &[][..]),
        (&["maxRecvRate=1Mbit/s", "uts.profile.flow=none"], &[(CLIENT, "maxRecvRate")]),
    ] {
        let server = &["uts.consent=all"];
        let mut busy = Busy::new("rate=20mbit delay=20ms buffer=200p", properties, server, [1, 1]);
        busy.run(Time::from_millis(2_000));
        assert_eq!(busy.without_effect, wanted, "{properties:?}");
    }
}

/// Each new flow has a first credit; many short ones are held back by how many may be opened.
#[test]
fn many_short_flows_keep_the_rate_of_receiving() {
    for bytes in [100, 2_000, 20_000] {
        let mut busy = Busy::new("rate=50mbit delay=10ms buffer=200p", &["maxRecvRate=2Mbit/s"], &[], [0, 0]);
        busy.run(Time::from_millis(500));
        let handle = busy.handles[SERVER].expect("accepted");
        let (until, mut received) = (busy.world.now() + Duration::from_secs(20), 0);
        while busy.world.now() < until {
            let now = busy.world.now();
            let server = busy.world.connection(SERVER, handle).expect("open");
            while let Ok(flow) = server.open_flow(FlowOptions::default()) {
                server.write(now, flow, vec![7; bytes].into()).expect("written");
                server.finish(flow);
                server.stop(flow, 0);
            }
            // That more may be opened is told by no event.
            let Some(happening) = busy.world.next(now + Duration::from_millis(5)) else { continue };
            if let (CLIENT, Event::Readable(flow)) = (happening.node, happening.event) {
                let now = busy.world.now();
                let client = busy.world.connection(CLIENT, happening.connection).expect("open");
                while let Ok(read) = client.read(now, flow, 1 << 20) {
                    match read {
                        Read::Bytes(_, data) | Read::Message(data) | Read::Damaged { message: data, .. } => {
                            received += data.len()
                        }
                        Read::End => client.finish(flow),
                        other => panic!("{other:?}"),
                    }
                }
            }
        }
        let rate = 8.0 * received as f64 / 20.0;
        println!("flows of {bytes} bytes: {rate:.0} bit/s");
        assert!(rate < 1.1 * 2e6, "{bytes}: {rate}");
        assert!(rate > 0.9 * 2e6 || bytes == 100, "{bytes}: {rate}");
    }
}
