//! Standard input and output that another program has made non-blocking, that are full, or that
//! nobody reads.

use crate::common::tunnel::echo;
use crate::common::{Place, Server, pattern};
use rustix::fs::{OFlags, fcntl_getfl, fcntl_setfl};
use std::fs::File;
use std::io::{Read, Write};
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

/// Whoever ends it knows that.
#[test]
fn a_pipe_that_is_ended_says_nothing() {
    let place = Place::new();
    let server = server(&place);
    for with in [rustix::process::Signal::HUP, rustix::process::Signal::TERM] {
        let mut child = pipe(&place, &server, Stdio::piped(), Stdio::piped());
        let mut input = child.stdin.take().expect("piped");
        input.write_all(b"x").expect("written");
        child.stdout.as_mut().expect("piped").read_exact(&mut [0]).expect("read");
        crate::common::signal(&child, with);
        let ended = said(child);
        assert_eq!(ended, (Some(130), String::new()), "{with:?}");
    }
}
