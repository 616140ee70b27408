//! Fate of the program if nobody reads its output, or nothing takes it: no panic, no status 0.

use crate::common::{Ended, Place, Server, pattern};
use rustix::process::Signal;
use std::fs::File;
use std::io::{BufRead, BufReader, Read};
use std::process::{Child, Stdio};

/// The status that a shell shows of a program that SIGPIPE has ended.
const READER_GONE: i32 = 141;

/// Where an output goes.
#[derive(Clone, Copy, Debug, PartialEq)]
enum To {
    /// A pipe that nobody reads.
    Nobody,
    /// A device that is always full (full(4)).
    Full,
    /// The test.
    Test,
}

fn stdio(to: To) -> Stdio {
    match to {
        To::Nobody => {
            let (reader, writer) = std::io::pipe().expect("a pipe");
            drop(reader);
            Stdio::from(writer)
        }
        To::Full => Stdio::from(File::options().write(true).open("/dev/full").expect("full(4)")),
        To::Test => Stdio::piped(),
    }
}

fn text(from: Option<impl Read>) -> String {
    let mut text = String::new();
    if let Some(mut from) = from {
        from.read_to_string(&mut text).expect("text");
    }
    text
}

fn ended(mut child: Child) -> Ended {
    let (out, err) = (text(child.stdout.take()), text(child.stderr.take()));
    let status = child.wait().expect("ended").code().unwrap_or(-1);
    assert!(!format!("{out}{err}").contains("panicked"), "{out}{err}");
    Ended { status, out: out.lines().map(str::to_owned).collect(), err }
}

fn run(place: &Place, args: &[&str], out: To, err: To) -> Ended {
    let mut command = place.command("home", args);
    ended(command.stdin(Stdio::null()).stdout(stdio(out)).stderr(stdio(err)).spawn().expect("started"))
}

/// A copy whose reader goes away after a line.
fn cp_read_once(place: &Place, server: &Server, args: &[&str]) -> Ended {
    let mut command = place.command("home", &[&["cp", "--pin", &server.fingerprint], args].concat());
    let command = command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().expect("started");
    let mut line = String::new();
    BufReader::new(child.stdout.take().expect("piped")).read_line(&mut line).expect("a line");
    assert!(line.contains("\"start\""), "{line}");
    ended(child)
}

#[test]
fn what_only_prints_ends_quietly_with_its_reader_and_says_when_its_output_is_full() {
    let place = Place::new();
    place.run(&["keygen"]).ok();
    let commands: &[&[&str]] = &[
        &["explain"],
        &["explain", "--json"],
        &["keygen"],
        &["fingerprint"],
        &["--help"],
        &["cp", "-h"],
        &["--version"],
        &["help", "serve"],
    ];
    for args in commands {
        let gone = run(&place, args, To::Nobody, To::Test);
        assert_eq!(gone.status, READER_GONE, "{args:?}: {}", gone.err);
        assert!(!gone.err.contains("uts: "), "{args:?}: {}", gone.err);
        let full = run(&place, args, To::Full, To::Test);
        assert_eq!(full.status, 1, "{args:?}: {}", full.err);
        let told: Vec<&str> = full.err.lines().filter(|line| line.starts_with("uts: ")).collect();
        assert_eq!(told, ["uts: cannot write to standard output: no space left on device"], "{args:?}");
        // Where nothing can be told the status has to do.
        assert_eq!(run(&place, args, To::Full, To::Full).status, 1, "{args:?}");
        assert_eq!(run(&place, args, To::Full, To::Nobody).status, 1, "{args:?}");
    }
}

#[test]
fn an_error_that_cannot_be_told_has_its_status_nevertheless() {
    let place = Place::new();
    for to in [To::Nobody, To::Full] {
        for (args, status) in [
            (&["fingerprint", "missing"][..], 1),
            (&["cp"], 2),
            (&["cp", "a", "b"], 2),
            (&["serve", "--dir", "missing"], 1),
            (&[], 2),
        ] {
            assert_eq!(run(&place, args, To::Test, to).status, status, "{args:?} {to:?}");
            assert_eq!(run(&place, args, to, to).status, status, "{args:?} {to:?}");
        }
        // The fingerprint was printed, and where the key is was lost.
        let told = run(&place, &["keygen"], To::Test, to);
        assert_eq!(told.status, if to == To::Full { 1 } else { READER_GONE });
        assert!(told.out.concat().starts_with("SHA256:"), "{:?}", told.out);
    }
}

/// The user wants the files of a copy. It goes on without a reader, and its status says what was
/// lost.
#[test]
fn a_copy_goes_on_where_its_events_are_lost() {
    let place = Place::new();
    let content = pattern(2 << 20);
    let file = place.write("a", &content);
    let server = place.serve(&[]);
    // Slow enough that the reader is gone while it goes on.
    let slow = ["--json", "--property", "maxSendRate=16Mbit/s"];
    let gone = cp_read_once(&place, &server, &[&slow[..], &[&file, &server.url("b")]].concat());
    assert_eq!((gone.status, gone.err.as_str()), (READER_GONE, ""));
    assert!(place.read("srv/b") == content);
    // What failed is told where somebody may read it, once.
    let top = server.url("");
    let both = [&slow[..], &[&file, "missing", &top]].concat();
    let failed = cp_read_once(&place, &server, &both);
    assert_eq!(failed.status, 1, "{}", failed.err);
    assert_eq!(failed.err.lines().count(), 1, "{}", failed.err);
    assert!(failed.err.starts_with("uts: missing: no such file"), "{}", failed.err);
    assert!(place.read("srv/a") == content);

    let cp = |options: &[&str], to: &str, out: To, err: To| {
        let url = server.url(to);
        run(&place, &[&["cp", "--pin", &server.fingerprint], options, &[&file, &url]].concat(), out, err)
    };
    for (n, options) in [&["--json"][..], &[]].into_iter().enumerate() {
        let full = cp(options, &format!("full{n}"), To::Full, To::Test);
        assert_eq!(full.status, 1, "{options:?}: {}", full.err);
        let why = "uts: cannot write to standard output: no space left on device\n";
        assert_eq!(full.err.matches(why).count(), 1, "{options:?}: {}", full.err);
        let gone = cp(options, &format!("gone{n}"), To::Nobody, To::Test);
        assert_eq!(gone.status, READER_GONE, "{options:?}: {}", gone.err);
        assert!(
            place.read(&format!("srv/full{n}")) == content && place.read(&format!("srv/gone{n}")) == content
        );
    }
    assert_eq!(cp(&[], "c", To::Test, To::Full).status, 1);
    assert_eq!(cp(&[], "d", To::Test, To::Nobody).status, READER_GONE);
    // Nothing was to be said, so nothing was lost.
    assert_eq!(cp(&["--quiet"], "e", To::Full, To::Full).status, 0);
    for name in ["c", "d", "e"] {
        assert!(place.read(&format!("srv/{name}")) == content, "{name}");
    }
}

#[test]
fn a_trace_that_is_cut_short_is_told_with_its_name_and_the_copy_goes_on() {
    let place = Place::new();
    let file = place.write("a", b"content");
    let server = place.serve(&[]);
    let ended = place.cp(&server, &["--quiet", "--trace", "/dev/full", &file, &server.url("b")]);
    assert_eq!(ended.status, 1, "{}", ended.err);
    assert_eq!(ended.err, "uts: --trace /dev/full: no space left on device; the copy goes on without it\n");
    assert_eq!(place.read("srv/b"), b"content");
    let ended = place.cp(&server, &["--quiet", "--trace", "no/t", &file, &server.url("c")]);
    ended.failed(1, &["uts: --trace no/t: no such file or directory\n"]);
}

/// An error is a line: about what it is, in words, once.
#[test]
fn errors_name_what_they_are_about_and_show_no_types_of_a_program() {
    let place = Place::new();
    let file = place.write("a", b"content");
    let [mine, other] = ["mine", "other"].map(|name| place.run(&["keygen", name]).ok().out.remove(0));
    place.write("keys", format!("{mine}\n").as_bytes());
    let server = place.serve(&["--authorized-keys", "keys"]);
    let told = |args: &[&str], status: i32, parts: &[&str]| {
        // Beside it a copy tells to whom it is connected.
        let quiet = (args.first() == Some(&"cp") && !args.contains(&"--json")).then_some("--quiet");
        let ended = place.run(&args.iter().copied().chain(quiet).collect::<Vec<_>>()).failed(status, parts);
        assert_eq!(ended.err.lines().count(), 1, "{}", ended.err);
        assert!(ended.err.starts_with("uts: "), "{}", ended.err);
        let of_a_program = ["(code 0)", "Error", "Other(", "::", "{ ", "[src", "os error 2)"];
        assert!(of_a_program.iter().all(|part| !ended.err.contains(part)), "{}", ended.err);
    };
    let (pin, url, address) = (&server.fingerprint, server.url("a"), &server.address);
    let not_let_in = "it does not accept this end's key (it is not one of the keys that are let in)";
    told(&["cp", "--pin", pin, "--key", "other", &file, &url], 1, &[address, not_let_in, &other]);
    let unknown = ["cp", "--pin", pin, &file, &url];
    told(&unknown, 1, &[address, "a client key is required; this end has shown none"]);
    told(&["cp", &file, &url], 1, &[address, "not a known host"]);
    told(&["cp", "--pin", &mine, &file, &url], 1, &[address, "pinned"]);
    told(&["cp", "--key", "keys", "--pin", pin, &file, &url], 1, &["keys"]);
    told(&["cp", "--ca", "no/ca", &file, &url], 1, &["no/ca"]);
    told(&["cp", "--key", "mine", "--pin", pin, "missing", &url], 1, &["missing: no such file or directory"]);
    told(&["cp", "--pin", "x", &file, &url], 2, &["--pin", "`x`"]);
    told(&["cp", "--property", "minSendRate=fast", &file, &url], 2, &["minSendRate", "fast"]);
    told(&["serve", "--dir", "no"], 1, &["--dir no: no such file or directory"]);
    told(&["serve", "--dir", "srv", "--authorized-keys", "no"], 1, &["no", "authorized"]);
    told(&["serve", "--dir", "srv", "--key", "keys"], 1, &["keys"]);
    told(&["serve", "--dir", "srv", "--listen", address], 1, &[address]);
    told(&["fingerprint", "no"], 1, &["no"]);
    for (args, parts) in [
        (&["cp", "--bogus", "a", "b"][..], &["'--bogus'", "(see uts cp --help)"][..]),
        (&["sreve"], &["'sreve'", "tip: a similar subcommand exists: 'serve'"]),
        (&["serve"], &["--dir <DIR>", "(see uts serve --help)"]),
        (&["cp", "--json", "-q", "a", &url], &["--json", "--quiet"]),
        (&["cp"], &["a source and a destination are needed"]),
    ] {
        told(args, 2, parts);
    }
}

/// A server that is read by nobody serves on, and says at its end that something was lost.
#[test]
fn a_server_goes_on_where_its_events_are_lost() {
    let place = Place::new();
    place.write("srv/a", b"content");
    let pin = place.run_as("server-home", &["keygen"]).ok().out.remove(0);
    for (to, json, status) in [
        (To::Nobody, true, READER_GONE),
        (To::Full, true, 1),
        (To::Nobody, false, READER_GONE),
        (To::Full, false, 1),
    ] {
        let mut args = vec!["serve", "--dir", "srv", "--listen", "127.0.0.1:0"];
        args.extend(json.then_some("--json"));
        let mut command = place.command("server-home", &args);
        let (out, err) = if json { (to, To::Test) } else { (To::Test, to) };
        let command = command.stdin(Stdio::null()).stdout(stdio(out)).stderr(stdio(err));
        let child = command.spawn().expect("started");
        let port = place.listening_port_of(child.id());
        for n in 0..2 {
            let url = format!("uts://127.0.0.1:{port}/a");
            place.run(&["cp", "--quiet", "--pin", &pin, &url, &format!("got{n}")]).ok();
        }
        crate::common::signal(&child, Signal::TERM);
        let ended = ended(child);
        assert_eq!(ended.status, status, "{to:?} {json}: {}", ended.err);
        let told = ended.err.lines().filter(|line| line.starts_with("uts: cannot write to")).count();
        assert_eq!(told, usize::from(json && to == To::Full), "{}", ended.err);
    }
}
