//! The server: takes the file and the voice, echoes keystrokes, and says what came.

use super::{Carried, EndArguments, FILE, KEYS, Kind, config, say, tcp};
use crate::word::{Arrived, KEY_BYTES, TICK, Traffic, VOICE_DEADLINE, VOICE_EVERY, Word};
use anyhow::{Context, Result, anyhow, bail};
use std::cell::RefCell;
use std::collections::BTreeSet;
use std::rc::Rc;
use uts::{Identity, ServerOptions};
use uts_end::Role;
use uts_end::clock::now_ns;
use uts_end::transport::universal::{Opened, UniversalSession};
use uts_traffic::transport::{ReceiveStream, Session, Stream, Transport};

pub(super) async fn run(arguments: &EndArguments) -> Result<()> {
    let mut carried = accept(arguments).await?;
    let came = RefCell::new(Came::default());
    tokio::select! {
        ended = take_file(&mut carried.file, &came) => ended.context("the file"),
        ended = take_voice(&*carried.session, &came) => ended.context("the voice"),
        ended = echo(&mut carried.keys) => ended.context("the keystrokes"),
        ended = tell(&came) => ended,
    }
}

async fn accept(arguments: &EndArguments) -> Result<Carried> {
    let at = arguments.listen.context("--listen is missing")?;
    let session: Rc<dyn Session> = match arguments.kind {
        Kind::Tcp => {
            let mut listener = tcp()?.listen(at).await?;
            say(&Word::Ready(listener.address(), None))?;
            listener.accept().await?
        }
        kind => {
            let identity = Identity::generate()?;
            let mut options = ServerOptions::new(identity.clone());
            options.connection = config(kind, Traffic::Keys);
            let listener = uts::Listener::bind(at, options)?;
            say(&Word::Ready(listener.local_addr(), Some(identity.fingerprint().to_string())))?;
            let connection = listener.accept().await.context("nobody came")?;
            Rc::new(UniversalSession::beside(connection, Role::Server, None, Opened::FirstIsMessages))
        }
    };
    let (mut file, mut keys) = (None, None);
    while file.is_none() || keys.is_none() {
        let mut stream = session.accept().await?;
        let mut purpose = [0];
        read_exact(&mut *stream.receive, &mut purpose).await?;
        match purpose[0] {
            FILE => file = Some(stream),
            KEYS => keys = Some(stream),
            other => bail!("a stream for {other:#04x} came"),
        }
    }
    let missing = || anyhow!("a stream is missing");
    Ok(Carried { session, file: file.ok_or_else(missing)?, keys: keys.ok_or_else(missing)? })
}

async fn read_exact(stream: &mut dyn ReceiveStream, mut buffer: &mut [u8]) -> Result<()> {
    while !buffer.is_empty() {
        match stream.read(buffer).await? {
            0 => bail!("a stream has ended"),
            read => buffer = buffer.get_mut(read..).unwrap_or_default(),
        }
    }
    Ok(())
}

/// Arrivals since they were told last.
#[derive(Default)]
struct Came {
    file_bytes: u64,
    voice: Voice,
}

/// Which messages of a voice have come, and which are late.
#[derive(Default)]
struct Voice {
    /// When the first message was due to leave.
    origin_ns: Option<u64>,
    /// The first message that has not been judged.
    next: u64,
    /// Those behind it that have come in time.
    came: BTreeSet<u64>,
    took_ns: Vec<u64>,
}

impl Voice {
    /// Notes a message that was due then.
    fn on_message(&mut self, index: u64, due_ns: u64, now_ns: u64) {
        let every_ns = VOICE_EVERY.as_nanos() as u64;
        self.origin_ns.get_or_insert_with(|| due_ns.saturating_sub(index.saturating_mul(every_ns)));
        let took_ns = now_ns.saturating_sub(due_ns);
        self.took_ns.push(took_ns);
        if took_ns <= VOICE_DEADLINE.as_nanos() as u64 && index >= self.next {
            self.came.insert(index);
        }
    }

    /// The messages whose deadlines have passed since this was asked last, and those of them that
    /// have kept it.
    fn judge(&mut self, now_ns: u64) -> (u64, u64) {
        let Some(origin_ns) = self.origin_ns else { return (0, 0) };
        let passed_ns = now_ns.saturating_sub(origin_ns).saturating_sub(VOICE_DEADLINE.as_nanos() as u64);
        let until = (passed_ns / VOICE_EVERY.as_nanos() as u64).max(self.next);
        let (due, later) = (until - self.next, self.came.split_off(&until));
        let in_time = std::mem::replace(&mut self.came, later).len() as u64;
        self.next = until;
        (due, in_time)
    }

    fn mean_ms(&mut self) -> Option<f64> {
        let took_ns = std::mem::take(&mut self.took_ns);
        let sum: u64 = took_ns.iter().sum();
        (!took_ns.is_empty()).then(|| sum as f64 / took_ns.len() as f64 / 1e6)
    }
}

async fn take_file(stream: &mut Stream, came: &RefCell<Came>) -> Result<()> {
    let mut buffer = vec![0; 64 << 10];
    loop {
        match stream.receive.read(&mut buffer).await? {
            0 => bail!("has ended"),
            read => came.borrow_mut().file_bytes += read as u64,
        }
    }
}

async fn take_voice(session: &dyn Session, came: &RefCell<Came>) -> Result<()> {
    loop {
        let message = session.receive_message().await?;
        let (Some(index), Some(due_ns)) = (number(&message, 0), number(&message, 8)) else {
            bail!("a message of {} bytes came", message.len());
        };
        came.borrow_mut().voice.on_message(index, due_ns, now_ns());
    }
}

/// Eight bytes of a message as a number.
pub(super) fn number(bytes: &[u8], at: usize) -> Option<u64> {
    Some(u64::from_be_bytes(*bytes.get(at..)?.first_chunk()?))
}

async fn echo(stream: &mut Stream) -> Result<()> {
    let mut key = [0; KEY_BYTES];
    loop {
        read_exact(&mut *stream.receive, &mut key).await?;
        stream.send.write(&key).await?;
    }
}

async fn tell(came: &RefCell<Came>) -> Result<()> {
    let mut told_ns = now_ns();
    loop {
        tokio::time::sleep(TICK).await;
        let now_ns = now_ns();
        let word = {
            let mut came = came.borrow_mut();
            let (voice_due, voice_in_time) = came.voice.judge(now_ns);
            Word::Arrived(Arrived {
                span_s: (now_ns - told_ns) as f64 / 1e9,
                file_bytes: std::mem::take(&mut came.file_bytes),
                voice_due,
                voice_in_time,
                voice_ms: came.voice.mean_ms(),
            })
        };
        say(&word)?;
        told_ns = now_ns;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: u64 = 1_000_000;

    #[test]
    fn a_message_is_judged_once_its_deadline_has_passed() {
        let mut voice = Voice::default();
        assert_eq!(voice.judge(500 * MS), (0, 0), "none has come: nothing is known");
        for (index, took_ms) in [(0, 40), (1, 149), (2, 151), (4, 30)] {
            let due_ns = 1000 * MS + index * 20 * MS;
            voice.on_message(index, due_ns, due_ns + took_ms * MS);
        }
        assert_eq!(voice.judge(1149 * MS), (0, 0));
        // The third was late, and the fourth has not come.
        assert_eq!(voice.judge(1231 * MS), (4, 2));
        assert_eq!(voice.mean_ms(), Some((40.0 + 149.0 + 151.0 + 30.0) / 4.0));
        assert_eq!(voice.judge(1251 * MS), (1, 1), "the fifth");
        assert_eq!((voice.judge(1251 * MS), voice.mean_ms()), ((0, 0), None));
        // One that comes after it was judged counts no more.
        voice.on_message(3, 1060 * MS, 1300 * MS);
        assert_eq!(voice.judge(1351 * MS), (5, 0), "silence is judged as well");
    }

    #[test]
    fn a_first_message_that_is_missing_counts_as_due() {
        let mut voice = Voice::default();
        voice.on_message(3, 1060 * MS, 1070 * MS);
        assert_eq!(voice.judge(1231 * MS), (4, 1));
    }
}
