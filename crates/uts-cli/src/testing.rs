//! The commands over a transport inside the process: a client and a server task that talk through
//! memory.

use crate::args::{Args, Command, CpArgs};
use crate::cmd::{Failure, cp, serve};
use crate::given::PathGiven;
use crate::link::*;
use crate::target::Host;
use crate::ui::json::Json;
use clap::Parser;
use serde_json::Value;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use tokio::sync::{mpsc, oneshot};
use uts_files::memory::{MemoryFlows, pair};

type Waiting = mpsc::UnboundedSender<MemoryLink>;

/// One server at a time, at any address.
#[derive(Default)]
struct Memory {
    server: Mutex<Option<Waiting>>,
    connected_with: Mutex<Option<ConnectOptions>>,
}

#[derive(Clone)]
struct MemoryLink(Arc<MemoryFlows>, &'static str);

struct MemoryListener(mpsc::UnboundedReceiver<MemoryLink>);

impl Carrying for MemoryLink {
    type Flows = MemoryFlows;

    fn flows(&self) -> Arc<MemoryFlows> {
        self.0.clone()
    }

    fn hearing(&self) -> mpsc::UnboundedReceiver<bool> {
        let (sender, receiver) = mpsc::unbounded_channel();
        // Kept open, as that of a connection that goes on.
        std::mem::forget(sender);
        receiver
    }

    fn broken(&self) -> Option<Broken> {
        None
    }

    fn is_lost(&self) -> bool {
        true
    }
}

impl Link for MemoryLink {
    fn connection(&self) -> Option<uts::Connection> {
        None
    }

    fn telemetry(&self) -> Telemetry {
        Telemetry {
            rate_bps: 1e6,
            rtt_ms: 40.0,
            loss: 0.01,
            profile: "cubic, no fec".into(),
            packets_sent: 10,
            ..Telemetry::default()
        }
    }

    fn undelivered_bytes(&self) -> Option<u64> {
        Some(0)
    }

    fn content_bytes(&self) -> [u64; 2] {
        [0, 0]
    }

    fn events(&self) -> mpsc::UnboundedReceiver<LinkEvent> {
        let (sender, receiver) = mpsc::unbounded_channel();
        let step = |step, line: &str| ExchangeStep {
            step,
            direction: "out",
            epoch: 3,
            seen: "5 % loss".into(),
            changes: "fec: none -> xor".into(),
            expects: "90 %".into(),
            line: line.into(),
            ..ExchangeStep::default()
        };
        sender.send(LinkEvent::Exchange(step("requested", ""))).unwrap();
        sender.send(LinkEvent::Exchange(step("completed", ""))).unwrap();
        sender.send(LinkEvent::Exchange(step("brought", "91 %"))).unwrap();
        // Kept open, as that of a connection that goes on.
        std::mem::forget(sender);
        receiver
    }

    fn service(&self) -> String {
        String::new()
    }

    fn peer(&self) -> (String, Option<String>) {
        (self.1.into(), Some("SHA256:abc".into()))
    }

    fn trace(&self, file: &Path) -> Result<(), String> {
        std::fs::write(file, "t_s,kind,number,bytes,flow,position\n").map_err(|e| e.to_string())
    }

    async fn close(&self, _: u64, _: &str) {}
}

impl Listener for MemoryListener {
    type Link = MemoryLink;

    fn local_addr(&self) -> SocketAddr {
        SocketAddr::from(([127, 0, 0, 1], 4433))
    }

    fn fingerprint(&self) -> String {
        "SHA256:abc".into()
    }

    async fn accept(&mut self) -> Option<Result<MemoryLink, TurnedAway>> {
        self.0.recv().await.map(Ok)
    }

    fn set_limits(&self, _: Limits) {}

    fn set_authorized_keys(&self, _: &Path) -> Result<(), String> {
        Ok(())
    }

    fn refused(&self) -> u64 {
        0
    }

    fn connections(&self) -> usize {
        0
    }

    async fn hand_over(&self) -> Result<(uts::Handover, uts::TakenOver), String> {
        Err("memory has no port".into())
    }

    fn pulse(&self) -> uts::Pulse {
        uts::Pulse::default()
    }

    async fn close(self) {}
}

impl Transport for Memory {
    type Link = MemoryLink;
    type Listener = MemoryListener;

    async fn connect(&self, host: &Host, options: &ConnectOptions) -> Result<MemoryLink, Broken> {
        *self.connected_with.lock().unwrap() = Some(options.clone());
        let (ours, theirs) = pair(64 * 1024);
        let nobody = || Broken::for_good(format!("{host}: no answer"));
        let server = self.server.lock().unwrap().clone().ok_or_else(nobody)?;
        server.send(MemoryLink(Arc::new(theirs), "client")).map_err(|_| nobody())?;
        Ok(MemoryLink(Arc::new(ours), "server"))
    }

    async fn listen(&self, _: &ListenOptions, _: Option<uts::TakenOver>) -> Result<MemoryListener, String> {
        let (sender, receiver) = mpsc::unbounded_channel();
        *self.server.lock().unwrap() = Some(sender);
        Ok(MemoryListener(receiver))
    }

    fn keygen(&self, _: Option<&Path>) -> Result<(PathBuf, String, bool), String> {
        Err("no keys in memory".into())
    }

    fn fingerprint(&self, _: Option<&Path>, _: bool) -> Result<String, String> {
        Err("no keys in memory".into())
    }

    fn explain(
        &self,
        _: &[(String, String)],
        _: &PathGiven,
        _: Option<&str>,
        _: bool,
    ) -> Result<String, String> {
        Err("nothing to explain in memory".into())
    }
}

/// Output that was written, shared with the test.
#[derive(Clone, Default)]
struct Written(Arc<Mutex<Vec<u8>>>);

impl std::io::Write for Written {
    fn write(&mut self, data: &[u8]) -> std::io::Result<usize> {
        self.0.lock().unwrap().extend_from_slice(data);
        Ok(data.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

impl Written {
    fn events(&self) -> Vec<Value> {
        let text = String::from_utf8(self.0.lock().unwrap().clone()).unwrap();
        text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
    }
}

fn named<'a>(events: &'a [Value], name: &str) -> Vec<&'a Value> {
    events.iter().filter(|e| e["event"] == name).collect()
}

fn cp_args(line: &[&str]) -> CpArgs {
    match Args::try_parse_from([&["uts", "cp"], line].concat()).unwrap().command {
        Command::Cp(args) => args,
        other => panic!("{other:?}"),
    }
}

struct Run {
    dir: tempfile::TempDir,
    transport: Arc<Memory>,
    server: Written,
    stop: oneshot::Sender<()>,
    serving: tokio::task::JoinHandle<Result<(), Failure>>,
}

impl Run {
    async fn new() -> Run {
        let dir = tempfile::tempdir().unwrap();
        std::fs::create_dir(dir.path().join("served")).unwrap();
        let line = ["--json", "--writable", "--anyone", "--dir"].map(std::ffi::OsString::from);
        let line: Vec<_> = line.into_iter().chain([dir.path().join("served").into()]).collect();
        let settings = serve::Settings::read(&line).unwrap();
        let source = serve::Source { words: line, wanted: mpsc::channel(1).1 };
        let transport = Arc::new(Memory::default());
        let server = Written::default();
        let (stop, stopped) = oneshot::channel();
        let serving = tokio::spawn({
            let (transport, ui) = (transport.clone(), Arc::new(Json::new(server.clone())));
            async move {
                let end = async { drop(stopped.await) };
                serve::serve(&*transport, settings, source, ui, Default::default(), end).await
            }
        });
        while server.events().is_empty() {
            tokio::task::yield_now().await;
        }
        Run { dir, transport, server, stop, serving }
    }

    fn path(&self, name: &str) -> String {
        self.dir.path().join(name).to_str().unwrap().to_owned()
    }

    async fn cp(&self, line: &[&str]) -> (Result<(), Failure>, Vec<Value>) {
        let out = Written::default();
        let result = cp::copy(
            &*self.transport,
            &cp_args(line),
            Arc::new(Json::new(out.clone())),
            std::future::pending(),
        )
        .await;
        (result, out.events())
    }

    async fn end(self) -> Vec<Value> {
        self.stop.send(()).unwrap();
        self.serving.await.unwrap().unwrap();
        self.server.events()
    }
}

#[tokio::test]
async fn a_file_goes_and_comes_back_and_is_told_in_json() {
    let run = Run::new().await;
    std::fs::write(run.path("f"), vec![7; 300_000]).unwrap();
    let (result, events) =
        run.cp(&["--json", "--trace", &run.path("trace"), &run.path("f"), "uts://h/g"]).await;
    assert_eq!(result, Ok(()));
    assert_eq!(std::fs::read(run.path("served/g")).unwrap(), vec![7; 300_000]);
    assert!(
        std::fs::read_to_string(run.path("trace"))
            .unwrap()
            .starts_with("t_s,kind,number,bytes,flow,position")
    );
    assert_eq!(named(&events, "start")[0]["fingerprint"], "SHA256:abc");
    let steps: Vec<_> =
        named(&events, "exchange").iter().map(|e| e["step"].as_str().unwrap().to_owned()).collect();
    assert_eq!(steps, ["requested", "completed", "brought"]);
    assert_eq!(
        named(&events, "exchange")[0]["line"],
        "exchange 3: saw 5 % loss; changes fec: none -> xor; expects 90 %"
    );
    let progress = *named(&events, "progress").last().unwrap();
    assert_eq!((&progress["bytes"], &progress["total"]), (&300_000.into(), &300_000.into()));
    for field in ["rate_bps", "rtt_ms", "loss", "profile", "packets_sent", "t"] {
        assert!(!progress[field].is_null(), "{field}");
    }
    let done = named(&events, "done")[0];
    assert_eq!((&done["files"], &done["bytes"], &done["exchanges"]), (&1.into(), &300_000.into(), &1.into()));
    assert_eq!(done["hash"], named(&events, "file")[0]["hash"]);

    let (result, events) = run.cp(&["--json", "uts://h/g", &run.path("back")]).await;
    assert_eq!(result, Ok(()));
    assert_eq!(std::fs::read(run.path("back")).unwrap(), vec![7; 300_000]);
    assert_eq!(named(&events, "done")[0]["hash"], done["hash"]);
    let told = run.end().await;
    assert_eq!(named(&told, "start")[0]["address"], "127.0.0.1:4433");
    assert_eq!(named(&told, "file").len(), 2);
    assert_eq!(named(&told, "file")[0]["peer"], "client");
}

#[tokio::test]
async fn failures_are_told_and_others_copied() {
    let run = Run::new().await;
    std::fs::write(run.path("f"), "x").unwrap();
    std::fs::create_dir(run.path("served/d")).unwrap();
    let (result, events) = run.cp(&[&run.path("f"), &run.path("missing"), "uts://h/d/"]).await;
    assert_eq!(result, Err(Failure::Told));
    assert_eq!(Failure::Told.status(), 1);
    let errors = named(&events, "error");
    assert_eq!(errors.len(), 1);
    assert!(errors[0]["message"].as_str().unwrap().ends_with("missing: no such file or directory"));
    assert_eq!(named(&events, "done")[0]["failures"], 1);
    assert!(Path::new(&run.path("served/d/f")).exists());

    let (result, _) = run.cp(&["a", "b"]).await;
    assert_eq!(result.unwrap_err().status(), 2);
    let pin = format!("SHA256:{}", "A".repeat(43));
    let asked = ["--pin", &pin, "--property", "minSendRate=1Mbit/s", "--no-adapt"];
    let (result, _) = run.cp(&[&asked[..], &[&run.path("f"), "uts://h/"]].concat()).await;
    assert_eq!(result, Ok(()));
    let with = run.transport.connected_with.lock().unwrap().clone().unwrap();
    assert_eq!(with.trust, ServerTrust::Pin(pin));
    assert_eq!(
        with.properties,
        [("minSendRate".into(), "1Mbit/s".into()), ("uts.adapt".into(), "false".into())]
    );
    run.end().await;
    let error = cp::copy(
        &Memory::default(),
        &cp_args(&["a", "uts://h:7/"]),
        Arc::new(Json::new(std::io::sink())),
        std::future::pending(),
    )
    .await;
    assert_eq!(error, Err(Failure::Failed("h:7: no answer".into())));
}

#[tokio::test]
async fn an_interrupted_copy_says_how_to_go_on_and_does() {
    let run = Run::new().await;
    let data: Vec<u8> = (0..4_000_000u32).map(|i| (i.wrapping_mul(i) >> 8) as u8).collect();
    std::fs::write(run.path("served/f"), &data).unwrap();
    let part = run.path(".f.uts-part");
    let interrupt = async {
        while std::fs::metadata(&part).map_or(0, |m| m.len()) < 500_000 {
            tokio::task::yield_now().await;
        }
    };
    let args = cp_args(&["uts://h/f", &run.path("f")]);
    let result = cp::copy(&*run.transport, &args, Arc::new(Json::new(std::io::sink())), interrupt).await;
    assert_eq!(result, Err(Failure::Interrupted(cp::INTERRUPTED.into())));
    assert_eq!(result.unwrap_err().status(), 130);
    assert!(!Path::new(&run.path("f")).exists());
    let (result, events) = loop {
        // The thread that writes the part may need a moment to let go of it.
        let (result, events) = run.cp(&["uts://h/f", &run.path("f")]).await;
        if !named(&events, "error").iter().any(|e| e["message"].as_str().unwrap().contains("under way")) {
            break (result, events);
        }
    };
    assert_eq!(result, Ok(()), "{events:?}");
    assert!(named(&events, "done")[0]["bytes_carried"].as_u64().unwrap() < 3_600_000);
    assert_eq!(std::fs::read(run.path("f")).unwrap(), data);
    run.end().await;
}

/// Says the words of a test peer in every place in which the program shows such.
fn say_everywhere(ui: &dyn crate::ui::Ui, said: &str) {
    use crate::ui::record::{Peer, Record};
    use crate::ui::{Done, Sample, Served, Start};
    use uts_files::{Fault, FaultKind, FileError, FileOutcome};
    let text = || said.to_owned();
    let telemetry = Telemetry { profile: text(), ..Telemetry::default() };
    let served = Served { clients: text(), ..Served::default() };
    for served in [None, Some(served)] {
        let (address, fingerprint, subject) = (text(), text(), text());
        ui.start(&Start { command: "cp", address, fingerprint, subject, served });
    }
    let about = Peer { address: text(), key: Some(text()), service: Some(text()) };
    let (bytes, lasted) = (Some([1, 2]), Some(std::time::Duration::from_secs(1)));
    let record =
        Record { event: "stream", step: "closed", peer: Some(&about), bytes, lasted, ..Record::default() };
    ui.record(&Record { place: said, line: said, ..record });
    ui.notice(None, "lost", said);
    ui.notice(Some(&about), "silent", said);
    for peer in [None, Some(&about)] {
        ui.sample(peer, &Sample { telemetry: telemetry.clone(), ..Sample::default() });
        for step in ["requested", "completed", "granted", "brought", "refused"] {
            let (seen, changes, expects) = (text(), text(), text());
            let step = ExchangeStep { step, seen, changes, expects, ..ExchangeStep::default() };
            ui.exchange(peer, &ExchangeStep { line: text(), profile: text(), ..step });
        }
        let why = FileError::Peer(Fault::new(FaultKind::Io, said.as_bytes(), said));
        for outcome in [FileOutcome::Failed(why), FileOutcome::Failed(FileError::Protocol(text()))] {
            ui.file(peer, said, 1, &outcome, &telemetry);
        }
        ui.file(peer, said, 1, &FileOutcome::Copied([7; 32]), &telemetry);
    }
    ui.warning(said);
    ui.error(said);
    ui.done(&Done { hash: Some(text()), telemetry, ..Done::default() });
}

fn lines_written(written: &Written) -> usize {
    let text = String::from_utf8(written.0.lock().unwrap().clone()).unwrap();
    assert!(text.chars().all(|c| c == '\n' || uts::printable::is_plain(c)), "{text:?}");
    assert!(text.lines().all(|line| line.chars().count() < 1_000_000), "a line without an end");
    text.lines().count()
}

/// A peer's text reaches a terminal only in a safe form: no control character, no line of its own,
/// no end of text.
#[test]
fn no_text_of_a_peer_steers_a_terminal() {
    use crate::ui::plain::Plain;
    use proptest::prelude::*;
    use proptest::test_runner::{Config, TestRunner};
    let tell = |said: &str| {
        let (json, lines, results) = (Written::default(), Written::default(), Written::default());
        let logged = Written::default();
        let filter = crate::ui::log::Filter::new(2, false).unwrap();
        say_everywhere(&crate::ui::log::Log::text(logged.clone(), filter), said);
        say_everywhere(&Json::new(json.clone()), said);
        say_everywhere(&Plain::new(lines.clone(), results.clone(), false), said);
        assert!(json.events().len() > 10);
        (lines_written(&json), lines_written(&lines), lines_written(&results), lines_written(&logged))
    };
    let plain = tell("a word");
    for said in ["\u{1b}]0;title\u{7}", "a\nuts: connected as admin\r", "\u{9b}2J\u{202e}\u{2028}\u{7f}\0"] {
        assert_eq!(tell(said), plain, "{said:?} makes lines of its own");
    }
    assert_eq!(tell(&"x\n".repeat(1_000_000)), plain);
    let characters = prop_oneof![any::<char>(), proptest::char::range('\0', '\u{9f}'), Just('\u{202e}')];
    let texts =
        proptest::collection::vec(characters, 0..60).prop_map(|all| all.into_iter().collect::<String>());
    let mut runner = TestRunner::new(Config { failure_persistence: None, ..Config::with_cases(200) });
    runner
        .run(&texts, |said| {
            prop_assert_eq!(tell(&said), plain);
            Ok(())
        })
        .unwrap();
}
