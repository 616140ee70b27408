//! The recording on the first screen of README: a session in a real terminal, while the network
//! below it changes. `scripts/record-session` keeps what this test has seen.

use super::attach::Terminal;
use super::{World, processes, run};
use crate::common::far::{Far, THERE};
use crate::common::{PATIENCE, in_own_namespace};
use std::fmt::Write as _;
use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::process::Command;
use std::time::{Duration, Instant};

/// The terminal, and lines below it, which say what was done and what the session was.
const ROWS: u16 = 6;
const COLUMNS: u16 = 90;
const BELOW: usize = 13;

/// Measures of the picture, in pixels: a character, a line, and what is around.
const WIDTH: f64 = 8.43;
const HEIGHT: usize = 19;
const MARGIN: usize = 14;

/// Lines as they were seen, from the start on.
struct Recording {
    began: Instant,
    /// For each line: texts, and when each was first seen.
    lines: Vec<Vec<(Duration, String)>>,
}

impl Recording {
    fn new() -> Recording {
        let lines = vec![Vec::new(); usize::from(ROWS) + BELOW];
        Recording { began: Instant::now(), lines }
    }

    fn see(&mut self, line: usize, text: &str) {
        let now = self.began.elapsed();
        let (seen, text) = (&mut self.lines[line], text.trim_end());
        if seen.last().map_or("", |(_, last)| last.as_str()) != text {
            seen.push((now, text.to_owned()));
        }
    }

    /// Watches a terminal for a while.
    fn watch(&mut self, terminal: &Terminal, lasting: Duration) {
        let until = Instant::now() + lasting;
        while Instant::now() < until {
            let shown = terminal.rows();
            shown.iter().enumerate().for_each(|(line, text)| self.see(line, text));
            std::thread::sleep(Duration::from_millis(50));
        }
    }

    /// A picture that moves as it was seen, and begins again. Where pictures do not move it is the
    /// end.
    fn svg(&self) -> String {
        let lasted = self.began.elapsed().as_secs_f64() + 4.0;
        let (width, height) = (f64::from(COLUMNS) * WIDTH, self.lines.len() * HEIGHT);
        let (width, height) = (width.ceil() as usize + 2 * MARGIN, height + 3 * MARGIN);
        let (mut styles, mut texts) = (String::new(), String::new());
        let escaped = |text: &str| text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;");
        for (line, seen) in self.lines.iter().enumerate() {
            let is_below = line >= usize::from(ROWS);
            let y = MARGIN + (line + 1) * HEIGHT - 5 + if is_below { MARGIN } else { 0 };
            let class = if is_below && line % 2 == usize::from(ROWS) % 2 { "done" } else { "shown" };
            for (n, (from, text)) in seen.iter().enumerate().filter(|(_, (_, text))| !text.is_empty()) {
                let from = from.as_secs_f64() / lasted * 100.0;
                let to = seen.get(n + 1).map(|(to, _)| to.as_secs_f64() / lasted * 100.0);
                let name = format!("l{line}n{n}");
                let hides = to.map_or_else(String::new, |to| format!("{to:.2}%{{opacity:0}}"));
                let stays = if to.is_some() { 0 } else { 1 };
                let _ = writeln!(
                    styles,
                    "@keyframes {name}{{0%{{opacity:0}}{from:.2}%{{opacity:1}}{hides}100%{{opacity:{stays}}}}}\n\
                     .{name}{{opacity:{stays};animation:{name} {lasted:.1}s step-end infinite}}"
                );
                let _ = writeln!(
                    texts,
                    "<text class=\"{class} {name}\" x=\"{MARGIN}\" y=\"{y}\">{}</text>",
                    escaped(text)
                );
            }
        }
        let rule = MARGIN + usize::from(ROWS) * HEIGHT + MARGIN / 2;
        format!(
            "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {width} {height}\" width=\"{width}\" \
             height=\"{height}\">\n<title>A session of uts ssh while the network changes</title>\n<style>\n\
             text{{font:14px ui-monospace,SFMono-Regular,Menlo,Consolas,monospace;white-space:pre;fill:#d7dce2}}\n\
             .done{{fill:#7fc8ff}}\n{styles}</style>\n<rect width=\"100%\" height=\"100%\" rx=\"8\" \
             fill=\"#14181d\"/>\n<path d=\"M0 {rule}H{width}\" stroke=\"#39424d\"/>\n{texts}</svg>\n"
        )
    }
}

/// A move of the network: its name, for how long it is watched at least, the way that the session
/// goes then, and the move itself.
type Move<'a> = (&'a str, f64, Option<&'a str>, &'a dyn Fn());

/// A laptop with a session, a number each second there, and everything that is done to it. No
/// number is missing, and each is there once.
#[test]
fn a_session_is_recorded_while_the_network_changes() {
    if !in_own_namespace("-mn", module_path!(), "a_session_is_recorded_while_the_network_changes") {
        return;
    }
    let far = Far::new();
    let within = far.within();
    let by: Vec<&str> = within.split(' ').collect();
    let plain = [("PrintMotd", "no"), ("PrintLastLog", "no")];
    let Some(world) = World::at(THERE, &by, true, &plain) else { return };
    // What is typed is what people type: ssh finds its settings by itself.
    let ssh = world
        .place
        .write("near/ssh", format!("#!/bin/sh\nexec /usr/bin/ssh -F '{}' \"$@\"\n", world.config).as_bytes());
    fs::set_permissions(&ssh, fs::Permissions::from_mode(0o755)).expect("set");
    symlink(env!("CARGO_BIN_EXE_uts"), world.place.path("near/uts")).expect("linked");
    world.place.write("far/.bash_profile", b"PS1='there$ '; unset PROMPT_COMMAND\n");
    let mut shell = world.here("bash", &["--norc", "--noprofile", "-i"]);
    shell.env("PS1", "laptop$ ");
    let terminal = Terminal::of_size(&shell, (ROWS, COLUMNS));
    terminal.await_shown("laptop$");
    let mut recording = Recording::new();
    let pause = |recording: &mut Recording, s: f64| recording.watch(&terminal, Duration::from_secs_f64(s));
    let mut line = usize::from(ROWS);
    pause(&mut recording, 1.0);
    let typed = |recording: &mut Recording, text: &str| {
        for letter in text.chars() {
            terminal.type_in(&letter.to_string());
            pause(recording, 0.06);
        }
        terminal.type_in("\n");
    };
    typed(&mut recording, "uts ssh there");
    terminal.await_shown("there$");
    pause(&mut recording, 1.0);
    typed(&mut recording, "for i in {1..60}; do sleep 1; printf \"$i \"; done");
    pause(&mut recording, 4.0);
    let kept = || processes("ssh-keep", &world.place.path("home"));
    let signal = |signal: &str| {
        assert!(Command::new("kill").arg(signal).args(kept()).status().expect("run").success());
    };
    let moves: [Move<'_>; 6] = [
        ("the laptop goes to another network", 5.0, Some("UDP"), &|| far.falls_silent()),
        ("its address changes", 5.0, Some("UDP"), &|| far.changes_address()),
        ("UDP is blocked", 5.0, Some("TCP"), &|| far.swallows("udp")),
        ("UDP works again", 5.0, Some("UDP"), &|| far.lets_through("udp")),
        ("the laptop sleeps", 6.0, None, &|| signal("-STOP")),
        ("it wakes up", 4.0, Some("UDP"), &|| signal("-CONT")),
    ];
    for (what, lasting, way, done) in moves {
        let at = recording.began.elapsed().as_secs();
        recording.see(line, &format!("{at:>3} s  {what}"));
        done();
        pause(&mut recording, lasting);
        let deadline = Instant::now() + PATIENCE;
        while let Some(way) = way {
            // As its user sees it.
            let listed = run(world.here(env!("CARGO_BIN_EXE_uts"), &["ssh", "--list"]));
            let said = listed.out.first().and_then(|said| said.split_once("since "));
            let said = said.and_then(|(_, said)| said.split_once("; ")).map_or("", |(_, said)| said);
            if said.starts_with(way) {
                let said = said.split("; keys").next().unwrap_or_default();
                recording.see(line + 1, &format!("       uts ssh --list: {said}"));
                break;
            }
            assert!(Instant::now() < deadline, "{what}: {:?} {}", listed.out, listed.err);
            pause(&mut recording, 0.5);
        }
        line += 2;
    }
    terminal.type_in("\x03");
    pause(&mut recording, 1.0);
    let shown = terminal.rows().join(" ");
    let numbers: Vec<u32> = shown.split(' ').filter_map(|word| word.parse().ok()).collect();
    assert!(numbers.len() > 10 && numbers.iter().copied().eq(1..=numbers.len() as u32), "{shown}");
    let svg = recording.svg();
    for (what, ..) in moves {
        assert!(svg.contains(what), "{what}");
    }
    let to = std::env::var_os("UTS_RECORDING").map(Into::into);
    fs::write(to.unwrap_or_else(|| world.place.path("session.svg")), svg).expect("written");
    drop(terminal);
    world.await_no_servers();
}
