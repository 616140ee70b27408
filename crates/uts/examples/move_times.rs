//! Moves of 64 kB and 1 MB on loopback, beside a flow that is read into memory, and beside TCP,
//! which does not encrypt: by turns, in one run.
//!
//! `cargo run --release --example move_times`

#![expect(clippy::disallowed_methods, reason = "a benchmark reads the clock")]

use bytes::{Bytes, BytesMut};
use std::error::Error;
use std::io::Write;
use std::time::{Duration, Instant};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use uts::moves::{MoveOptions, Moves, Strategy, move_from, move_to};
use uts::{ConnectOptions, Connection, Flow, FlowOptions, Identity, Listener, ServerOptions, connect};

/// Rounds that are left out: a connection learns its path first.
const WARM_UP: usize = 20;

/// Two ends of UTS on loopback: one has memory, the other moves.
struct Ends {
    moves: Moves,
    mover: Connection,
}

async fn ends() -> Result<Ends, Box<dyn Error>> {
    let listener = Listener::bind("127.0.0.1:0".parse()?, ServerOptions::new(Identity::generate()?))?;
    let options = ConnectOptions::pinned(listener.fingerprint());
    let owner = connect(&listener.local_addr().to_string(), options).await?;
    let mover = listener.accept().await.ok_or("nobody connects")?;
    let moves = Moves::new(&owner);
    tokio::spawn(moves.clone().serve());
    Ok(Ends { moves, mover })
}

/// A flow whose other end reads each piece of so many bytes into memory, and answers with a byte.
async fn read_flow(bytes: usize) -> Result<Flow, Box<dyn Error>> {
    let listener = Listener::bind("127.0.0.1:0".parse()?, ServerOptions::new(Identity::generate()?))?;
    let options = ConnectOptions::pinned(listener.fingerprint());
    let connection = connect(&listener.local_addr().to_string(), options).await?;
    let peer = listener.accept().await.ok_or("nobody connects")?;
    tokio::spawn(async move {
        let Some(mut flow) = peer.accept_flow().await else { return };
        let mut memory = vec![0; bytes];
        while flow.read_exact(&mut memory).await.is_ok() && flow.write_all(&[0]).await.is_ok() {}
    });
    Ok(connection.open_flow(FlowOptions::default()).await?)
}

/// Both ends of a TCP connection; the second answers each piece of so many bytes with a byte.
async fn tcp(bytes: usize) -> Result<TcpStream, Box<dyn Error>> {
    let listener = TcpListener::bind("127.0.0.1:0").await?;
    let stream = TcpStream::connect(listener.local_addr()?).await?;
    let (mut peer, _) = listener.accept().await?;
    stream.set_nodelay(true)?;
    peer.set_nodelay(true)?;
    tokio::spawn(async move {
        let mut memory = vec![0; bytes];
        while peer.read_exact(&mut memory).await.is_ok() && peer.write_all(&[0]).await.is_ok() {}
    });
    Ok(stream)
}

fn line(out: &mut impl Write, size: &str, what: &str, times: &[Duration], tcp: f64) -> std::io::Result<f64> {
    let mut times: Vec<f64> = times.iter().skip(WARM_UP).map(|time| time.as_secs_f64() * 1e6).collect();
    times.sort_by(f64::total_cmp);
    let at = |part: usize| times.get(times.len() * part / 4).copied().unwrap_or_default();
    let (low, median, high) = (at(1), at(2), at(3));
    let ratio = if tcp > 0.0 { median / tcp } else { 1.0 };
    writeln!(out, "{size}, {what}: {median:.0} us ({low:.0} to {high:.0}), {ratio:.2} of TCP")?;
    Ok(median)
}

/// Moves so often each way; writes medians, quartiles and ratios.
pub async fn run(out: &mut impl Write, rounds: usize) -> Result<(), Box<dyn Error>> {
    for (size, bytes) in [("64 kB", 64 << 10), ("1 MB", 1 << 20)] {
        let data = Bytes::from((0..bytes).map(|n| (n % 251) as u8).collect::<Vec<u8>>());
        let (ends, mut stream, mut flow) = (ends().await?, tcp(bytes).await?, read_flow(bytes).await?);
        let lent = ends.moves.lend(data.clone());
        let ways = [
            ("move to", MoveOptions::default()),
            ("move to, blasts from the first", MoveOptions::blasts(Strategy::FromFirst)),
            ("move to, blasts, selective", MoveOptions::blasts(Strategy::Selective)),
        ];
        let (mut by_tcp, mut by_flow, mut from) = (Vec::new(), Vec::new(), Vec::new());
        let mut to = vec![Vec::new(); ways.len()];
        for _ in 0..rounds + WARM_UP {
            let begun = Instant::now();
            stream.write_all(&data).await?;
            stream.read_exact(&mut [0]).await?;
            by_tcp.push(begun.elapsed());

            let begun = Instant::now();
            flow.write_all(&data).await?;
            flow.read_exact(&mut [0]).await?;
            by_flow.push(begun.elapsed());

            for ((_, options), times) in ways.iter().zip(&mut to) {
                let region = ends.moves.name(BytesMut::zeroed(bytes));
                let begun = Instant::now();
                move_to(&ends.mover, region.tag(), 0, data.clone(), options).await?;
                times.push(begun.elapsed());
                assert!(region.whole().await? == data, "what was moved is what is there");
            }

            let memory = BytesMut::zeroed(bytes);
            let begun = Instant::now();
            let moved = move_from(&ends.mover, lent.tag(), 0, memory, &MoveOptions::default()).await?;
            from.push(begun.elapsed());
            assert!(moved.0 == data, "what was moved is what is there");
        }
        let tcp = line(out, size, "TCP, with an answer of one byte", &by_tcp, 0.0)?;
        line(out, size, "a flow that is read", &by_flow, tcp)?;
        for ((what, _), times) in ways.iter().zip(&to) {
            line(out, size, what, times, tcp)?;
        }
        line(out, size, "move from", &from, tcp)?;
    }
    Ok(())
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    run(&mut std::io::stdout(), 500).await
}
