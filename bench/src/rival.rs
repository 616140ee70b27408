//! SRT and ENet, by the ends that experiments use (`make rivals`).

use crate::child::Lines;
use crate::ends::{Outcome, Transport};
use crate::works::Pair;
use crate::world::{Place, World};
use anyhow::{Context, Result, bail, ensure};
use serde_json::{Value, json};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;
use uts_end::line::{self, Line, Ready, Status};

/// Where the program is looked for after [`VARIABLE`], seen from this workspace.
const BUILT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../rivals/target/release/uts-rival");

/// The same variable as experiments heed.
const VARIABLE: &str = "UTS_RIVALS";

fn program() -> PathBuf {
    std::env::var_os(VARIABLE).map_or_else(|| BUILT.into(), PathBuf::from)
}

/// Why a transport cannot be measured, if it cannot.
pub fn missing(transport: Transport) -> Option<String> {
    let name = transport.name();
    let list = Command::new(program()).arg("list").stderr(Stdio::null()).output();
    let Ok(list) = list else {
        return Some(format!("{name}: rivals are not built; to have them: make rivals"));
    };
    let lines = String::from_utf8_lossy(&list.stdout);
    let found = lines.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok());
    let Some(rival) = found.into_iter().find(|rival| rival["name"] == name) else {
        return Some(format!("{name}: {} does not know it", program().display()));
    };
    let text = |key: &str| rival[key].as_str().unwrap_or("?").to_owned();
    (rival["available"] != true).then(|| format!("{name}: {}; to have it: {}", text("why"), text("get")))
}

/// Bulk data from the client to the server, and both ends' outcomes. Unlike the other ends, these
/// count from the first byte on.
pub fn bulk(world: &World, place: Place, transport: Transport, pair: &Pair) -> Result<(Outcome, Outcome)> {
    let files = Files::new()?;
    let patience = pair.duration + Duration::from_secs(20);
    let shared = |command: &mut Command, core: usize, role: &str| {
        command.env(uts_end::PARENT_VARIABLE, std::process::id().to_string());
        command.args(["-c", &core.to_string()]).arg(program()).args(["end", "--role", role]);
        command.args(["--transport", &json!({"kind": transport.name()}).to_string()]);
        let duration = format!("{}ms", pair.duration.as_millis());
        command.args(["--workload", &json!({"kind": "bulk", "duration": duration}).to_string()]);
        command.args(["--give-up", "10s", "--sample-every", "1s", "--out"]).arg(files.of(role));
    };
    let mut server = world.at_server(place, "taskset");
    shared(&mut server, pair.server_core, "server");
    server.args(["--listen", &format!("{}:0", world.server_ip(place))]);
    let mut server = Lines::start("server of a rival", &mut server, patience)?;
    let ready: Ready = serde_json::from_str(&server.line()?)?;
    let mut client = Command::new("taskset");
    shared(&mut client, pair.client_core, "client");
    client.args(["--to", &ready.address.to_string()]);
    Lines::start("client of a rival", &mut client, patience)?.rest()?;
    server.rest()?;
    Ok((outcome(&files.of("client"), "sent")?, outcome(&files.of("server"), "delivered")?))
}

/// What an end has written of itself.
fn outcome(file: &Path, moved: &str) -> Result<Outcome> {
    let lines = line::read(file)?;
    let bytes = lines.iter().find_map(|line| match line {
        Line::Measure(measure) if measure.name == moved => Some(measure.value),
        _ => None,
    });
    let bytes = bytes.with_context(|| format!("nothing was {moved}"))?;
    let Some(Line::End(end)) = lines.last() else { bail!("an end without last words") };
    ensure!(end.status == Status::Ok, "{}", end.why.as_deref().unwrap_or("it was cut short"));
    Ok(Outcome {
        bytes: bytes as u64,
        counted_bytes: bytes as u64,
        counted_s: end.wall_s,
        cpu_s: end.cpu_s,
        lost_packets: end.repeated_packets.unwrap_or(0),
        ..Outcome::default()
    })
}

/// Where two ends write, as long as it is needed.
struct Files(PathBuf);

impl Files {
    fn new() -> Result<Self> {
        let dir = std::env::temp_dir().join(format!("uts-bench-{}", std::process::id()));
        std::fs::create_dir_all(&dir).with_context(|| dir.display().to_string())?;
        Ok(Files(dir))
    }

    fn of(&self, role: &str) -> PathBuf {
        self.0.join(role).with_extension("ndjson")
    }
}

impl Drop for Files {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}
