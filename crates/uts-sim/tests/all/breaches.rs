//! Breaches of rules by a peer that holds the keys, as `spec/vectors/breaches.json` has them: what
//! ends the connection, and what is without effect.

use crate::joined::{CLIENT, Pair, SERVER, address};
use serde::Deserialize;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use uts_engine::{CloseReason, Connection, EndpointConfig, Event};
use uts_wire::FrameIter;
use uts_wire::varint::put_varint;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    #[serde(rename = "about")]
    _about: String,
    vectors: Vec<Breach>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Breach {
    name: String,
    rule: String,
    /// The end that it is sent to.
    to: String,
    packets: Vec<String>,
    outcome: String,
}

fn spec(file: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../spec").join(file)
}

fn read(file: &str) -> String {
    let path = spec(file);
    std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

fn breaches() -> Vec<Breach> {
    let file: File = serde_json::from_str(&read("vectors/breaches.json")).expect("breaches");
    file.vectors
}

fn unhex(text: &str) -> Vec<u8> {
    let digit =
        |at: usize| u8::from_str_radix(text.get(at..at + 2).expect("a byte"), 16).expect("hexadecimal");
    (0..text.len()).step_by(2).map(digit).collect()
}

/// Fate of a connection if an end of it is sent these payloads; the server allows so many flows.
fn fate(to: usize, payloads: &[Vec<u8>], flows_max: u32) -> Option<CloseReason> {
    let mut config = EndpointConfig::default();
    config.accept.flows_max = flows_max;
    let mut pair = Pair::new(config);
    pair.settle(200);
    let server = pair.server.expect("connected");
    let handles = [pair.client, server];
    let received = |pair: &Pair| pair.ends[to].peek(handles[to]).map(|c| c.stats().packets_received);
    let before = received(&pair).expect("open");
    for payload in payloads {
        let now = pair.now;
        let sender = pair.ends[1 - to].connection(handles[1 - to]).expect("it is there");
        let packet = sender.packet_of(now, payload).expect("open");
        pair.inject(to, address(1 - to as u8), &packet);
    }
    let taken = received(&pair).map(|after| after - before);
    let is_open = pair.ends[to].peek(handles[to]).is_some_and(Connection::is_open);
    assert!(!is_open || taken == Some(payloads.len() as u64), "{taken:?} of {} packets", payloads.len());
    pair.events[to].iter().find_map(|event| match event {
        Event::Closed(reason) => Some(reason.clone()),
        _ => None,
    })
}

#[test]
fn each_breach_has_the_outcome_that_is_said() {
    let mut wrong = Vec::new();
    for breach in breaches() {
        let to = match breach.to.as_str() {
            "client" => CLIENT,
            "server" => SERVER,
            other => panic!("{}: to {other}", breach.name),
        };
        let payloads: Vec<Vec<u8>> = breach.packets.iter().map(|packet| unhex(packet)).collect();
        let fate = fate(to, &payloads, 100);
        let outcome = match &fate {
            None => "none",
            Some(CloseReason::Protocol(_)) => "end",
            Some(_) => "another end",
        };
        if outcome != breach.outcome {
            wrong.push(format!("{} ({}): {} is said, {fate:?}", breach.name, breach.rule, breach.outcome));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// flows.md F-4: the last flow below the bound, and the first at it.
#[test]
fn the_bound_counts_flows_and_not_ids() {
    for bound in [1, 2, 64, 100] {
        let data = |flow: u32| {
            let mut payload = vec![0x42];
            put_varint(&mut payload, u64::from(flow));
            payload.extend([0, b'a']);
            payload
        };
        assert_eq!(fate(SERVER, &[data(2 * bound - 2)], bound), None, "{bound} flows");
        let beyond = fate(SERVER, &[data(2 * bound)], bound);
        assert!(matches!(beyond, Some(CloseReason::Protocol(_))), "{bound} flows: {beyond:?}");
    }
}

/// Each rule that is named is one, on the page that is named.
#[test]
fn each_breach_names_a_rule() {
    for breach in breaches() {
        let (page, rule) = breach.rule.split_once(' ').expect("a page and a rule");
        assert!(read(page).contains(&format!("**{rule}**")), "{}: {} is no rule", breach.name, breach.rule);
    }
}

/// The rows of packets.md P-20 say of each frame whether it can end the connection, and so do the
/// breaches.
#[test]
fn the_page_and_the_breaches_agree_on_what_ends_a_connection() {
    /// These end a connection only under other profiles, or with another Hello.
    const ELSEWHERE: [&str; 2] = ["0x15", "0x1d"];
    /// Frames whose bytes alone can be wrong are in `frames.json`.
    const BYTES_ALONE: &str = "-";
    let mut ending: BTreeMap<u8, bool> = BTreeMap::new();
    for breach in breaches() {
        let payload = unhex(breach.packets.last().expect("a packet"));
        let can_be_read = FrameIter::new(&payload).all(|frame| frame.is_ok());
        *ending.entry(payload[0]).or_default() |= breach.outcome == "end" && can_be_read;
    }
    let text = read("packets.md");
    let rows = text.lines().skip_while(|line| !line.starts_with("| type | frame |")).skip(2);
    for row in rows.take_while(|line| line.starts_with('|')) {
        let cells: Vec<&str> = row.trim_matches('|').split('|').map(str::trim).collect();
        let (kind, name, ends) = (cells[0], cells[1], cells[3]);
        if name.starts_with("reserved") || ELSEWHERE.contains(&kind) || name == "Close" {
            continue;
        }
        let first = |kind: &str| u8::from_str_radix(&kind[2..4], 16).expect("a type");
        let last = kind.get(kind.len() - 2..).map_or(0, |last| u8::from_str_radix(last, 16).expect("a type"));
        let is_seen = (first(kind)..=last).any(|kind| ending.get(&kind).copied().unwrap_or(false));
        let is_said = ends != BYTES_ALONE;
        assert!(is_seen == is_said || name.starts_with("Data, presented"), "{kind} {name}: {ends}");
    }
}
