//! Properties that messages ask for one by one: how much of them has to arrive undamaged, and which
//! keep their order. End to end, in virtual time.

use crate::one_client::{CLIENT, OneClient, SERVER, message, with};
use bytes::Bytes;
use core::time::Duration;
use std::collections::BTreeMap;
use uts_engine::{ConnectionConfig, Direction, Event, FlowId, FlowOptions, MessageOptions, Read, Stats};
use uts_functions::Function;

/// A client that sends messages to a server.
struct Transfer {
    ends: OneClient,
    flow: FlowId,
    read: Vec<Read>,
}

fn config(properties: &[&str]) -> ConnectionConfig {
    let config = ConnectionConfig { send_buffer_bytes: 8 << 20, ..ConnectionConfig::default() };
    with(config, properties, &["uts.adapt=off", "preserveMsgBoundaries=require"])
}

impl Transfer {
    /// Agrees on a clean path what the client asks for; then the path is this one.
    fn new(path: &str, client: &[&str], server: &[&str], seed: u64) -> Self {
        let ends = OneClient::connected("rate=20mbit delay=20ms", config(client), config(server), seed);
        let mut transfer = Transfer { ends, flow: FlowId(0), read: Vec::new() };
        transfer.ends.set_path(path);
        transfer.flow = transfer.ends.at(CLIENT).open_flow(FlowOptions::default()).expect("a flow");
        transfer
    }

    fn mechanism(&mut self, function: Function) -> &'static str {
        self.ends.at(CLIENT).profile(Direction::Out).expect("connected").name(function)
    }

    fn stats(&mut self) -> [Stats; 2] {
        [SERVER, CLIENT].map(|node| self.ends.at(node).stats())
    }

    fn send(&mut self, message: Bytes, options: MessageOptions) {
        let (now, flow) = (self.ends.world.now(), self.flow);
        self.ends.at(CLIENT).send_message(now, flow, message, options).expect("room");
    }

    /// Goes on until so many messages were read.
    fn pass_until(&mut self, duration: Duration, messages: usize) {
        let until = self.ends.world.now() + duration;
        while self.read.len() < messages
            && let Some(happening) = self.ends.next(until)
        {
            match happening.event {
                Event::Readable(flow) if happening.node == SERVER => {
                    let now = self.ends.world.now();
                    while let Ok(read) = self.ends.at(SERVER).read(now, flow, 1 << 20) {
                        self.read.push(read);
                    }
                }
                Event::Closed(reason) => panic!("at {}: {reason}", happening.node),
                _ => {}
            }
        }
    }

    fn pass(&mut self, duration: Duration) {
        self.pass_until(duration, usize::MAX);
    }
}

const OPEN: [&str; 3] =
    ["uts.security=unprotected", "fullChecksumSend=no-preference", "fullChecksumRecv=no-preference"];

/// A path that turns a bit of every fifth packet.
const NOISY: &str = "rate=20mbit delay=20ms corrupt=0.2";

/// Sends 400 messages of 1000 bytes (some of 5000), of which the first 100 have to be right; says
/// how many came damaged.
fn noisy(client: &[&str], server: &[&str], options: MessageOptions, seed: u64) -> (usize, [Stats; 2]) {
    const COUNT: u32 = 400;
    let mut transfer =
        Transfer::new(NOISY, &[&OPEN[..], client].concat(), &[&OPEN[..], server].concat(), seed);
    let len = |number: u32| if number % 10 == 3 { 5000 } else { 1000 };
    for number in 0..COUNT {
        transfer.send(message(number, len(number)), options);
    }
    transfer.pass_until(Duration::from_secs(120), COUNT as usize);
    let mut damaged = 0;
    for (number, read) in (0..).zip(&transfer.read) {
        let sent = message(number, len(number));
        match read {
            Read::Message(message) => assert_eq!(message, &sent, "seed {seed}: {number}"),
            Read::Damaged { message, right_bytes } => {
                let right = *right_bytes as usize;
                assert_eq!((message.len(), &message[..right]), (sent.len(), &sent[..right]), "{number}");
                assert!(right >= 100 && message != &sent, "seed {seed}: {number} right up to {right}");
                damaged += 1;
            }
            other => panic!("{other:?}"),
        }
    }
    assert_eq!(transfer.read.len(), COUNT as usize, "seed {seed}: all arrive, once, in order");
    (damaged, transfer.stats())
}

/// RFC 9622's example: a voice that is still worth hearing.
#[test]
fn a_damaged_end_is_delivered_and_said_to_be_damaged() {
    let asked = ["msgChecksumLen=100"];
    for seed in 0..5 {
        let (damaged, [server, client]) = noisy(&asked, &["recvChecksumLen=50"], Default::default(), seed);
        println!("seed {seed}: {damaged} of 400 damaged, {} packets repeated", client.chunks_repeated);
        assert!(damaged > 20, "seed {seed}: {damaged}");
        assert!(server.packets_damaged >= damaged as u64);
    }
}

/// An application that has not said that damage is bearable gets no damaged data: it is repeated.
#[test]
fn nothing_damaged_is_handed_over_unasked() {
    let asked = ["msgChecksumLen=100"];
    let (damaged, [server, _]) = noisy(&asked, &[], MessageOptions::default(), 1);
    assert_eq!((damaged, server.packets_damaged), (0, 0), "the receiver does not want it");
    // What has to be right at the receiver is not covered by itself at the sender.
    let (damaged, _) = noisy(&asked, &["recvChecksumLen=1000000"], MessageOptions::default(), 1);
    assert_eq!(damaged, 0, "the receiver wants more of it");
    let all = MessageOptions { checksum_len: Some(MessageOptions::ALL), ..MessageOptions::default() };
    let (damaged, _) = noisy(&asked, &["recvChecksumLen=0"], all, 1);
    assert_eq!(damaged, 0, "the message says otherwise");
    let (damaged, _) = noisy(&["uts.profile.fec=xor"], &["recvChecksumLen=0"], MessageOptions::default(), 1);
    assert_eq!(damaged, 0, "the sender does not allow it");
}

#[test]
fn encryption_covers_messages_whole() {
    let asked = ["msgChecksumLen=0", "fullChecksumSend=no-preference"];
    let takes = ["recvChecksumLen=0", "fullChecksumRecv=no-preference"];
    let mut transfer = Transfer::new(NOISY, &asked, &takes, 3);
    assert_eq!(transfer.mechanism(Function::Detection), "none");
    for number in 0..100 {
        transfer.send(message(number, 1000), MessageOptions::default());
    }
    transfer.pass_until(Duration::from_secs(60), 100);
    let all = (0..100).map(|number| Read::Message(message(number, 1000)));
    assert!(all.eq(transfer.read.iter().cloned()));
}

/// Mean time of messages on a lossy path, if every tenth has the same key.
fn by_key(sequencing: &str, seed: u64) -> Duration {
    const COUNT: u32 = 600;
    let profile = format!("uts.profile.sequencing={sequencing}");
    let open = ["preserveOrder=no-preference", &profile];
    let mut transfer = Transfer::new("rate=20mbit delay=50ms loss=0.03", &open, &open, seed);
    assert_eq!(transfer.mechanism(Function::Sequencing), sequencing);
    let (mut sent, mut late) = (Vec::new(), Duration::ZERO);
    let (mut seen, mut last) = (0, BTreeMap::new());
    let mut arrive = |transfer: &Transfer, sent: &[uts_functions::Time], seen: &mut usize| {
        for read in &transfer.read[*seen..] {
            let Read::Message(data) = read else { panic!("{read:?}") };
            let number = u32::from_be_bytes([data[0], data[1], data[2], data[3]]);
            assert_eq!(data, &message(number, 1000));
            late += transfer.ends.world.now().since(sent[number as usize]);
            assert!(last.insert(number % 10, number) < Some(number), "seed {seed}: {number} overtook");
        }
        *seen = transfer.read.len();
    };
    for number in 0..COUNT {
        let options = MessageOptions { key: Some(number % 10), ..MessageOptions::default() };
        sent.push(transfer.ends.world.now());
        transfer.send(message(number, 1000), options);
        transfer.pass(Duration::from_millis(40));
        arrive(&transfer, &sent, &mut seen);
    }
    for _ in 0..5_000 {
        transfer.pass_until(Duration::from_millis(2), COUNT as usize);
        arrive(&transfer, &sent, &mut seen);
    }
    assert_eq!(seen, COUNT as usize, "seed {seed}: all arrive, once");
    late / COUNT
}

/// Under either mechanism each key keeps its order; where nothing else has to, less waits.
#[test]
fn keys_do_not_wait_for_each_other() {
    for seed in 0..3 {
        let (ordered, per_key) = (by_key("ordered", seed), by_key("per-key", seed));
        println!("seed {seed}: {ordered:?} in the order of all, {per_key:?} in that of each key");
        assert!(per_key < ordered, "seed {seed}: {per_key:?} per key, {ordered:?} in the order of all");
    }
}

/// Short messages that are much alike: a dictionary that both ends have takes most of each.
#[test]
fn a_shared_dictionary_shortens_messages() {
    use uts_functions::presentation::dictionary;
    let reading = |number: u32| {
        let value = number.wrapping_mul(2_654_435_761) % 1000;
        Bytes::from(format!(r#"{{"sensor":{},"temperature":{value},"unit":"celsius"}}"#, number % 50))
    };
    let samples: Vec<Bytes> = (1000..3000).map(reading).collect();
    let trained = dictionary::train(&samples, 4096).expect("enough samples");
    let number = dictionary::register(&trained).expect("a dictionary");
    let mut sent = Vec::new();
    for settings in ["none", "zstd", &format!("zstd(dictionary={number})")] {
        let profile = format!("uts.profile.presentation={settings}");
        let mut transfer = Transfer::new("rate=20mbit delay=20ms loss=0.02", &[&profile], &[], 1);
        assert_eq!(transfer.mechanism(Function::Presentation), settings.split('(').next().expect("a name"));
        (0..500).for_each(|number| transfer.send(reading(number), MessageOptions::default()));
        transfer.pass_until(Duration::from_secs(60), 500);
        assert!((0..500).map(|number| Read::Message(reading(number))).eq(transfer.read.iter().cloned()));
        let [_, client] = transfer.stats();
        sent.push(client.data_bytes_sent - client.bytes_repeated);
    }
    println!("{sent:?} bytes: as they are, compressed, with a dictionary");
    assert!(sent[2] * 2 < sent[0] && sent[2] * 2 < sent[1], "{sent:?}");
}
