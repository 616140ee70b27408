//! A page server, as for workstations without disks: pages of 4 kB and whole files are moved into
//! memory that the client has named, and pages that were written are moved out of it.
//!
//! `cargo run --example pages`

use bytes::{Bytes, BytesMut};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::error::Error;
use std::io::Write;
use std::sync::{Arc, Mutex};
use uts::call::{CallOptions, Caller, Failure, Methods, Served};
use uts::moves::{MoveOptions, Moves, Tag, move_from, move_to};
use uts::{ConnectOptions, Identity, Listener, ServerOptions, connect};

const PAGE_BYTES: u64 = 4096;

/// A stretch of a file, and the memory of the client that it goes into or comes out of.
#[derive(Serialize, Deserialize)]
struct Stretch {
    file: String,
    offset: u64,
    bytes: u64,
    memory: Tag,
}

type Files = Arc<Mutex<BTreeMap<String, Bytes>>>;

fn failed(error: impl Error) -> Failure {
    Failure::new(2, error.to_string())
}

fn read_of(files: &Files, stretch: &Stretch) -> Result<Bytes, Failure> {
    let files = files.lock().expect("nobody panics");
    let file = files.get(&stretch.file).ok_or_else(|| Failure::new(1, "there is no such file"))?;
    let end = stretch.offset.checked_add(stretch.bytes).filter(|end| *end <= file.len() as u64);
    let end = end.ok_or_else(|| Failure::new(1, "the file is shorter"))?;
    Ok(file.slice(stretch.offset as usize..end as usize))
}

/// The methods: `size` of a file, `read` and `write` a stretch of one.
fn methods(files: Files) -> Methods {
    let (sized, read) = (files.clone(), files.clone());
    Methods::new()
        .on_value("size", move |file: String| {
            let size = sized.lock().expect("nobody panics").get(&file).map(|file| file.len() as u64);
            async move { size.ok_or_else(|| Failure::new(1, "there is no such file")) }
        })
        .on("read", move |mut call: Served| {
            let files = read.clone();
            async move {
                let stretch: Stretch =
                    call.request.recv_value().await?.ok_or_else(|| Failure::new(1, "what?"))?;
                let bytes = read_of(&files, &stretch)?;
                let options = MoveOptions::default();
                move_to(&call.connection, stretch.memory, 0, bytes, &options).await.map_err(failed)?;
                Ok(())
            }
        })
        .on("write", move |mut call: Served| {
            let files = files.clone();
            async move {
                let stretch: Stretch =
                    call.request.recv_value().await?.ok_or_else(|| Failure::new(1, "what?"))?;
                read_of(&files, &stretch)?;
                let memory = BytesMut::zeroed(stretch.bytes as usize);
                let (page, _) =
                    move_from(&call.connection, stretch.memory, 0, memory, &MoveOptions::default())
                        .await
                        .map_err(failed)?;
                let mut files = files.lock().expect("nobody panics");
                let file = files.entry(stretch.file).or_default();
                let mut changed = BytesMut::from(&file[..]);
                changed[stretch.offset as usize..][..page.len()].copy_from_slice(&page);
                *file = changed.freeze();
                Ok(())
            }
        })
}

/// A client: calls go to the server, and moves come from it.
struct Client {
    caller: Caller,
    moves: Moves,
}

impl Client {
    async fn call(&self, method: &str, stretch: &Stretch) -> Result<(), Box<dyn Error>> {
        let mut call = self.caller.begin(method, &CallOptions::default()).await?;
        call.request.send_value(stretch).await?;
        call.request.finish().await?;
        while call.answer.recv().await?.is_some() {}
        Ok(())
    }

    async fn read(&self, file: &str, offset: u64, bytes: u64) -> Result<BytesMut, Box<dyn Error>> {
        let region = self.moves.name(BytesMut::zeroed(bytes as usize));
        let stretch = Stretch { file: file.to_owned(), offset, bytes, memory: region.tag() };
        self.call("read", &stretch).await?;
        Ok(region.whole().await?)
    }

    async fn write(&self, file: &str, offset: u64, page: Bytes) -> Result<(), Box<dyn Error>> {
        let bytes = page.len() as u64;
        let lent = self.moves.lend(page);
        let stretch = Stretch { file: file.to_owned(), offset, bytes, memory: lent.tag() };
        self.call("write", &stretch).await
    }
}

/// Reads a page, writes one, and reads the file as a whole.
pub async fn run(out: &mut impl Write) -> Result<(), Box<dyn Error>> {
    let listener = Listener::bind("127.0.0.1:0".parse()?, ServerOptions::new(Identity::generate()?))?;
    let target = listener.local_addr().to_string();
    let options = ConnectOptions::pinned(listener.fingerprint());
    let kernel: Vec<u8> = (0..300_000_u32).map(|n| (n % 251) as u8).collect();
    let files: Files = Arc::new(Mutex::new(BTreeMap::from([("vmunix".to_owned(), kernel.clone().into())])));
    let methods = methods(files);
    tokio::spawn(async move {
        while let Some(connection) = listener.accept().await {
            tokio::spawn(methods.clone().serve(connection));
        }
    });

    let connection = connect(&target, options).await?;
    let moves = Moves::new(&connection);
    tokio::spawn(moves.clone().serve());
    let client = Client { caller: Caller::over(connection.clone()), moves };
    let size: u64 = client.caller.call_value("size", "vmunix", &CallOptions::default()).await?;

    let (from, to) = (5 * PAGE_BYTES as usize, 6 * PAGE_BYTES as usize);
    let page = client.read("vmunix", from as u64, PAGE_BYTES).await?;
    writeln!(out, "page 5: {} bytes, right: {}", page.len(), page[..] == kernel[from..to])?;
    client.write("vmunix", from as u64, Bytes::from(vec![255; to - from])).await?;
    let whole = client.read("vmunix", 0, size).await?;
    let is_right = whole[..from] == kernel[..from]
        && whole[from..to].iter().all(|byte| *byte == 255)
        && whole[to..] == kernel[to..];
    writeln!(out, "the file: {} bytes, with the page that was written: {is_right}", whole.len())?;
    if let Err(error) = client.read("vmunix", size, 1).await {
        writeln!(out, "behind its end: {error}")?;
    }
    connection.close(0, "done").await;
    Ok(())
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    run(&mut std::io::stdout()).await
}
