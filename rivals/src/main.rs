//! `uts-rival`: one end of a measured run over a transport other than UTS.

use clap::{Parser, Subcommand};
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use std::process::ExitCode;
use std::time::Duration;
use uts_end::output::{self, Lost, Output};
use uts_end::{Context, Role, TransportSpec};
use uts_traffic::transport::Capabilities;
use uts_traffic::workload::{Workload, can_carry};

#[derive(Parser)]
#[command(about = "One end of a measured run over a transport other than UTS", version)]
struct Program {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Run one end of a measured run
    End(Box<uts_end::Arguments>),
    /// Say whether a rival with its settings can carry a workload: {"why":null}, or why not
    Check {
        /// The transport, as {"kind":"srt","mode":"file"}
        #[arg(long, value_name = "JSON", value_parser = json::<TransportSpec>)]
        transport: TransportSpec,
        /// The workload, as {"kind":"bulk","bytes":"16MB"}
        #[arg(long, value_name = "JSON", value_parser = json::<Workload>)]
        workload: Workload,
    },
    /// Print a line of JSON for each rival: its version, settings and capabilities, or why it is
    /// missing and how to have it
    List,
}

fn main() -> ExitCode {
    output::name("uts-rival");
    let program = match output::parse::<Program>() {
        Ok(program) => program,
        Err(status) => return status,
    };
    let result = match program.command {
        Command::End(arguments) => uts_end::run(&uts_rival::provide, &arguments).map(drop),
        Command::Check { transport, workload } => {
            let why = json!({"why": refusal(&transport, &workload).err()});
            Output::Out.line(&why.to_string()).map_err(Into::into)
        }
        Command::List => list(),
    };
    match result {
        Ok(()) => output::status(0),
        // It has been noted, and told if that is of use.
        Err(error) if error.is::<Lost>() => output::status(0),
        Err(error) => {
            output::fail(format_args!("{error:#}"));
            output::status(1)
        }
    }
}

fn list() -> anyhow::Result<()> {
    for rival in uts_rival::list() {
        let mut line = serde_json::to_value(&rival)?;
        if let (true, Some(fields)) = (rival.available, line.as_object_mut()) {
            fields.insert("capabilities".into(), capabilities(rival.name));
        }
        Output::Out.line(&line.to_string())?;
    }
    Ok(())
}

fn json<T: DeserializeOwned>(text: &str) -> Result<T, String> {
    serde_json::from_str(text).map_err(|e| e.to_string())
}

fn refusal(transport: &TransportSpec, workload: &Workload) -> Result<(), String> {
    let context = Context { role: Role::Server, workload, peer: None };
    can_carry(workload, &uts_rival::provide(transport, &context)?.capabilities())
}

/// What a rival can do for an application, as it comes. A rival with modes is in the mode that the
/// application needs.
fn capabilities(name: &str) -> Value {
    let second = Duration::from_secs(1);
    let workloads = [
        Workload::Bulk { bytes: Some(1), duration: None },
        Workload::Messages { every: second, bytes: 1, duration: second, deadline: second },
    ];
    let of = |workload| {
        let context = Context { role: Role::Server, workload, peer: None };
        uts_rival::provide(&TransportSpec::new(name), &context).ok().map(|transport| transport.capabilities())
    };
    let all: Vec<Capabilities> = workloads.iter().filter_map(of).collect();
    json!({
        "streams": all.iter().any(|c| c.streams),
        "messages": all.iter().any(|c| c.messages),
        "message_bytes_max": all.iter().map(|c| c.message_bytes_max).max(),
        "protected": all.iter().all(|c| c.protected),
    })
}
