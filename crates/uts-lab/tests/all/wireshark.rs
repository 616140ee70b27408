//! The dissector for Wireshark, on captures of the simulator: what it shows, and that no datagram
//! breaks it.

use crate::skip;
use pcap_file::pcap::{PcapPacket, PcapReader, PcapWriter};
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::Command;

const EXPERIMENT: &str = r#"
title = "A path that goes bad"
question = "What is to be seen of the exchange?"
world = "sim"
timeout = "60s"
[path.p]
forward = "rate=20mbit delay=10ms buffer=64p"
schedule = "at=1s fwd loss=ge:0.05,4"
[workload.file]
kind = "bulk"
bytes = "12MB"
[transport.uts]
kind = "uts"
[record]
pcap = true
"#;

/// Runs tshark with the dissector over a capture; `None` if there is no tshark.
fn tshark(capture: &Path, arguments: &[&str]) -> Option<String> {
    let lua = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../packaging/wireshark/uts.lua");
    let mut command = Command::new("tshark");
    command.arg("-X").arg(format!("lua_script:{}", lua.display())).arg("-r").arg(capture).args(arguments);
    // It is not to read the settings of whoever runs the tests.
    command.env("HOME", capture.parent().expect("a directory")).env_remove("XDG_CONFIG_HOME");
    match command.output() {
        Err(_) => {
            skip::say("there is no tshark, which reads captures");
            None
        }
        Ok(output) => {
            let said = String::from_utf8_lossy(&output.stderr);
            assert!(output.status.success() && !said.contains("Lua"), "{said}");
            Some(String::from_utf8_lossy(&output.stdout).into_owned())
        }
    }
}

/// A run of the experiment: the capture at the client, and the lines of its exchanges.
fn captured(dir: &Path) -> (PathBuf, String) {
    fs::write(dir.join("e.toml"), EXPERIMENT).unwrap();
    let mut lab = Command::new(env!("CARGO_BIN_EXE_uts-lab"));
    let output = lab.args(["run", "e.toml", "--out", "out", "--quiet"]).current_dir(dir).output().unwrap();
    assert!(output.status.success(), "{output:?}");
    let run = fs::read_dir(dir.join("out/runs")).unwrap().next().unwrap().unwrap().path();
    let exchanges = fs::read_to_string(run.join("samples/exchanges.csv")).unwrap();
    (run.join("samples/client.pcap"), exchanges)
}

#[test]
fn an_exchange_is_seen_without_keys() {
    let dir = tempfile::tempdir().unwrap();
    let (capture, exchanges) = captured(dir.path());
    let in_force = exchanges.lines().filter(|line| line.contains(" in force after ")).count();
    assert!(in_force > 0, "{exchanges}");
    let columns = ["-T", "fields", "-e", "_ws.col.Protocol", "-e", "_ws.col.Info"];
    let Some(all) = tshark(&capture, &columns) else { return };
    let mut rows = all.lines();
    assert_eq!(rows.next(), Some("UTS\tInitial"));
    assert!(rows.next().is_some_and(|row| row.starts_with("UTS\tInitial + Handshake")), "{all:.200}");
    assert!(rows.clone().all(|row| row.starts_with("UTS\t")), "each datagram belongs to it");
    assert!(rows.any(|row| row == "UTS\tAdaptive (epoch 0)"));
    let seen = tshark(&capture, &["-Y", "utst.exchange", "-T", "fields", "-e", "utst.exchange"]).unwrap();
    assert!(seen.contains("epoch 2 takes the place of epoch 0"), "{seen}");
    assert!(seen.lines().count() >= in_force, "{seen}{exchanges}");
    assert_eq!(tshark(&capture, &["-Y", "utst.malformed"]).as_deref(), Some(""));
}

/// An IPv4 packet with this UDP payload, from the first one's ports.
fn datagram(like: &[u8], payload: &[u8]) -> Vec<u8> {
    let mut ip = [&like[..28], payload].concat();
    let bytes = ip.len() as u16;
    ip[2..4].copy_from_slice(&bytes.to_be_bytes());
    ip[24..26].copy_from_slice(&(bytes - 20).to_be_bytes());
    ip[26..28].copy_from_slice(&[0, 0]);
    ip
}

#[test]
fn no_datagram_breaks_the_dissector() {
    let dir = tempfile::tempdir().unwrap();
    let (capture, _) = captured(dir.path());
    let mut reader = PcapReader::new(File::open(&capture).unwrap()).unwrap();
    let header = reader.header();
    let mut first = Vec::new();
    while let Some(packet) = reader.next_packet()
        && first.len() < 4
    {
        first.push(packet.unwrap().data.into_owned());
    }
    let broken = dir.path().join("broken.pcap");
    let mut writer = PcapWriter::with_header(File::create(&broken).unwrap(), header).unwrap();
    let mut write = |payload: &[u8]| {
        let data = datagram(&first[0], payload);
        let packet = PcapPacket::new_owned(std::time::Duration::ZERO, data.len() as u32, data);
        writer.write_packet(&packet).unwrap();
    };
    // Each is cut at each length, and each of its first bytes takes each extreme.
    for whole in first.iter().map(|ip| &ip[28..]) {
        for cut in (0..whole.len().min(100)).chain([whole.len()]) {
            write(&whole[..cut]);
        }
        for at in 0..whole.len().min(40) {
            for value in [0, 1, 20, 0x40, 0x7f, 0x80, 0xbf, 0xff] {
                let mut changed = whole.to_vec();
                changed[at] = value;
                write(&changed);
            }
        }
    }
    let mut refusal = first[0][28..60].to_vec();
    refusal[1..5].fill(0);
    write(&refusal);
    drop(writer);
    let Some(shown) = tshark(&broken, &["-V", "-O", "utst"]) else { return };
    for wanted in ["Not as spec/packets.md says", "Version refusal", "Unknown version"] {
        assert!(shown.contains(wanted), "{wanted}");
    }
}
