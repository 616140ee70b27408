//! `uts-rival`: one end of a measured run over a transport other than UTS.

use clap::{Parser, Subcommand};
use serde_json::{Value, json};
use std::process::ExitCode;
use uts_end::{Context, Role, TransportSpec};
use uts_traffic::transport::Capabilities;
use uts_traffic::workload::Workload;

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
    /// Print a line of JSON for each rival: its version, settings and capabilities, or why it is missing and how to have it
    List,
}

fn main() -> ExitCode {
    let result = match Program::parse().command {
        Command::End(arguments) => uts_end::run(&uts_rival::provide, &arguments).map(drop),
        Command::List => list(),
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn list() -> anyhow::Result<()> {
    for rival in uts_rival::list() {
        let mut line = serde_json::to_value(&rival)?;
        if let (true, Some(fields)) = (rival.available, line.as_object_mut()) {
            fields.insert("capabilities".into(), capabilities(rival.name));
        }
        println!("{line}");
    }
    Ok(())
}

/// What a rival can do for an application, as it comes.
fn capabilities(name: &str) -> Value {
    let workload = Workload::Bulk { bytes: Some(1), duration: None };
    let context = Context { role: Role::Server, workload: &workload, peer: None };
    match uts_rival::provide(&TransportSpec::new(name), &context).map(|transport| transport.capabilities()) {
        Ok(Capabilities { streams, messages, message_bytes_max, protected }) => json!({
            "streams": streams, "messages": messages, "message_bytes_max": message_bytes_max,
            "protected": protected,
        }),
        Err(_) => Value::Null,
    }
}
