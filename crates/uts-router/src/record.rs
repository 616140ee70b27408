//! The record: taken where packets pass, written by a thread of its own.
//!
//! The forwarding thread only copies into a chunk, and hands it over when it is full or old. It
//! never waits for the writer, not even for a lock that the writer holds while others have the
//! processor. Chunks go to and fro in two wait-free rings, and the writer looks every few
//! milliseconds. If it falls behind by all the [`CHUNKS`], entries are lost and counted, and the
//! run is not valid.

use super::config::RecordConfig;
use super::error::RouterError;
use super::frame::{Packet, complete_checksum};
use super::sequence::Sequences;
use super::sys::{FRAME_BYTES_MAX, VNET_HEADER_BYTES};
use pcap_file::pcap::{PcapHeader, PcapPacket, PcapWriter};
use pcap_file::{DataLink, Endianness, TsResolution};
use rtrb::{Consumer, Producer, RingBuffer};
use std::fs::File;
use std::io::{BufWriter, Write};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;
use uts_path::{Applied, Direction, Passage, Target};

const CHUNK_ENTRIES: usize = 2048;
const CHUNK_BYTES: usize = 512 << 10;
/// 64 MiB, of which the system provides what is used.
const CHUNKS: usize = 128;
/// Interval at which the writer looks for chunks.
const WRITER_PAUSE: Duration = Duration::from_millis(5);
/// A chunk is handed over after this long even if it is not full.
const CHUNK_AGE_NS: u64 = 100_000_000;
/// Ethernet, IP and TCP headers with all options, and the packet socket's header.
const HEADER_BYTES_MAX: usize = VNET_HEADER_BYTES + 14 + 60 + 60;

/// Which way a frame passes a host's interface.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Passing {
    /// From the host.
    In,
    /// To the host.
    Out,
}

#[derive(Debug)]
enum Entry {
    Frame { at_ns: u64, host: usize, passing: Passing, bytes: usize, kept: usize },
    Passage { path: usize, direction: Direction, passage: Passage },
    Applied { path: usize, applied: Applied },
}

/// Entries, and the bytes of their frames one after the other.
#[derive(Debug)]
struct Chunk {
    entries: Vec<Entry>,
    bytes: Vec<u8>,
}

impl Chunk {
    /// One that need not grow.
    fn new() -> Self {
        let bytes = Vec::with_capacity(CHUNK_BYTES + FRAME_BYTES_MAX);
        Chunk { entries: Vec::with_capacity(CHUNK_ENTRIES), bytes }
    }
}

/// The forwarding thread's end.
#[derive(Debug)]
pub(super) struct Recorder {
    chunk: Chunk,
    full: Producer<Chunk>,
    empty: Consumer<Chunk>,
    is_over: Arc<AtomicBool>,
    begun_ns: u64,
    lost: u64,
    kept_in: usize,
    kept_out: usize,
    queue: bool,
    writer: JoinHandle<Result<(), RouterError>>,
}

impl Recorder {
    /// Makes the files and starts the thread. Rows count their time from `origin_ns`.
    pub(super) fn start(config: &RecordConfig, hosts: usize, origin_ns: u64) -> Result<Self, RouterError> {
        std::fs::create_dir_all(&config.dir)
            .map_err(|cause| RouterError::Record { path: config.dir.clone(), cause })?;
        let mut files = Files::create(config, hosts, origin_ns)?;
        let (full, mut chunks) = RingBuffer::new(CHUNKS);
        let (mut back, empty) = RingBuffer::new(CHUNKS);
        for _ in 1..CHUNKS {
            // There is room for all of them.
            let _ = back.push(Chunk::new());
        }
        let is_over = Arc::new(AtomicBool::new(false));
        let over = Arc::clone(&is_over);
        let work = move || {
            let mut written = Ok(());
            loop {
                // Asked first: what was handed over before is still to be found.
                let is_last = over.load(Ordering::Acquire);
                while let Ok(mut chunk) = chunks.pop() {
                    // After an error, what still comes is taken all the same.
                    written = written.and_then(|()| files.write(&mut chunk));
                    chunk.entries.clear();
                    chunk.bytes.clear();
                    let _ = back.push(chunk);
                }
                if is_last {
                    return written.and_then(|()| files.finish());
                }
                std::thread::sleep(WRITER_PAUSE);
            }
        };
        let writer = std::thread::Builder::new()
            .name("record".into())
            .spawn(work)
            .map_err(|e| RouterError::system("start the recorder's thread", e))?;
        let snap = VNET_HEADER_BYTES + config.snap_bytes as usize;
        let pcap = if config.pcap { snap } else { 0 };
        Ok(Recorder {
            chunk: Chunk::new(),
            full,
            empty,
            is_over,
            begun_ns: 0,
            lost: 0,
            kept_in: pcap.max(if config.sequence { HEADER_BYTES_MAX } else { 0 }),
            kept_out: pcap,
            queue: config.queue,
            writer,
        })
    }

    /// True if packets' ways through queues are wanted.
    pub(super) fn wants_passages(&self) -> bool {
        self.queue
    }

    /// Entries that the writer was too slow for.
    pub(super) fn lost(&self) -> u64 {
        self.lost
    }

    pub(super) fn frame(&mut self, at_ns: u64, host: usize, passing: Passing, packet: &Packet) {
        let most = if passing == Passing::In { self.kept_in } else { self.kept_out };
        if most == 0 {
            return;
        }
        let kept = packet.bytes.len().min(most);
        self.chunk.bytes.extend_from_slice(packet.bytes.get(..kept).unwrap_or_default());
        self.add(at_ns, Entry::Frame { at_ns, host, passing, bytes: packet.bytes.len(), kept });
    }

    pub(super) fn passage(&mut self, path: usize, direction: Direction, passage: Passage) {
        self.add(passage.left_ns, Entry::Passage { path, direction, passage });
    }

    pub(super) fn applied(&mut self, path: usize, applied: Applied) {
        self.add(applied.at_ns, Entry::Applied { path, applied });
    }

    fn add(&mut self, at_ns: u64, entry: Entry) {
        if self.chunk.entries.is_empty() {
            self.begun_ns = at_ns;
        }
        self.chunk.entries.push(entry);
        if self.chunk.entries.len() >= CHUNK_ENTRIES || self.chunk.bytes.len() >= CHUNK_BYTES {
            self.hand_over();
        }
    }

    /// Hands over what is old.
    pub(super) fn keep_up(&mut self, now_ns: u64) {
        if !self.chunk.entries.is_empty() && now_ns >= self.begun_ns.saturating_add(CHUNK_AGE_NS) {
            self.hand_over();
        }
    }

    fn hand_over(&mut self) {
        let Ok(next) = self.empty.pop() else {
            self.lost += self.chunk.entries.len() as u64;
            self.chunk.entries.clear();
            self.chunk.bytes.clear();
            return;
        };
        // There is room for all chunks that there are.
        let _ = self.full.push(std::mem::replace(&mut self.chunk, next));
    }

    /// Writes the rest and closes the files.
    pub(super) fn finish(mut self) -> Result<(), RouterError> {
        // Nothing is urgent any more.
        while !self.chunk.entries.is_empty() {
            if self.empty.is_empty() && !self.writer.is_finished() {
                std::thread::sleep(WRITER_PAUSE);
            } else {
                self.hand_over();
            }
        }
        self.is_over.store(true, Ordering::Release);
        self.writer.join().unwrap_or_else(|_| {
            Err(RouterError::system("record", std::io::Error::other("the recorder's thread has panicked")))
        })
    }
}

/// A file and its name, for errors.
#[derive(Debug)]
pub(super) struct Sheet {
    path: PathBuf,
    file: BufWriter<File>,
}

impl Sheet {
    pub(super) fn create(config: &RecordConfig, name: &str, header: &str) -> Result<Self, RouterError> {
        let path = config.dir.join(name);
        match File::create(&path) {
            Ok(file) => {
                let mut sheet = Sheet { path, file: BufWriter::new(file) };
                sheet.line(format_args!("{header}"))?;
                Ok(sheet)
            }
            Err(cause) => Err(RouterError::Record { path, cause }),
        }
    }

    pub(super) fn line(&mut self, line: std::fmt::Arguments<'_>) -> Result<(), RouterError> {
        self.checked(|file| writeln!(file, "{line}"))
    }

    pub(super) fn flush(&mut self) -> Result<(), RouterError> {
        self.checked(BufWriter::flush)
    }

    fn checked(
        &mut self,
        write: impl FnOnce(&mut BufWriter<File>) -> std::io::Result<()>,
    ) -> Result<(), RouterError> {
        write(&mut self.file).map_err(|cause| RouterError::Record { path: self.path.clone(), cause })
    }
}

struct Capture {
    path: PathBuf,
    writer: PcapWriter<BufWriter<File>>,
}

/// The writer's end.
struct Files {
    origin_ns: u64,
    captures: Vec<Capture>,
    snap_bytes: usize,
    changes: Sheet,
    queue: Option<Sheet>,
    sequence: Option<(Sheet, Sequences)>,
}

impl Files {
    fn create(config: &RecordConfig, hosts: usize, origin_ns: u64) -> Result<Self, RouterError> {
        let queue = "t_s,path,dir,number,len,packets,bytes,wait_s,sojourn_s,marked,dropped";
        let sequence = "t_s,flow,dir,seq,ack,window,len,flags";
        let sheet = |wanted: bool, name: &str, header: &str| {
            wanted.then(|| Sheet::create(config, name, header)).transpose()
        };
        Ok(Files {
            origin_ns,
            captures: (0..if config.pcap { hosts } else { 0 })
                .map(|host| create_capture(config, host))
                .collect::<Result<_, _>>()?,
            snap_bytes: config.snap_bytes as usize,
            changes: Sheet::create(config, "changes.csv", "t_s,path,dir,change")?,
            queue: sheet(config.queue, "queue.csv", queue)?,
            sequence: sheet(config.sequence, "sequence.csv", sequence)?.map(|s| (s, Sequences::default())),
        })
    }

    fn write(&mut self, chunk: &mut Chunk) -> Result<(), RouterError> {
        let mut rest = chunk.bytes.as_mut_slice();
        for entry in &chunk.entries {
            match entry {
                Entry::Frame { at_ns, host, passing, bytes, kept } => {
                    let (frame, after) = rest.split_at_mut((*kept).min(rest.len()));
                    rest = after;
                    self.write_frame(*at_ns, *host, *passing, *bytes, frame)?;
                }
                Entry::Passage { path, direction, passage } => {
                    self.write_passage(*path, *direction, passage)?;
                }
                Entry::Applied { path, applied } => {
                    let t_s = self.seconds(applied.at_ns);
                    let (dir, change) = (applied.target.keyword(), &applied.change);
                    // Settings hold commas, and never quotes.
                    self.changes.line(format_args!("{t_s:.9},{path},{dir},\"{change}\""))?;
                }
            }
        }
        Ok(())
    }

    fn write_frame(
        &mut self,
        at_ns: u64,
        host: usize,
        passing: Passing,
        bytes: usize,
        frame: &mut [u8],
    ) -> Result<(), RouterError> {
        let t_s = self.seconds(at_ns);
        if let Some((sheet, sequences)) = &mut self.sequence
            && passing == Passing::In
            && let Some(row) = sequences.row(frame.get(VNET_HEADER_BYTES..).unwrap_or_default())
        {
            sheet.line(format_args!("{t_s:.9},{row}"))?;
        }
        let Some(capture) = self.captures.get_mut(host) else { return Ok(()) };
        if frame.len() == bytes {
            complete_checksum(frame);
        }
        let data = frame.get(VNET_HEADER_BYTES..).unwrap_or_default();
        let data = data.get(..data.len().min(self.snap_bytes)).unwrap_or_default();
        let original = bytes.saturating_sub(VNET_HEADER_BYTES) as u32;
        let packet = PcapPacket::new(Duration::from_nanos(at_ns), original, data);
        let written = capture.writer.write_packet(&packet).map(drop);
        written.map_err(|e| pcap_error(&capture.path, e))
    }

    fn write_passage(
        &mut self,
        path: usize,
        direction: Direction,
        passage: &Passage,
    ) -> Result<(), RouterError> {
        let t_s = self.seconds(passage.arrived_ns);
        let Some(sheet) = &mut self.queue else { return Ok(()) };
        let Passage { number, len, queue_packets, queue_bytes, .. } = passage;
        let dir = Target::One(direction).keyword();
        let (wait_s, sojourn_s) = (passage.wait_ns() as f64 / 1e9, passage.sojourn_ns() as f64 / 1e9);
        let marked = u8::from(passage.marked);
        let dropped = passage.dropped.map_or("", uts_path::DropReason::name);
        sheet.line(format_args!(
            "{t_s:.9},{path},{dir},{number},{len},{queue_packets},{queue_bytes},{wait_s:.9},{sojourn_s:.9},{marked},{dropped}"
        ))
    }

    fn finish(self) -> Result<(), RouterError> {
        for Capture { path, writer } in self.captures {
            writer.into_writer().flush().map_err(|cause| RouterError::Record { path, cause })?;
        }
        let sheets = [Some(self.changes), self.queue, self.sequence.map(|(sheet, _)| sheet)];
        sheets.into_iter().flatten().try_for_each(|mut sheet| sheet.checked(BufWriter::flush))
    }

    fn seconds(&self, at_ns: u64) -> f64 {
        at_ns.saturating_sub(self.origin_ns) as f64 / 1e9
    }
}

fn create_capture(config: &RecordConfig, host: usize) -> Result<Capture, RouterError> {
    let path = config.dir.join(format!("host-{host}.pcap"));
    let header = PcapHeader {
        snaplen: config.snap_bytes,
        datalink: DataLink::ETHERNET,
        ts_resolution: TsResolution::NanoSecond,
        endianness: Endianness::native(),
        ..PcapHeader::default()
    };
    let file = File::create(&path).map_err(|cause| RouterError::Record { path: path.clone(), cause })?;
    match PcapWriter::with_header(BufWriter::new(file), header) {
        Ok(writer) => Ok(Capture { path, writer }),
        Err(e) => Err(pcap_error(&path, e)),
    }
}

fn pcap_error(path: &std::path::Path, error: pcap_file::PcapError) -> RouterError {
    let cause = match error {
        pcap_file::PcapError::IoError(cause) => cause,
        other => std::io::Error::other(other),
    };
    RouterError::Record { path: path.to_owned(), cause }
}
