//! The `uts` program. What it reads of peers and of programs of this host is public, for those who
//! fuzz it.
#![forbid(unsafe_code)]

pub mod args;
mod cmd;
pub mod config;
mod confine;
pub mod control;
mod dictionary;
mod given;
mod habits;
mod host;
mod link;
mod mapping;
pub mod media;
pub mod metrics;
pub mod target;
#[cfg(test)]
mod testing;
pub mod tunnel;
mod udp;
mod ui;

use args::{Args, Command};
use cmd::Failure;
use std::ffi::OsString;
use std::path::Path;
use std::process::ExitCode;
use std::time::Duration;
use ui::lines;
use uts_end::{output, signals};
use uts_ledger::Budget;

/// Time that the end of the program waits for what still writes to a disk.
const BLOCKED_MAX: Duration = Duration::from_millis(500);

/// Carries out the command line.
pub fn main() -> ExitCode {
    output::name("uts");
    signals::meet_file_limits_as_errors();
    let args = match output::parse_line::<Args>(command_line(), habits::advice) {
        Ok(args) => args,
        Err(status) => return status,
    };
    let command = args.command;
    match carry_out(&command) {
        Ok(()) => output::status(0),
        Err(failure) => {
            let is_known = matches!(failure, Failure::Interrupted(_)) && command.ends_silently();
            if let Some(line) = failure.line().filter(|_| !is_known) {
                lines::fail(line);
            }
            output::status(failure.status())
        }
    }
}

/// The command line. A program of the name `uts-ssh` is `uts ssh`, for those who take a program and
/// no command (scp -S).
fn command_line() -> impl Iterator<Item = OsString> {
    let mut words = std::env::args_os();
    let program = words.next();
    let is_ssh = program.as_ref().is_some_and(|name| Path::new(name).file_name() == Some("uts-ssh".as_ref()));
    program.into_iter().chain(is_ssh.then(|| OsString::from("ssh"))).chain(words)
}

/// The words of the command line behind the command.
fn words_of_command() -> impl Iterator<Item = OsString> {
    command_line().skip(2)
}

fn carry_out(command: &Command) -> Result<(), Failure> {
    let settings = match command {
        Command::Serve(_) => {
            let words: Vec<OsString> = words_of_command().collect();
            Some(cmd::serve::Settings::read(&words).map_err(Failure::Usage)?)
        }
        _ => None,
    };
    // What a thread may not do, those that it begins may not either: now there is one.
    let confined = match &settings {
        Some(settings) => cmd::serve::confine_to(&settings.args),
        None => Ok(cmd::serve::Confined::default()),
    };
    let ready = match command {
        Command::SshServer(server) => cmd::ssh::server::prepare(server)?,
        _ => None,
    };
    let threads = Budget::of_process();
    let carrying = std::thread::available_parallelism().map_or(1, usize::from).min(threads.threads / 4);
    let mut builder = tokio::runtime::Builder::new_multi_thread();
    // A ledger bounds those that block for others; some are left for the program itself.
    builder.worker_threads(carrying).max_blocking_threads(threads.blocking_threads() + threads.threads / 8);
    let runtime = builder.enable_all().build();
    let runtime = runtime.map_err(|error| Failure::Failed(format!("cannot start: {error}")))?;
    let transport = udp::Udp;
    let result = runtime.block_on(async {
        match command {
            Command::Serve(_) => cmd::serve::run(&transport, settings, confined).await,
            Command::Cp(cp) => cmd::cp::run(&transport, cp).await,
            Command::Ls(ls) => cmd::ls::run(&transport, ls).await,
            Command::Ssh(ssh) => cmd::ssh::run(ssh).await,
            Command::SshServer(server) => cmd::ssh::server::run(server, ready).await,
            Command::SshCarry(carry) => cmd::ssh::carry::run(carry).await,
            Command::SshKeep(ssh) => cmd::ssh::keeper::run(ssh).await,
            Command::SshSessions(sessions) => cmd::ssh::sessions::run(sessions).await,
            Command::SshAttach(attach) => cmd::ssh::shell::attached::run(attach).await,
            Command::SshShell(shell) => cmd::ssh::shell::holder::run(shell).await,
            Command::SshJoin(join) => cmd::ssh::join::run(&join.socket),
            Command::Pipe(pipe) => cmd::pipe::run(&transport, pipe).await,
            Command::Tunnel(tunnel) => cmd::tunnel::run(&transport, tunnel).await,
            Command::Media(media) => cmd::media::run(&transport, media).await,
            Command::Group(group) => cmd::group::run(&transport, group).await,
            Command::Ctl(ctl) => cmd::ctl::run(ctl).await,
            Command::Top(top) => cmd::top::run(top).await,
            Command::Perf(perf) => cmd::perf::run(&transport, perf).await,
            Command::Parts(parts) => cmd::parts::run(parts),
            Command::Explain(explain) => cmd::explain::run(&transport, explain),
            Command::Properties(properties) => cmd::properties::run(properties),
            Command::Decode(decode) => cmd::decode::run(decode),
            Command::Functions(functions) => cmd::functions::run(functions),
            Command::Hosts { command } => cmd::hosts::run(command),
            Command::Keygen(keygen) => cmd::keygen::keygen(&transport, keygen),
            Command::Fingerprint(fingerprint) => cmd::keygen::fingerprint(&transport, fingerprint),
            Command::Completions(completions) => cmd::manual::completions(completions),
            Command::Manual(manual) => cmd::manual::pages(manual),
            Command::Lab(lab) => cmd::lab::run(lab),
        }
    });
    // Not for ever: what blocks a thread, as a disk that does not answer, keeps nobody from ending.
    runtime.shutdown_timeout(BLOCKED_MAX);
    result
}
