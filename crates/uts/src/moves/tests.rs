//! Moves in virtual time: the endpoints, connections and flows are those that programs use, in a
//! network without sockets.

use super::blast::mean_from_first;
use super::*;
use crate::simulation::Running;
use crate::simulation::testing::{FAIR, FAIR_DELAY, begin};
use crate::{
    ConnectOptions, Connection, FlowOptions, Identity, Listener, ReadError, ServerOptions, WriteError,
    connect,
};
use bytes::{Bytes, BytesMut};
use core::time::Duration;
use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;
use std::net::{Ipv4Addr, SocketAddr};
use tokio::io::AsyncWriteExt;
use tokio::task::JoinHandle;

/// The place of the end that moves.
const PLACE: ([u8; 4], u16) = ([10, 0, 0, 2], 4433);

/// Two ends: one has memory, the other moves.
struct Ends {
    owner: Connection,
    mover: Connection,
    moves: Moves,
    serving: JoinHandle<()>,
    network: Running,
}

impl Ends {
    async fn begin(path: &str, seed: u64) -> Self {
        Self::begin_with(path, seed, |_| {}).await
    }

    /// The same, with other options of the end that has memory.
    async fn begin_with(path: &str, seed: u64, change: impl FnOnce(&mut ConnectOptions)) -> Self {
        let network = begin(path, seed);
        let identity = Identity::generate().expect("a key");
        let options = ServerOptions::new(identity.clone());
        let listener = Listener::bind(SocketAddr::from(PLACE), options).expect("bound");
        let mut options = ConnectOptions::pinned(identity.fingerprint());
        change(&mut options);
        let owner = connect(&SocketAddr::from(PLACE).to_string(), options).await.expect("connected");
        let mover = listener.accept().await.expect("the owner");
        let moves = Moves::new(&owner);
        let serving = tokio::spawn(moves.clone().serve());
        Ends { owner, mover, moves, serving, network }
    }

    async fn move_to(&self, tag: Tag, offset: u64, bytes: &[u8]) -> Result<Moved, MoveError> {
        let bytes = Bytes::copy_from_slice(bytes);
        move_to(&self.mover, tag, offset, bytes, &MoveOptions::default()).await
    }

    /// A refusal of a move to, by its reason.
    async fn refusal(&self, tag: Tag, offset: u64, bytes: &[u8]) -> MoveRefusal {
        why(self.move_to(tag, offset, bytes).await)
    }

    /// Writes bytes in a flow of their own, ends it, and reads the answer.
    async fn say(&self, bytes: &[u8], ends: bool) -> Result<Vec<u8>, ReadError> {
        let flow = self.mover.open_flow(FlowOptions::default()).await.expect("a flow");
        let (mut send, mut recv) = flow.split();
        // It may be stopped before it is written.
        let _ = send.write_all(bytes).await;
        if ends {
            let _ = send.finish();
        }
        let mut answer = Vec::new();
        while let Some(chunk) = recv.recv_chunk(100).await? {
            let crate::Chunk::Bytes(_, bytes) = chunk else { panic!("{chunk:?}") };
            answer.extend_from_slice(&bytes);
        }
        Ok(answer)
    }
}

fn why<T: core::fmt::Debug>(moved: Result<T, MoveError>) -> MoveRefusal {
    match moved {
        Err(MoveError::Refused { why, .. }) => why,
        other => panic!("{other:?}"),
    }
}

fn random(bytes: usize, seed: u64) -> Vec<u8> {
    let mut rng = ChaCha8Rng::seed_from_u64(seed);
    (0..bytes).map(|_| rng.random()).collect()
}

fn bad(loss: f64) -> String {
    format!("{FAIR} loss={loss}")
}

/// The one copy is that from the opened packet into the memory: neither the connection nor the
/// region holds the bytes in between, or afterwards in another place.
#[tokio::test(start_paused = true)]
async fn bytes_are_copied_once_into_the_memory_that_was_named() {
    for bytes in [1, 4096, 65_536, 1 << 20] {
        let ends = Ends::begin(FAIR, 1).await;
        let data = random(bytes, 1);
        let memory = BytesMut::zeroed(bytes);
        let place = memory.as_ptr();
        let region = ends.moves.name(memory);
        let moved = ends.move_to(region.tag(), 0, &data).await.expect("moved");
        assert_eq!(moved.bytes, bytes as u64);
        assert_eq!(region.held_bytes(), 0, "{bytes}: copied twice");
        let whole = region.whole().await.expect("whole");
        assert_eq!((whole.as_ptr(), whole[..] == data), (place, true), "{bytes}");

        let lent = ends.moves.lend(data.clone().into());
        let memory = BytesMut::zeroed(bytes);
        let place = memory.as_ptr();
        let options = MoveOptions::default();
        let moved = move_from(&ends.mover, lent.tag(), 0, memory, &options).await;
        let (memory, moved) = moved.expect("moved");
        assert_eq!((moved.bytes, moved.held_bytes), (bytes as u64, 0), "{bytes}: copied twice");
        assert_eq!((memory.as_ptr(), memory[..] == data), (place, true), "{bytes}");
    }
}

/// Pages of a file come in any order, several at a time, over a path that loses, doubles and
/// reorders. Only where a header is lost are bytes held before they have their place.
#[tokio::test(start_paused = true)]
async fn pages_go_to_their_offsets_in_any_weather() {
    let path = "delay=10ms jitter=5ms,uniform,reorder loss=0.03 duplicate=0.02";
    for seed in 0..8 {
        let ends = Ends::begin(path, seed).await;
        let (data, mut rng) = (random(200_000, seed), ChaCha8Rng::seed_from_u64(seed));
        let memory = BytesMut::zeroed(data.len());
        let place = memory.as_ptr();
        let region = ends.moves.name(memory);
        let mut cuts = vec![0, data.len()];
        cuts.extend((0..20).map(|_| rng.random_range(0..data.len())));
        cuts.sort_unstable();
        let mut pages: Vec<_> = cuts.windows(2).map(|pair| pair[0]..pair[1]).collect();
        (0..pages.len()).for_each(|n| {
            let other = rng.random_range(n..21);
            pages.swap(n, other);
        });
        let mut moves = tokio::task::JoinSet::new();
        for page in pages {
            let (mover, tag) = (ends.mover.clone(), region.tag());
            let (offset, bytes) = (page.start as u64, Bytes::copy_from_slice(&data[page]));
            moves.spawn(async move { move_to(&mover, tag, offset, bytes, &MoveOptions::default()).await });
        }
        while let Some(moved) = moves.join_next().await {
            moved.expect("no panic").unwrap_or_else(|error| panic!("seed {seed}: {error}"));
        }
        let held = region.held_bytes();
        assert!(held < data.len() as u64 / 4, "seed {seed}: {held} bytes were copied twice");
        let whole = region.whole().await.expect("whole");
        assert_eq!((whole.as_ptr(), whole[..] == data), (place, true), "seed {seed}");
        // Out of it, as well.
        let lent = ends.moves.lend(data.clone().into());
        for _ in 0..5 {
            let (from, to) = (rng.random_range(0..100_000), rng.random_range(100_000..200_000));
            let memory = BytesMut::zeroed(to - from);
            let moved =
                move_from(&ends.mover, lent.tag(), from as u64, memory, &MoveOptions::default()).await;
            let (memory, moved) = moved.unwrap_or_else(|error| panic!("seed {seed}: {error}"));
            assert!(memory[..] == data[from..to] && moved.held_bytes == 0, "seed {seed}");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_peer_writes_only_into_what_was_named_and_once() {
    use MoveRefusal as R;
    let ends = Ends::begin(FAIR, 3).await;
    let region = ends.moves.name(BytesMut::zeroed(1000));
    let lent = ends.moves.lend(Bytes::from(vec![1; 100]));
    let tag = region.tag();
    assert_eq!(ends.refusal(Tag(77), 0, &[1; 10]).await, R::NoSuchMemory);
    assert_eq!(ends.refusal(lent.tag(), 0, &[1; 10]).await, R::NoSuchMemory, "it is to be read");
    for (offset, bytes) in [(0, 1001), (991, 10), (1001, 0), (u64::MAX >> 2, 10), (1000, 1)] {
        assert_eq!(ends.refusal(tag, offset, &vec![1; bytes]).await, R::OutOfRange, "{offset} {bytes}");
    }
    ends.move_to(tag, 100, &[2; 100]).await.expect("moved");
    ends.move_to(tag, 1000, &[]).await.expect("nothing, at the end");
    for (offset, bytes) in [(100, 100), (99, 2), (199, 1), (0, 1000)] {
        assert_eq!(ends.refusal(tag, offset, &vec![3; bytes]).await, R::Taken, "{offset} {bytes}");
    }
    // Out of memory: what is lent, any number of times, within its range.
    let from = |tag, offset, bytes| {
        let memory = BytesMut::zeroed(bytes);
        let mover = ends.mover.clone();
        async move { move_from(&mover, tag, offset, memory, &MoveOptions::default()).await }
    };
    assert_eq!(why(from(tag, 0, 10).await), R::NoSuchMemory, "it is to be written");
    assert_eq!(why(from(lent.tag(), 91, 10).await), R::OutOfRange);
    for _ in 0..2 {
        assert_eq!(from(lent.tag(), 50, 50).await.expect("moved").0[..], [1; 50]);
    }
    assert_eq!(from(lent.tag(), 100, 0).await.expect("nothing").0.len(), 0);
    let gone = lent.tag();
    drop(lent);
    assert_eq!(why(from(gone, 0, 1).await), R::NoSuchMemory);
    // What was refused has changed nothing.
    ends.move_to(tag, 0, &[4; 100]).await.expect("moved");
    ends.move_to(tag, 200, &[5; 800]).await.expect("moved");
    let whole = region.whole().await.expect("whole");
    assert_eq!(whole[..], [&[4; 100][..], &[2; 100], &[5; 800]].concat());
    assert_eq!(ends.refusal(tag, 0, &[6]).await, R::NoSuchMemory, "it was given back");
    let text = ends.move_to(Tag(9), 5, &[0; 3]).await.expect_err("refused").to_string();
    assert_eq!(text, "the move of 3 bytes at offset 5 of memory 9 is refused: no memory has this tag");
    assert!(ends.owner.close_reason().is_none() && ends.mover.close_reason().is_none());
}

#[tokio::test(start_paused = true)]
async fn a_move_that_is_given_up_may_be_made_again() {
    let ends = Ends::begin(FAIR, 4).await;
    let data = random(1 << 20, 4);
    let region = ends.moves.name(BytesMut::zeroed(data.len()));
    let options = MoveOptions { deadline: Some(Duration::from_millis(35)), ..MoveOptions::default() };
    let moved = move_to(&ends.mover, region.tag(), 0, data.clone().into(), &options).await;
    assert!(matches!(moved, Err(MoveError::DeadlinePassed)), "{moved:?}");
    // While the end of that is under way, its place is taken.
    tokio::time::sleep(Duration::from_millis(500)).await;
    assert_eq!(region.moved_bytes(), 0);
    ends.move_to(region.tag(), 0, &data).await.expect("moved");
    assert!(region.whole().await.expect("whole")[..] == data);
}

#[tokio::test(start_paused = true)]
async fn memory_that_is_withdrawn_ends_the_moves_into_it() {
    let ends = Ends::begin(FAIR, 5).await;
    let region = ends.moves.name(BytesMut::zeroed(4 << 20));
    let (tag, data) = (region.tag(), vec![1; 4 << 20]);
    let (moved, ()) = tokio::join!(ends.move_to(tag, 0, &data), async {
        tokio::time::sleep(Duration::from_millis(45)).await;
        drop(region);
    });
    assert_eq!(why(moved), MoveRefusal::NoSuchMemory);
    assert!(ends.mover.close_reason().is_none());
}

#[tokio::test(start_paused = true)]
async fn an_end_that_is_gone_is_told_to_both() {
    let ends = Ends::begin(FAIR, 6).await;
    let region = ends.moves.name(BytesMut::zeroed(4 << 20));
    let (tag, data) = (region.tag(), vec![1; 4 << 20]);
    let whole = tokio::spawn(region.whole());
    let (moved, ()) = tokio::join!(ends.move_to(tag, 0, &data), async {
        tokio::time::sleep(Duration::from_millis(45)).await;
        ends.network.kill(SocketAddr::from(PLACE));
    });
    assert!(matches!(moved, Err(MoveError::Lost(_))), "{moved:?}");
    let lost = whole.await.expect("no panic").expect_err("lost");
    assert!(lost.is_worth_retrying(), "{lost}");
    ends.serving.await.expect("it ends with the connection");
}

/// A peer that says anything else in place of a move is refused. Nothing is written beyond what it
/// said, and the connection goes on.
#[tokio::test(start_paused = true)]
async fn what_is_no_move_is_refused() {
    use MoveRefusal as R;
    let ends = Ends::begin(FAIR, 7).await;
    let region = ends.moves.name(BytesMut::zeroed(100));
    let answer = |why: R| Ok(vec![why.number()]);
    let tag = region.tag().0 as u8;
    // Version, kind, tag, offset, length.
    let head = |bytes: u8| vec![1, 0, tag, 10, bytes];
    assert_eq!(ends.say(&[2, 0, tag, 10, 5, 0, 0, 0, 0, 0], true).await, answer(R::BadMove));
    assert_eq!(ends.say(&[1, 2, tag, 10, 5], true).await, answer(R::BadMove));
    assert_eq!(ends.say(&[1, 0], true).await, answer(R::BadMove), "no header");
    assert_eq!(ends.say(&[1, 0], false).await, answer(R::BadMove), "too late");
    assert_eq!(ends.say(&[], true).await, answer(R::BadMove));
    assert_eq!(ends.say(&[head(5), vec![7; 4]].concat(), true).await, answer(R::Incomplete));
    assert_eq!(ends.say(&[head(5), vec![7; 6]].concat(), true).await, answer(R::BadMove), "one too many");
    assert_eq!(ends.say(&[head(91), vec![7; 91]].concat(), true).await, answer(R::OutOfRange));
    // From: something follows the header.
    assert_eq!(ends.say(&[1, 1, tag, 0, 5, 0, 0, 9], true).await, answer(R::BadMove));
    // The header comes byte by byte: the bytes are copied twice, and go to their place.
    let flow = ends.mover.open_flow(FlowOptions::default()).await.expect("a flow");
    let (mut send, mut recv) = flow.split();
    for byte in [head(5), vec![8; 5]].concat() {
        send.write_all(&[byte]).await.expect("written");
        tokio::time::sleep(Duration::from_millis(30)).await;
    }
    send.finish().expect("finished");
    assert_eq!(recv.recv_chunk(10).await, Ok(Some(crate::Chunk::Bytes(0, Bytes::from_static(&[0])))));
    assert_eq!(region.held_bytes(), 5);
    // All that was written by moves that were refused is written anew.
    ends.move_to(region.tag(), 0, &[1; 10]).await.expect("moved");
    ends.move_to(region.tag(), 15, &[2; 85]).await.expect("moved");
    assert_eq!(region.whole().await.expect("whole")[..], [vec![1; 10], vec![8; 5], vec![2; 85]].concat());
    assert!(ends.mover.close_reason().is_none());
}

/// An answer that is none is an error of the end that moves, and none of its memory is believed.
#[tokio::test(start_paused = true)]
async fn an_answer_that_is_none_is_an_error() {
    for (says, is_breach) in [(&[0, 1][..], true), (&[], true), (&[9, 9], true), (&[0, 1, 2, 3, 4], true)] {
        let ends = Ends::begin(FAIR, 8).await;
        ends.serving.abort();
        let owner = ends.owner.clone();
        let said = Bytes::copy_from_slice(says);
        tokio::spawn(async move {
            while let Some(flow) = owner.accept_flow().await {
                let (mut send, recv) = flow.split();
                let _ = send.write_all(&said).await;
                let _: Result<(), WriteError> = send.finish();
                tokio::spawn(async move { (send.finished().await.is_ok(), recv) });
            }
        });
        let memory = BytesMut::zeroed(3);
        let moved = move_from(&ends.mover, Tag(0), 0, memory, &MoveOptions::default()).await;
        let error = moved.expect_err("none");
        assert!(matches!(error, MoveError::Breach(_) | MoveError::Refused { .. }) == is_breach, "{error}");
    }
}

/// Moves by a strategy, under several seeds.
#[derive(Debug, Default)]
struct Outcome {
    /// Bytes repeated for a byte moved.
    repeated: f64,
    /// Data of a packet, in bytes.
    packet_bytes: f64,
    /// Share of packets that the path has lost.
    loss: f64,
}

async fn outcome(strategy: Strategy, kibibytes: u32, loss: f64, seeds: core::ops::Range<u64>) -> Outcome {
    const BYTES: usize = 1 << 20;
    let (mut moved, mut data_sent, mut packets, mut lost) = (0, 0, 0, 0);
    for seed in seeds {
        let ends = Ends::begin(&bad(loss), seed).await;
        let data = random(BYTES, seed);
        let region = ends.moves.name(BytesMut::zeroed(BYTES));
        let repeats = Repeats::Blasts { strategy, kibibytes: Some(kibibytes) };
        let options = MoveOptions { repeats, deadline: None };
        let way = || ends.network.stats(PLACE.0.into(), Ipv4Addr::LOCALHOST.into());
        let (before, way_before) = (ends.mover.stats(), way());
        move_to(&ends.mover, region.tag(), 0, data.clone().into(), &options).await.expect("moved");
        let (after, way_after) = (ends.mover.stats(), way());
        assert!(region.whole().await.expect("whole")[..] == data, "{strategy:?}, seed {seed}");
        moved += BYTES as u64;
        data_sent += after.data_bytes_sent - before.data_bytes_sent;
        packets += way_after.packets_in - way_before.packets_in;
        lost += way_after.dropped_loss - way_before.dropped_loss;
    }
    Outcome {
        repeated: data_sent as f64 / moved as f64 - 1.0,
        packet_bytes: data_sent as f64 / packets as f64,
        loss: lost as f64 / packets as f64,
    }
}

/// Section 3.2.3: the strategies differ in what they repeat. The packets of a blast are lost
/// independently, as in the paper's formulas, by the loss that the path had. A blast touches a
/// packet more than it fills, and a pass fails if any of its packets is lost, also those that had
/// come in the pass before.
#[tokio::test(start_paused = true)]
async fn strategies_repeat_what_the_formulas_say() {
    const KIBIBYTES: u32 = 32;
    let mut found = Vec::new();
    for strategy in [Strategy::FullAfterTimeout, Strategy::Full, Strategy::FromFirst, Strategy::Selective] {
        let Outcome { repeated, packet_bytes, loss } = outcome(strategy, KIBIBYTES, 0.01, 0..16).await;
        let packets = f64::from(KIBIBYTES) * 1024.0 / packet_bytes;
        let fails = 1.0 - (1.0 - loss).powf(packets + 1.0);
        let expected = match strategy {
            Strategy::FullAfterTimeout | Strategy::Full => fails / (1.0 - fails),
            Strategy::FromFirst => fails * mean_from_first(packets, loss) / packets,
            Strategy::Selective => loss / (1.0 - loss),
        };
        println!("{strategy:?}: {packets:.1} packets, loss {loss:.4}: {repeated:.4}, formula {expected:.4}");
        assert!((repeated / expected - 1.0).abs() < 0.25, "{strategy:?}: {repeated} for {expected}");
        found.push(repeated);
    }
    assert!(found[1] > 1.3 * found[2] && found[2] > 3.0 * found[3], "{found:?}");
}

/// Section 3.1.3, carried out: the more is lost, the smaller are the blasts that repeat little, and
/// the size that a move takes by itself follows the loss that was measured.
#[tokio::test(start_paused = true)]
async fn a_move_takes_smaller_blasts_where_more_is_lost() {
    let large = outcome(Strategy::Full, 256, 0.01, 0..3).await.repeated;
    let small = outcome(Strategy::Full, 8, 0.01, 0..3).await.repeated;
    assert!(large > 3.0 * small, "{large} and {small}");
    let mut sizes = Vec::new();
    for loss in [0.0, 0.005, 0.05] {
        let ends = Ends::begin(&bad(loss), 11).await;
        let data = vec![7; 2 << 20];
        for _ in 0..2 {
            let region = ends.moves.name(BytesMut::zeroed(data.len()));
            let options = MoveOptions::blasts(Strategy::Full);
            move_to(&ends.mover, region.tag(), 0, data.clone().into(), &options).await.expect("moved");
        }
        sizes.push(best_kibibytes(Strategy::Full, &ends.mover.facts()));
    }
    println!("sizes: {sizes:?}");
    assert!(sizes[0] > sizes[1] && sizes[1] > sizes[2], "{sizes:?}");
}

/// The wish of the end that moves out of memory is carried out by the end that sends.
#[tokio::test(start_paused = true)]
async fn moves_out_of_memory_are_repeated_as_they_wish() {
    let mut found = Vec::new();
    for strategy in [Strategy::Full, Strategy::Selective] {
        let ends = Ends::begin(&bad(0.02), 12).await;
        let data = random(1 << 20, 12);
        let lent = ends.moves.lend(data.clone().into());
        let repeats = Repeats::Blasts { strategy, kibibytes: Some(64) };
        let options = MoveOptions { repeats, deadline: None };
        let memory = BytesMut::zeroed(data.len());
        let (memory, _) = move_from(&ends.mover, lent.tag(), 0, memory, &options).await.expect("moved");
        assert!(memory[..] == data);
        found.push(ends.owner.stats().data_bytes_sent as f64 / data.len() as f64 - 1.0);
    }
    assert!(found[0] > 5.0 * found[1], "{found:?}");
}

/// Round trips that moves of so many bytes take one after the other, into memory and out of it, and
/// the window of the end that sends, before each.
async fn round_trips(bytes: usize, is_to: bool) -> Vec<(f64, u64)> {
    let ends = Ends::begin(FAIR, 1).await;
    let data = Bytes::from(random(bytes, 1));
    let lent = ends.moves.lend(data.clone());
    let (options, mut found) = (MoveOptions::default(), Vec::new());
    for _ in 0..6 {
        let sender = if is_to { &ends.mover } else { &ends.owner };
        let (window, memory) = (sender.stats().window_bytes, BytesMut::zeroed(bytes));
        let begun = tokio::time::Instant::now();
        let elapsed = if is_to {
            let region = ends.moves.name(memory);
            move_to(&ends.mover, region.tag(), 0, data.clone(), &options).await.expect("moved");
            let elapsed = begun.elapsed();
            assert!(region.whole().await.expect("whole") == data);
            elapsed
        } else {
            let moved = move_from(&ends.mover, lent.tag(), 0, memory, &options).await.expect("moved");
            assert!(moved.0 == data);
            begun.elapsed()
        };
        found.push((elapsed.div_duration_f64(FAIR_DELAY * 2), window));
    }
    println!("{bytes} bytes, to: {is_to}: {found:.2?}");
    found
}

/// A move whose memory is there waits for the congestion window, and for what is paced within it.
/// One into memory waits a round trip more if it is longer than the credit that a flow begins with:
/// its header has to arrive first. (flow.md R-40)
#[tokio::test(start_paused = true)]
async fn a_move_waits_for_no_credit_of_its_flow() {
    const FIRST_CREDIT: usize = 1 << 20;
    for bytes in [64 << 10, 1 << 20, 8 << 20] {
        for is_to in [true, false] {
            let moves = round_trips(bytes, is_to).await;
            // The window has grown by then.
            for (found, window) in &moves[4..] {
                let windows = (bytes as f64 / *window as f64).ceil();
                let header = if is_to && bytes >= FIRST_CREDIT { 1.0 } else { 0.0 };
                assert!(*found < windows + header + 0.6, "{bytes}, to: {is_to}: {found}, window {window}");
            }
        }
    }
}

/// An end that bounds the rate at which it receives is not sent more for the memory that it has.
/// (flow.md R-10)
#[tokio::test(start_paused = true)]
async fn memory_is_filled_no_faster_than_the_rate_of_its_owner() {
    const BITS_PER_SEC: f64 = 1e6;
    let slow = |options: &mut ConnectOptions| {
        options.connection.requirements.set("maxRecvRate", "1Mbit/s").expect("a property");
    };
    let ends = Ends::begin_with(FAIR, 13, slow).await;
    let (data, begun) = (random(2 << 20, 13), tokio::time::Instant::now());
    let region = ends.moves.name(BytesMut::zeroed(data.len()));
    ends.move_to(region.tag(), 0, &data).await.expect("moved");
    let least = data.len() as f64 * 8.0 / BITS_PER_SEC;
    let took = begun.elapsed().as_secs_f64();
    assert!(took > 0.9 * least && took < 1.5 * least, "{took} s for {least}");
    assert!(region.whole().await.expect("whole")[..] == data);
}
