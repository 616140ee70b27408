//! The log of a server or a tunnel: records with the time of the clock, as text, JSON, or fields of
//! the journal (journald), as far as its [`Filter`] shows them.

use super::json::Json;
use super::plain::{figures, greeting};
use super::record::{Peer, Record};
use super::{Done, Sample, Start, Ui, lines, outcome_name, utc};
use crate::link::{ExchangeStep, Telemetry};
use std::fmt::{self, Write as _};
use std::io::Write;
use std::os::unix::net::UnixDatagram;
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use tracing::field::{Field, Visit};
use tracing::{Event, Level, Metadata, Subscriber};
use tracing_subscriber::filter::{LevelFilter, Targets};
use tracing_subscriber::layer::{Context, Layer, SubscriberExt};
use uts_end::output::Output;
use uts_files::FileOutcome;
use uts_ledger::Row;
use uts_units::show;

/// Time between two lines of progress, where such are shown.
const PERIOD: Duration = Duration::from_secs(3);

/// The socket at which the journal takes records (systemd's native protocol).
const JOURNAL: &str = "/run/systemd/journal/socket";

/// Records that are shown: as `-q` and `-v` say, or else the variable `RUST_LOG`, as
/// `info,uts::stream=debug`.
#[derive(Clone, Debug)]
pub struct Filter(Targets);

impl Filter {
    /// As the command line says (`verbose`: how often `-v` was given), or else the environment.
    ///
    /// # Errors
    /// What is wrong with `RUST_LOG`, in one line.
    pub fn new(verbose: u8, quiet: bool) -> Result<Filter, String> {
        let level = match (quiet, verbose) {
            (true, _) => LevelFilter::WARN,
            (false, 0) => {
                return match std::env::var("RUST_LOG") {
                    Ok(text) if !text.trim().is_empty() => Filter::read(&text),
                    _ => Ok(Filter::of(LevelFilter::INFO)),
                };
            }
            (false, 1) => LevelFilter::DEBUG,
            (false, _) => LevelFilter::TRACE,
        };
        Ok(Filter::of(level))
    }

    fn of(level: LevelFilter) -> Filter {
        Filter(Targets::new().with_default(level))
    }

    fn read(text: &str) -> Result<Filter, String> {
        let targets = text.parse().map_err(|error| {
            format!("RUST_LOG={text}: {error}; write a level, or TARGET=LEVEL, as info,uts::stream=debug")
        });
        targets.map(Filter)
    }

    fn shows(&self, event: &str, level: &Level) -> bool {
        self.0.would_enable(&format!("uts::{event}"), level)
    }
}

/// The form in which records leave.
enum Form {
    Text(Mutex<Box<dyn Write + Send>>),
    Json(Json<Box<dyn Write + Send>>),
    Journal(UnixDatagram),
}

/// A log.
pub struct Log {
    form: Form,
    filter: Filter,
}

impl Log {
    /// The one that the options and standard error call for.
    pub fn new(json: bool, filter: Filter) -> Log {
        if json {
            return Log::json(Output::Out, filter);
        }
        match journal(Path::new(JOURNAL)) {
            Some(journal) => Log { form: Form::Journal(journal), filter },
            None => Log::text(Output::Err, filter),
        }
    }

    /// A log of lines of text.
    pub fn text(out: impl Write + Send + 'static, filter: Filter) -> Log {
        Log { form: Form::Text(Mutex::new(Box::new(out))), filter }
    }

    /// A log of objects.
    pub fn json(out: impl Write + Send + 'static, filter: Filter) -> Log {
        Log { form: Form::Json(Json::new(Box::new(out))), filter }
    }

    /// Has what the libraries tell of themselves (`tracing`) written by `ui` as well, as far as
    /// this filter shows it. Once in a process; a later call changes nothing.
    pub fn listen(&self, ui: Arc<dyn Ui>) {
        let listener = tracing_subscriber::registry().with(self.filter.0.clone()).with(Library(ui));
        let _ = tracing::subscriber::set_global_default(listener);
    }

    fn write(&self, record: &Record<'_>) {
        if !self.wants(record) {
            return;
        }
        match &self.form {
            Form::Json(json) => json.record(record),
            Form::Text(out) => {
                let line = format!("{} {}", utc(), record.text());
                lines::say(&mut *out.lock().unwrap_or_else(PoisonError::into_inner), line);
            }
            Form::Journal(journal) => {
                if journal.send(entry(record).as_bytes()).is_err() {
                    lines::tell(format_args!("{} {}", utc(), record.text()));
                }
            }
        }
    }
}

/// A connection to the journal, if standard error leads there (`JOURNAL_STREAM` names the device
/// and the number of its socket).
fn journal(at: &Path) -> Option<UnixDatagram> {
    let stream = std::env::var("JOURNAL_STREAM").ok()?;
    let (device, number) = stream.split_once(':')?;
    let here = rustix::fs::fstat(Output::Err.handle().ok()?).ok()?;
    if device.parse() != Ok(here.st_dev) || number.parse() != Ok(here.st_ino) {
        return None;
    }
    let socket = UnixDatagram::unbound().ok()?;
    socket.connect(at).ok().map(|()| socket)
}

/// A record as an entry of the journal: a field a line.
fn entry(record: &Record<'_>) -> String {
    let priority = match record.level {
        Level::ERROR => 3,
        Level::WARN => 4,
        Level::INFO => 6,
        _ => 7,
    };
    let mut out =
        format!("MESSAGE={}\nPRIORITY={priority}\nSYSLOG_IDENTIFIER=uts\n", lines::line(record.text()));
    for (name, value) in record.fields().iter().filter(|(name, _)| *name != "line") {
        let text = value.as_str().map_or_else(|| value.to_string(), str::to_owned);
        // No text has an end of line in it.
        let _ = writeln!(out, "UTS_{}={}", name.to_uppercase(), lines::line(text));
    }
    out
}

impl Ui for Log {
    fn start(&self, start: &Start) {
        match &self.form {
            Form::Json(json) => json.start(start),
            _ => self.write(&Record { event: "start", line: &greeting(start), ..Record::default() }),
        }
    }

    fn wants(&self, record: &Record<'_>) -> bool {
        self.filter.shows(record.event, &record.level)
    }

    fn record(&self, record: &Record<'_>) {
        self.write(record);
    }

    fn notice(&self, peer: Option<&Peer>, step: &str, line: &str) {
        self.write(&Record { step, peer, line, ..Record::default() });
    }

    fn sample(&self, peer: Option<&Peer>, sample: &Sample) {
        match &self.form {
            Form::Json(json) => json.sample(peer, sample),
            _ => {
                let line = &figures(sample);
                self.write(&Record {
                    level: Level::DEBUG,
                    event: "progress",
                    peer,
                    line,
                    ..Record::default()
                });
            }
        }
    }

    fn exchange(&self, peer: Option<&Peer>, step: &ExchangeStep) {
        match &self.form {
            Form::Json(json) => json.exchange(peer, step),
            _ => {
                let (line, step) = (&step.describe(), step.step);
                self.write(&Record { event: "exchange", step, peer, line, ..Record::default() });
            }
        }
    }

    fn file(&self, peer: Option<&Peer>, name: &str, bytes: u64, outcome: &FileOutcome, about: &Telemetry) {
        match &self.form {
            Form::Json(json) => json.file(peer, name, bytes, outcome, about),
            _ => {
                let line = &match outcome {
                    FileOutcome::Failed(error) => error.to_string(),
                    _ => show::bytes(bytes),
                };
                let (step, place) = (outcome_name(outcome), name);
                self.write(&Record { event: "file", step, peer, place, line, ..Record::default() });
            }
        }
    }

    fn warning(&self, line: &str) {
        match &self.form {
            Form::Json(json) => json.warning(line),
            _ => {
                let line = &format!("uts: warning: {line}");
                self.write(&Record { level: Level::WARN, event: "warning", line, ..Record::default() });
            }
        }
    }

    fn error(&self, line: &str) {
        match &self.form {
            Form::Json(json) => json.error(line),
            _ => {
                let line = &format!("uts: {line}");
                self.write(&Record { level: Level::ERROR, event: "error", line, ..Record::default() });
            }
        }
    }

    fn failed(&self, line: &str) {
        if let Form::Json(json) = &self.form {
            json.failed(line);
        }
    }

    fn done(&self, done: &Done) {
        if let Form::Json(json) = &self.form {
            json.done(done);
        }
    }

    fn ledger(&self, rows: &[Row]) {
        if let Form::Json(json) = &self.form {
            json.ledger(rows);
        }
    }

    fn period(&self) -> Option<Duration> {
        match &self.form {
            Form::Json(json) => json.period(),
            _ => self.filter.shows("progress", &Level::DEBUG).then_some(PERIOD),
        }
    }
}

/// Words of the libraries, as records.
struct Library(Arc<dyn Ui>);

impl<S: Subscriber> Layer<S> for Library {
    fn on_event(&self, event: &Event<'_>, _: Context<'_, S>) {
        let about: &Metadata<'_> = event.metadata();
        let mut said = Said::default();
        event.record(&mut said);
        let line = format!("{}{}", said.message, said.fields);
        let (level, step) = (*about.level(), about.target());
        self.0.record(&Record { level, event: LIBRARY, step, line: &line, ..Record::default() });
    }
}

/// Kind of the events of libraries.
pub const LIBRARY: &str = "library";

/// The message of an event, and its fields in words.
#[derive(Default)]
struct Said {
    message: String,
    fields: String,
}

impl Visit for Said {
    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        // To a text nothing fails to be written.
        let _ = match field.name() {
            "message" => write!(self.message, "{value:?}"),
            name => write!(self.fields, " {name}={value:?}"),
        };
    }
}

/// Nothing is written.
#[cfg(test)]
pub fn nowhere() -> Arc<dyn Ui> {
    Arc::new(Log::text(std::io::sink(), Filter::of(LevelFilter::OFF)))
}

#[cfg(test)]
pub mod tests {
    use super::*;
    use std::sync::{Arc, Mutex};

    /// Bytes that were written, shared with the test.
    #[derive(Clone, Default)]
    pub struct Kept(pub Arc<Mutex<Vec<u8>>>);

    impl Write for Kept {
        fn write(&mut self, data: &[u8]) -> std::io::Result<usize> {
            self.0.lock().unwrap().write(data)
        }

        fn flush(&mut self) -> std::io::Result<()> {
            Ok(())
        }
    }

    impl Kept {
        /// The lines so far, which are forgotten.
        pub fn take(&self) -> Vec<String> {
            let text = String::from_utf8(std::mem::take(&mut *self.0.lock().unwrap())).unwrap();
            text.lines().map(str::to_owned).collect()
        }
    }

    /// A log of text that shows what this filter does.
    pub fn log(kept: &Kept, filter: &str) -> Log {
        Log::text(kept.clone(), Filter::read(filter).unwrap())
    }

    fn record(level: Level, event: &'static str) -> Record<'static> {
        Record { level, event, step: "closed", line: "why", ..Record::default() }
    }

    #[test]
    fn lines_begin_with_the_time_and_are_shown_as_the_filter_says() {
        let kept = Kept::default();
        let quiet = log(&kept, "info,uts::stream=debug");
        for (level, event, shown) in [
            (Level::INFO, "connection", true),
            (Level::DEBUG, "connection", false),
            (Level::DEBUG, "stream", true),
            (Level::TRACE, "stream", false),
        ] {
            quiet.record(&record(level, event));
            let lines = kept.take();
            assert_eq!(lines.len(), usize::from(shown), "{level} {event}: {lines:?}");
            for line in lines {
                let (time, rest) = line.split_once(' ').unwrap();
                let form = time.replace(|c: char| c.is_ascii_digit(), "0");
                assert_eq!((form.as_str(), rest), ("0000-00-00T00:00:00.000Z", "closed: why"));
            }
        }
        log(&kept, "warn").notice(None, "lost", "a notice");
        log(&kept, "warn").warning("a warning");
        assert_eq!(kept.take().len(), 1);
        let why = Filter::read("uts=loud").unwrap_err();
        assert!(why.contains("RUST_LOG=uts=loud") && why.lines().count() == 1, "{why}");
    }

    #[test]
    fn the_journal_has_a_field_a_line_whatever_a_peer_says() {
        let peer = Peer::client("192.0.2.1:5", Some("SHA256:x"), "a\nPRIORITY=0");
        let record = Record { peer: Some(&peer), bytes: Some([1, 2]), ..record(Level::WARN, "stream") };
        let text = entry(&record);
        let names: Vec<&str> = text.lines().map(|line| line.split_once('=').unwrap().0).collect();
        let mut sorted = names.clone();
        sorted.sort_unstable();
        sorted.dedup();
        assert_eq!(sorted.len(), names.len(), "{text}");
        for line in
            ["PRIORITY=4", "UTS_PEER=192.0.2.1:5", "UTS_KEY=SHA256:x", "UTS_STEP=closed", "UTS_BYTES_OUT=2"]
        {
            assert!(text.lines().any(|has| has == line), "{line} not in\n{text}");
        }
    }

    #[test]
    fn what_libraries_tell_is_a_record() {
        let kept = Kept::default();
        let ui = Arc::new(log(&kept, "debug"));
        let listener = tracing_subscriber::registry().with(ui.filter.0.clone()).with(Library(ui.clone()));
        tracing::subscriber::with_default(listener, || {
            tracing::debug!(target: "uts::driver", error = 3, "socket\nforged");
            tracing::trace!(target: "uts::driver", "not shown");
        });
        let lines = kept.take();
        assert_eq!(lines.len(), 1, "{lines:?}");
        assert!(lines[0].contains(" uts::driver: socket") && lines[0].ends_with("error=3"), "{lines:?}");
    }
}
