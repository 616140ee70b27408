//! Options of other programs that people try here, and what does the same.

/// A word of advice about an option that a command does not have.
pub fn advice(command: &str, option: &str) -> Option<&'static str> {
    let command = command.strip_prefix("uts ").unwrap_or(command);
    let all = TRIED.iter().filter(|(commands, ..)| commands.contains(&command));
    all.into_iter().find(|(_, options, _)| options.contains(&option)).map(|(.., advice)| *advice)
}

type Tried = (&'static [&'static str], &'static [&'static str], &'static str);

/// Commands, options, and what does the same.
const TRIED: &[Tried] = &[
    (&["cp", "ls"], &["-P", "--port"], "write the port behind the host: uts://host:PORT/path"),
    (&["pipe", "tunnel", "perf"], &["-p", "--port", "-P"], "write the port behind the host: host:PORT"),
    (&["cp", "ls", "pipe", "tunnel"], &["-i", "--identity"], "--key FILE names the key"),
    (&["cp"], &["-l", "--limit"], "--bwlimit RATE limits the rate, as 5Mbit/s"),
    (&["cp"], &["-C"], "-z compresses, where that pays"),
    (&["cp"], &["--del", "--delete-after", "--delete-delay"], "--delete deletes once all else has arrived"),
    (&["cp"], &["-a", "--archive"], "-r -p --links copies directories, modes and links"),
    (&["cp"], &["--progress", "-P", "--partial"], "progress is shown, and what has arrived is kept, anyway"),
    (&["cp"], &["--update", "-u"], "a copy sends nothing that is there already"),
    (&["cp", "ls"], &["-v", "--verbose"], "--qlog DIR writes all that a connection does"),
    (&["pipe", "tunnel"], &["-N", "-T", "-n", "-f", "-g", "-A", "-X"], "leave it out: it has no use here"),
    (&["pipe", "tunnel"], &["-l", "--user"], "servers know clients by their keys, not by user names"),
    (&["pipe", "tunnel"], &["-o"], "settings are in ~/.config/uts/config.toml"),
    (&["pipe", "tunnel"], &["-J", "-W"], "`uts pipe` in a ProxyCommand of ssh leads through a host"),
    (&["perf"], &["-c", "--client"], "write the host alone: uts perf HOST"),
    (&["perf"], &["-s", "--server"], "the server is: uts serve --perf --anyone"),
    (&["perf"], &["-u", "--udp"], "--messages sends messages at a pace, and says how many are in time"),
    (&["perf"], &["-J"], "--json prints JSON"),
    (
        &["perf"],
        &["-w", "--window"],
        "--profile 'flow=credit(window=…)' sets the window; it follows the path by itself",
    ),
    (&["perf"], &["-C", "--congestion"], "--profile congestion=NAME sets congestion control"),
    (&["serve"], &["-p", "--port"], "--listen PORT names the port"),
    (&["serve"], &["-D", "--daemon"], "leave it out: systemd runs it (systemctl enable --now uts.socket)"),
];

#[cfg(test)]
mod tests {
    use super::*;
    use crate::args::Args;
    use clap::CommandFactory;

    #[test]
    fn advice_is_given_of_commands_that_there_are_and_options_that_there_are_not() {
        let args = Args::command();
        for (commands, options, advice) in TRIED {
            for name in *commands {
                let command = args.find_subcommand(name).unwrap_or_else(|| panic!("{name}"));
                for option in *options {
                    let has = command.get_arguments().any(|arg| {
                        let long = arg.get_long().map(|long| format!("--{long}"));
                        let short = arg.get_short().map(|short| format!("-{short}"));
                        [long, short].iter().flatten().any(|known| known == option)
                    });
                    // Where a command has the option, the advice is for others of the line.
                    assert!(!has || commands.len() > 1, "{name} has {option}: {advice}");
                }
            }
        }
        assert!(super::advice("uts cp", "-l").is_some_and(|advice| advice.contains("--bwlimit")));
        assert_eq!(super::advice("uts cp", "--nothing"), None);
    }
}
