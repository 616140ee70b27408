//! Standard input and output that another program has made non-blocking, that are full, or that
//! nobody reads.

use crate::common::tunnel::echo;
use crate::common::{Place, Server, pattern};
use rustix::fs::{OFlags, fcntl_getfl, fcntl_setfl};
use rustix::process::Signal;
use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};
use rustix::termios::{OptionalActions, tcgetattr, tcsetattr};
use std::fs::File;
use std::io::{Read, Write};
use std::net::TcpListener;
use std::os::fd::AsFd;
use std::process::{Child, Stdio};
use std::time::Duration;

fn server(place: &Place) -> Server {
    let service = format!("echo={}", echo());
    let args = ["serve", "--json", "--listen", "127.0.0.1:0", "--pipe", &service, "--anyone"];
    Place::served(place.start_as("server-home", &args))
}

fn pipe(place: &Place, server: &Server, input: impl Into<Stdio>, output: impl Into<Stdio>) -> Child {
    let args = ["pipe", "--quiet", "--pin", &server.fingerprint, &server.address, "echo"];
    let mut command = place.command("home", &args);
    command.stdin(input).stdout(output).stderr(Stdio::piped()).spawn().expect("started")
}

fn make_non_blocking(end: impl AsFd) {
    let flags = fcntl_getfl(&end).expect("flags");
    fcntl_setfl(&end, flags | OFlags::NONBLOCK).expect("set");
}

fn said(child: Child) -> (Option<i32>, String) {
    let ended = child.wait_with_output().expect("ended");
    (ended.status.code(), String::from_utf8_lossy(&ended.stderr).into_owned())
}

#[test]
fn a_pipe_carries_all_where_its_ends_do_not_block() {
    let (place, content) = (Place::new(), pattern(4 << 20));
    let server = server(&place);
    let (in_reader, mut in_writer) = std::io::pipe().expect("a pipe");
    let (mut out_reader, out_writer) = std::io::pipe().expect("a pipe");
    make_non_blocking(&in_reader);
    make_non_blocking(&out_writer);
    let child = pipe(&place, &server, in_reader, out_writer);
    let sent = content.clone();
    let writing = std::thread::spawn(move || {
        // Nothing is there at first, and then more than there is room for.
        std::thread::sleep(Duration::from_millis(500));
        in_writer.write_all(&sent).expect("written");
    });
    std::thread::sleep(Duration::from_millis(1500));
    let mut got = Vec::new();
    out_reader.read_to_end(&mut got).expect("read");
    assert_eq!(said(child), (Some(0), String::new()));
    assert!(got == content, "{} of {} bytes", got.len(), content.len());
    writing.join().expect("written");
}

#[test]
fn a_pipe_says_what_becomes_of_its_ends() {
    let (place, content) = (Place::new(), pattern(1 << 20));
    let server = server(&place);
    let input = || File::open(place.write("in", &content)).expect("opened");
    let full = File::options().write(true).open("/dev/full").expect("full(4)");
    let why = "uts: cannot write to standard output: no space left on device\n";
    assert_eq!(said(pipe(&place, &server, input(), full)), (Some(1), why.to_owned()));
    let (reader, writer) = std::io::pipe().expect("a pipe");
    drop(reader);
    assert_eq!(said(pipe(&place, &server, input(), writer)), (Some(141), String::new()));
    // A directory cannot be read.
    let directory = File::open(place.path(".")).expect("opened");
    let why = "uts: cannot read standard input: is a directory\n";
    assert_eq!(said(pipe(&place, &server, directory, Stdio::null())), (Some(1), why.to_owned()));
}

/// An input that gives these bytes and then an error (EIO): that of a terminal whose other end has
/// gone. They are as many as the input holds at once, and no ends of lines.
fn failing_input(content: &'static [u8]) -> File {
    let master = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY).expect("a terminal");
    grantpt(&master).and_then(|()| unlockpt(&master)).expect("its other end");
    let name = ptsname(&master, Vec::new()).expect("its name").into_string().expect("a path");
    let mut terminal = File::options().write(true).open(name).expect("its other end");
    let mut modes = tcgetattr(&terminal).expect("modes");
    modes.make_raw();
    tcsetattr(&terminal, OptionalActions::Now, &modes).expect("set");
    std::thread::spawn(move || terminal.write_all(content).expect("written"));
    File::from(master)
}

/// A service that keeps what comes until its connection ends, in order or not.
fn collector() -> (String, std::thread::JoinHandle<Vec<u8>>) {
    let listener = TcpListener::bind("127.0.0.1:0").expect("bound");
    let address = listener.local_addr().expect("an address").to_string();
    let kept = std::thread::spawn(move || {
        let (mut stream, _) = listener.accept().expect("connected");
        let (mut kept, mut piece) = (Vec::new(), [0; 4096]);
        while let Ok(bytes @ 1..) = stream.read(&mut piece) {
            kept.extend_from_slice(&piece[..bytes]);
        }
        kept
    });
    (address, kept)
}

#[test]
fn a_pipe_delivers_what_its_input_gave_before_an_error() {
    static CONTENT: [u8; 100_000] = [b'x'; 100_000];
    let place = Place::new();
    let (address, kept) = collector();
    let service = format!("echo={address}");
    let args = ["serve", "--json", "--listen", "127.0.0.1:0", "--pipe", &service, "--anyone"];
    let server = Place::served(place.start_as("server-home", &args));
    let ended = said(pipe(&place, &server, failing_input(&CONTENT), Stdio::null()));
    assert_eq!(ended, (Some(1), "uts: cannot read standard input: input/output error\n".to_owned()));
    let kept = kept.join().expect("kept");
    assert!(kept == CONTENT, "{} of {} bytes", kept.len(), CONTENT.len());
}

/// A copy to an output, whose options end with the place that is copied to.
fn cp_out(place: &Place, server: &Server, options: &[&str], output: impl Into<Stdio>) -> Child {
    let url = server.url("big");
    let (to, options) = options.split_last().expect("a place");
    let args = [&["cp", "--pin", &server.fingerprint][..], options, &[&url, to]].concat();
    let mut command = place.command("home", &args);
    command.stdin(Stdio::null()).stdout(output).stderr(Stdio::piped()).spawn().expect("started")
}

#[test]
fn a_copy_to_an_output_ends_as_cat_does() {
    let place = Place::new();
    place.write("srv/big", &pattern(4 << 20));
    let server = place.serve(&[]);
    for to in ["-", "/dev/stdout"] {
        let gone = || {
            let (reader, writer) = std::io::pipe().expect("a pipe");
            drop(reader);
            writer
        };
        assert_eq!(said(cp_out(&place, &server, &["-q", to], gone())), (Some(141), String::new()), "{to}");
        let (status, told) = said(cp_out(&place, &server, &[to], gone()));
        assert_eq!(status, Some(141), "{told}");
        assert!(!told.contains("uts:") && !told.contains("rror"), "{told}");
        // A reader that has enough, as head(1).
        let mut child = cp_out(&place, &server, &["-q", to], Stdio::piped());
        child.stdout.take().expect("piped").read_exact(&mut [0; 1000]).expect("read");
        assert_eq!(said(child), (Some(141), String::new()), "{to}");
        let full = File::options().write(true).open("/dev/full").expect("full(4)");
        let (status, told) = said(cp_out(&place, &server, &["-q", to], full));
        assert_eq!((status, told.lines().count()), (Some(1), 1), "{told}");
        assert!(told.contains("no space left on the d"), "{told}");
    }
}

/// Whoever ends it knows that.
#[test]
fn a_pipe_that_is_ended_says_nothing() {
    let place = Place::new();
    let server = server(&place);
    for with in [Signal::HUP, Signal::TERM] {
        let mut child = pipe(&place, &server, Stdio::piped(), Stdio::piped());
        let mut input = child.stdin.take().expect("piped");
        input.write_all(b"x").expect("written");
        child.stdout.as_mut().expect("piped").read_exact(&mut [0]).expect("read");
        crate::common::signal(&child, with);
        let ended = said(child);
        assert_eq!(ended, (Some(130), String::new()), "{with:?}");
    }
}

#[test]
fn what_is_quiet_says_nothing_when_a_signal_ends_it() {
    let place = Place::new();
    place.write("big", &pattern(8 << 20));
    let server = place.serve(&["--perf"]);
    // Nobody is there: it is ended while it connects.
    let silent = std::net::UdpSocket::bind("127.0.0.1:0").expect("bound");
    let nobody = silent.local_addr().expect("an address").to_string();
    let (pin, url, to_nobody) = (&server.fingerprint[..], server.url("big"), format!("uts://{nobody}/"));
    let commands: [&[&str]; 6] = [
        &["cp", "-q", "--property", "maxSendRate=8Mbit/s", "--pin", pin, "big", &url],
        &["perf", "-q", "--pin", pin, "-t", "1min", &server.address],
        &["cp", "-q", "--pin", pin, "big", &to_nobody],
        &["perf", "-q", "--pin", pin, &nobody],
        &["pipe", "-q", "--pin", pin, &nobody],
        &["tunnel", "-q", "--pin", pin, "-D", "0", &nobody],
    ];
    for (with, args) in
        [Signal::HUP, Signal::TERM].into_iter().flat_map(|with| commands.map(|args| (with, args)))
    {
        let mut command = place.command("home", args);
        let mut child = command
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()
            .expect("started");
        std::thread::sleep(Duration::from_secs(1));
        assert_eq!(child.try_wait().expect("a process"), None, "{args:?} has ended by itself");
        crate::common::signal(&child, with);
        assert_eq!(said(child), (Some(130), String::new()), "{with:?} {args:?}");
    }
}
