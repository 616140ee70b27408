//! A client's memory, whatever the server that it copies from does: the stock `uts cp`, and a
//! server of the library that answers what it likes.

use crate::common::Place;
use std::fs;
use std::io;
use std::time::{Duration, Instant};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use uts::{Connection, Fingerprint, FlowOptions, Identity, Listener, RecvFlow, SendFlow, ServerOptions};
use uts_files::message::{Attributes, Entry, Kind, Mtime, Reply, Request, read_frame, write_frame};

/// Most that `uts cp` holds: a connection's 48 MiB, some blocks of files and names, and itself.
const MEMORY_KB_MAX: u64 = 112 << 10;

/// Time for which a server may go on that does not come to an end.
const LASTS: Duration = Duration::from_secs(10);

/// Behaviour of a server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Lie {
    /// A listing without end.
    Names,
    /// A listing of faults without end, each with long words.
    Faults,
    /// A file longer than was said.
    Content,
    /// A frame that is said to be as long as can be.
    Frame,
    /// Flows of its own, full of data that nobody asked for.
    Flows,
}

fn entry(path: &[u8], kind: Kind, size: u64) -> Entry {
    Entry { path: path.to_vec(), kind, size, mtime: Mtime::default(), mode: 0o644 }
}

async fn answer(lie: Lie, send: &mut SendFlow, request: Request) -> io::Result<()> {
    match request {
        Request::Stat { path } => {
            let kind = if lie == Lie::Content { Kind::File } else { Kind::Directory };
            let entry = Some(entry(&path, kind, 4));
            write_frame(send, &Reply::Status { entry, copy_of: None, shows_hidden: true }).await
        }
        Request::List { .. } if lie == Lie::Frame => {
            send.write_all(&u32::MAX.to_be_bytes()).await?;
            loop {
                send.write_all(&[7; 1 << 16]).await?;
            }
        }
        Request::List { .. } => {
            for n in 0_u64.. {
                let name = format!("{n:0200}");
                let found = match lie {
                    Lie::Faults => {
                        let why = "no ".repeat(300);
                        Err(uts_files::Fault::new(uts_files::FaultKind::NotFound, name.as_bytes(), &why))
                    }
                    _ => Ok(entry(name.as_bytes(), Kind::File, 4)),
                };
                write_frame(send, &Reply::Found(found)).await?;
            }
            Ok(())
        }
        Request::Get { path, .. } => {
            write_frame(send, &Reply::Sending { entry: entry(&path, Kind::File, 4), from: 0 }).await?;
            loop {
                send.write_all(&(1_u32 << 16).to_be_bytes()).await?;
                send.write_all(&[7; 1 << 16]).await?;
            }
        }
        _ => {
            let whole = Some(Attributes { mode: 0o644, mtime: Mtime::default() });
            write_frame(send, &Reply::Have { held: None, whole, there: 0 }).await
        }
    }
}

async fn lie_in(lie: Lie, mut send: SendFlow, mut recv: RecvFlow) -> io::Result<()> {
    recv.read_exact(&mut [0; 10]).await?;
    while let Some(request) = read_frame::<_, Request>(&mut recv).await? {
        answer(lie, &mut send, request).await?;
    }
    send.shutdown().await
}

async fn lie_to(connection: Connection, lie: Lie) {
    let connection = std::sync::Arc::new(connection);
    if lie == Lie::Flows {
        let connection = connection.clone();
        tokio::spawn(async move {
            while let Ok(flow) = connection.open_flow(FlowOptions::default()).await {
                tokio::spawn(async move {
                    let (mut send, _recv) = flow.split();
                    while send.write_all(&[7; 1 << 16]).await.is_ok() {}
                });
            }
        });
    }
    while let Some(flow) = connection.accept_flow().await {
        let (send, recv) = flow.split();
        tokio::spawn(lie_in(lie, send, recv));
    }
}

/// Address of a lying server, and its key.
fn liar(lie: Lie) -> (String, Fingerprint) {
    let identity = Identity::generate().expect("a key");
    let key = identity.fingerprint();
    let listener = Listener::bind(([127, 0, 0, 1], 0).into(), ServerOptions::new(identity)).expect("bound");
    let address = listener.local_addr().to_string();
    tokio::spawn(async move {
        while let Some(connection) = listener.accept().await {
            tokio::spawn(lie_to(connection, lie));
        }
    });
    (address, key)
}

fn most_kb(process: u32) -> Option<u64> {
    let status = fs::read_to_string(format!("/proc/{process}/status")).ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"))?;
    line.split_whitespace().next()?.parse().ok()
}

#[test]
fn a_hostile_server_makes_a_copy_hold_no_more_than_is_stated() {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build();
    let runtime = runtime.expect("a runtime");
    let _inside = runtime.enter();
    for lie in [Lie::Content, Lie::Frame, Lie::Flows, Lie::Faults, Lie::Names] {
        let place = Place::new();
        let (address, key) = liar(lie);
        let (url, key) = (format!("uts://{address}/d"), key.to_string());
        let copy = place.start(&["cp", "-r", "--json", "--retry", "0", "--pin", &key, &url, "copy"]);
        let (begun, mut most) = (Instant::now(), 0);
        // A process that has ended has no memory.
        while let Some(now) = most_kb(copy.id()).filter(|_| begun.elapsed() < LASTS) {
            most = most.max(now);
            std::thread::sleep(Duration::from_millis(2));
        }
        let has_ended = most_kb(copy.id()).is_none();
        println!("{lie:?}: {} MiB at most, ended by itself: {has_ended}, {:?}", most >> 10, begun.elapsed());
        if !has_ended {
            copy.signal(rustix::process::Signal::KILL);
        }
        let said = copy.wait();
        assert!(most <= MEMORY_KB_MAX, "{lie:?}: {most} kB of {MEMORY_KB_MAX}");
        assert!(said.status != 0 && said.out.len() > 1, "{lie:?}: {most} kB, {:?} {}", said.out, said.err);
    }
}
