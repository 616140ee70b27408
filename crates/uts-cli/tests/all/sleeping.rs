//! Programs that are stopped for longer than they keep silent peers, as a laptop is that is closed
//! or a virtual machine: nothing is lost where both ends go on. Days are in virtual time
//! (`uts-sim`, `sleep.rs`).

use crate::common::tunnel::{Tunnel, echo, serve};
use crate::common::{PATIENCE, Place, Running};
use rustix::process::Signal;
use std::io::{Read, Write};
use std::time::{Duration, Instant};

/// For so long silent peers are kept here, and for so long programs are stopped.
const SILENCE: &str = "3s";
const STOPPED: Duration = Duration::from_secs(8);

fn stop(programs: &[&Running]) {
    programs.iter().for_each(|program| program.signal(Signal::STOP));
    std::thread::sleep(STOPPED);
    programs.iter().for_each(|program| program.signal(Signal::CONT));
}

#[test]
fn a_tunnel_goes_on_where_both_ends_were_stopped() {
    let place = Place::new();
    let service = echo();
    let server = serve(&place, &["--forward", &service.to_string(), "--silence", SILENCE]);
    let forward = format!("0:{service}");
    let tunnel = Tunnel::start(&place, "home", &server, &["-L", &forward, "--silence", SILENCE]);
    let mut streams = [tunnel.connect(0), tunnel.connect(0)];
    for round in 0..2_u8 {
        for stream in &mut streams {
            stream.write_all(&[round; 5000]).expect("written");
            let mut back = [0; 5000];
            stream.read_exact(&mut back).expect("the stream goes on");
            assert_eq!(back, [round; 5000]);
        }
        // What is quiet for longer than silence is kept as well: its peer answers.
        if round == 0 {
            std::thread::sleep(STOPPED / 2);
            stop(&[&tunnel.running, &server.running]);
        }
    }
    let said = tunnel.end();
    assert!(!said.contains("lost"), "{said}");
}

#[test]
fn a_stopped_server_is_waited_for_and_one_that_is_gone_is_given_up() {
    for (silence, goes_on) in [("7d", true), (SILENCE, false)] {
        let place = Place::new();
        let service = echo();
        let server = serve(&place, &["--forward", &service.to_string()]);
        let forward = format!("0:{service}");
        let tunnel = Tunnel::start(&place, "home", &server, &["-L", &forward, "--silence", silence]);
        let mut stream = tunnel.connect(0);
        stream.write_all(b"a").expect("written");
        stream.read_exact(&mut [0]).expect("answered");
        server.running.signal(Signal::STOP);
        stream.write_all(b"b").expect("written");
        let begun = Instant::now();
        if goes_on {
            std::thread::sleep(STOPPED);
            server.running.signal(Signal::CONT);
            stream.read_exact(&mut [0]).expect("answered");
        } else {
            let ended = stream.read(&mut [0]);
            assert!(!matches!(ended, Ok(1)) && begun.elapsed() < PATIENCE, "{ended:?}");
            server.running.signal(Signal::CONT);
        }
    }
}
