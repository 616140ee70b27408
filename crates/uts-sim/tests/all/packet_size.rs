//! A path that carries smaller packets than it did.

use core::time::Duration;
use uts_engine::{ConnectionConfig, Event, FlowOptions, Read};
use uts_functions::Time;
use uts_path::{PathConfig, Target};
use uts_sim::identity::Identities;
use uts_sim::transfer::{Transfers, checksum};
use uts_sim::world::SERVER;
use uts_sim::{World, WorldConfig};

const CLIENT: usize = 1;
/// IP and UDP, in the path's bytes.
const OVERHEAD: u64 = 28;

/// A path that carries 1500 bytes, and after the first second this many. Then `bytes` are written
/// at once, and on another flow a few every `chatter`. Returns how long it took until the first had
/// arrived, and the packet size at the end.
fn write(mtu: u64, bytes: u64, chatter: Duration, properties: &[&str]) -> (Duration, u64) {
    let path = format!("rate=20mbit delay=20ms buffer=64p overhead={OVERHEAD} mtu=1500");
    let path = PathConfig::both(path.parse().expect("a valid path"));
    let config = WorldConfig { path, ..WorldConfig::default() };
    let mut world = World::new(config, Identities::new().expect("keys")).expect("a valid world");
    let mut config = ConnectionConfig::default();
    for property in properties {
        config.requirements.assign(property).expect("a valid property");
    }
    let handle = world.connect(CLIENT, config).expect("begun");
    // The size is looked for once some data were sent.
    world.run_until(Time::from_millis(500));
    let connection = world.connection(CLIENT, handle).expect("open");
    let first = connection.open_flow(FlowOptions::default()).expect("opened");
    connection.write(Time::from_millis(500), first, vec![7; 60_000].into()).expect("written");
    let begin = Time::from_millis(1_000);
    world.run_until(begin);
    world.set_path(Target::Both, &format!("mtu={mtu}")).expect("a valid change");
    let connection = world.connection(CLIENT, handle).expect("open");
    assert_eq!(connection.facts().mtu_bytes, 1500 - OVERHEAD);
    let [large, small] = [(); 2].map(|()| connection.open_flow(FlowOptions::default()).expect("opened"));
    let written = connection.write(begin, large, vec![7; bytes as usize].into()).expect("written");
    assert_eq!(written as u64, bytes);
    let (mut tick, mut arrived) = (begin, 0);
    while arrived < bytes {
        let now = world.now();
        let size = world.connection(CLIENT, handle).expect("open").facts().mtu_bytes;
        assert!(now < Time::from_millis(20_000), "{mtu}, {chatter:?}: {arrived} of {bytes} by {size}");
        let Some(happening) = world.next(tick) else {
            let connection = world.connection(CLIENT, handle).expect("open");
            connection.write(now, small, b"still here".as_slice().into()).expect("written");
            tick = now + chatter;
            continue;
        };
        if let (SERVER, Event::Readable(flow)) = (happening.node, happening.event) {
            let now = world.now();
            let connection = world.connection(SERVER, happening.connection).expect("open");
            while let Ok(Read::Bytes(_, data)) = connection.read(now, flow, 1 << 16) {
                arrived += if flow == large { data.len() as u64 } else { 0 };
            }
        }
    }
    let took = world.now().since(begin);
    world.run_for(Duration::from_secs(10));
    (took, world.connection(CLIENT, handle).expect("open").facts().mtu_bytes)
}

/// Small packets still arrive, so that there are never several time-outs in a row.
/// An end that asks for less than every end takes gets that.
#[test]
fn an_end_that_wants_only_small_packets_is_understood() {
    let path = PathConfig::both("rate=20mbit delay=20ms".parse().expect("a valid path"));
    let config = WorldConfig { path, ..WorldConfig::default() };
    for most in [0, 600, 1199] {
        let mut world = World::new(config.clone(), Identities::new().expect("keys")).expect("a valid world");
        let client = ConnectionConfig { packet_bytes_max: most, ..ConnectionConfig::default() };
        let mut transfers = Transfers::start(&mut world, &[(CLIENT, client)], 200_000);
        assert!(transfers.run(&mut world, Time::from_millis(20_000)), "{most}: {:?}", transfers.progress);
        let progress = &transfers.progress[&CLIENT];
        assert_eq!((progress.closed.clone(), progress.checksum), (None, checksum(200_000)), "{most}");
        let handle = progress.connection;
        let size = world.connection(CLIENT, handle).expect("open").facts().mtu_bytes;
        assert_eq!(size, most.max(548) as u64, "it sends none that are larger");
    }
}

#[test]
fn packets_that_no_longer_pass_become_smaller_whatever_else_arrives() {
    for chatter in [10_000, 100, 20, 3] {
        let chatter = Duration::from_millis(chatter);
        for properties in [&[][..], &["uts.adapt=off", "uts.profile.retransmission=go-back-n"]] {
            for bytes in [1_400, 12_000, 60_000] {
                let (took, size) = write(1400, bytes, chatter, properties);
                println!("{chatter:?} {properties:?} {bytes}: {took:?}, {size}");
                assert!(took < Duration::from_secs(2), "{chatter:?}, {bytes}: {took:?}");
                assert!((1300..=1400 - OVERHEAD).contains(&size), "{chatter:?}, {bytes}: {size}");
            }
        }
    }
}

/// The receiver asks again and again for what is too large to pass, and redundancy goes with each
/// repeat: none of that puts the time-out off.
#[test]
fn packets_that_no_longer_pass_become_smaller_whatever_the_receiver_asks_for() {
    let nak = [
        "uts.adapt=off",
        "uts.profile.retransmission=nak",
        "congestionControl=avoid",
        "uts.profile.congestion=none",
    ];
    let redundancy = ["none", "sliding-window(window=29,flush=91)", "xor", "reed-solomon"];
    for (fec, mtu) in redundancy.into_iter().flat_map(|fec| [(fec, 1400), (fec, 848)]) {
        let fec_of = format!("uts.profile.fec={fec}");
        let properties: Vec<&str> = nak.into_iter().chain([fec_of.as_str()]).collect();
        for chatter in [10_000, 100] {
            let (took, size) = write(mtu, 60_000, Duration::from_millis(chatter), &properties);
            println!("{fec}, {mtu}, {chatter} ms: {took:?}, {size}");
            assert!(took < Duration::from_secs(10), "{fec}, {mtu}, {chatter} ms: {took:?}");
            assert!((mtu - 100..=mtu - OVERHEAD).contains(&size), "{fec}, {mtu}, {chatter} ms: {size}");
        }
    }
}
