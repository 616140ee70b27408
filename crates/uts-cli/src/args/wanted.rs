//! Properties and profiles that are asked for, and the commands that tell of them.

use clap::Args as ClapArgs;
use std::path::PathBuf;

/// Properties, in `serve`, `cp` and `explain`.
#[derive(Clone, Debug, Default, ClapArgs)]
pub struct WantedArgs {
    /// Property asked of the transport, a TAPS name (RFC 9622) or uts.… (see uts properties); may
    /// be repeated
    #[arg(long = "property", value_name = "NAME=VALUE")]
    pub properties: Vec<String>,
    /// Mechanism of a function, as congestion=bbr or fec=reed-solomon(data=20,parity=4); or a named
    /// profile (see uts functions --profiles), or the file of one; may be repeated
    #[arg(long = "profile", value_name = "FUNCTION=MECHANISM|NAME|FILE")]
    pub profile: Vec<String>,
    /// Dictionary for messages that are compressed (--profile presentation=zstd), which both ends
    /// must have: a file that zstd --train has made, or any that messages are like; may be repeated
    #[arg(long = "dictionary", value_name = "FILE")]
    pub dictionaries: Vec<PathBuf>,
    /// Numbers by which this end writes functions and mechanisms, from FILE (see uts functions
    /// --numbers); a peer with others is told, and understands
    #[arg(long, value_name = "FILE")]
    pub mapping: Option<PathBuf>,
    /// Fact of this host, as battery=yes, metered=yes, processor=20% or memory=BYTES, or `measure`
    /// to look each second: mechanisms that cost more than the host has leave; may be repeated
    #[arg(long = "host-fact", value_name = "NAME=VALUE|measure")]
    pub host_facts: Vec<String>,
    /// Keep the first profile: exchange no mechanisms, whatever the path does
    #[arg(long)]
    pub no_adapt: bool,
}

impl WantedArgs {
    /// All as properties. Dictionaries are registered: what follows may name them. So are the
    /// mapping and what is known of the host.
    ///
    /// # Errors
    /// Text that is not of the form `name=value`, or a dictionary or mapping that cannot be used,
    /// in words.
    pub fn properties(&self) -> Result<Vec<(String, String)>, String> {
        let assignment = |text: &String, option: &str, prefix: &str| {
            let (name, value) =
                text.split_once('=').ok_or_else(|| format!("{option} {text}: write NAME=VALUE"))?;
            Ok::<_, String>((format!("{prefix}{}", name.trim()), value.trim().to_owned()))
        };
        for file in &self.dictionaries {
            crate::dictionary::register(file)?;
        }
        crate::host::register(&self.host_facts)?;
        if let Some(file) = &self.mapping {
            crate::mapping::register(file)?;
        }
        let (names, pins): (Vec<&String>, Vec<&String>) =
            self.profile.iter().partition(|text| !text.contains('='));
        let mut all = Vec::new();
        for name in names {
            all.extend(profile(name)?);
        }
        // What is said by itself counts more than what a profile lists.
        let fixed = self.no_adapt.then(|| Ok(("uts.adapt".to_owned(), "false".to_owned())));
        let named = self.properties.iter().map(|text| assignment(text, "--property", ""));
        let pinned = pins.into_iter().map(|text| assignment(text, "--profile", "uts.profile."));
        for setting in named.chain(pinned).chain(fixed) {
            all.push(setting?);
        }
        Ok(all)
    }
}

/// Settings of a named profile, or of the file of one: a path, or a name that ends in `.toml`.
///
/// # Errors
/// A line that says what is wrong with it, and where.
pub fn profile(name: &str) -> Result<Vec<(String, String)>, String> {
    if !name.contains(std::path::is_separator) && !name.ends_with(".toml") {
        let named = uts_engine::named::find(name).map_err(|error| format!("--profile: {error}"))?;
        return Ok(named.settings.clone());
    }
    let text = std::fs::read_to_string(name).map_err(|error| format!("--profile {name}: {error}"))?;
    let read = uts_engine::named::Named::read(name, name, &text).map_err(|error| error.to_string())?;
    Ok(read.settings)
}

/// Options of `uts explain`.
#[derive(Clone, Debug, ClapArgs)]
#[command(after_help = "Examples:
  uts explain
  uts explain --property reliability=prefer --property msgLifetime=150ms
  uts explain --path rtt=40ms,rate=50Mbit/s,loss=5%,burst=4
  uts explain --path loss=5% --property connCapacityProfile=scavenger
  uts explain --path rtt=20ms,rate=500Mbit/s --host-fact processor=1%
  uts explain --profile tcp-tahoe
  uts explain --diff tcp-tahoe tcp-reno
  uts explain --path rtt=40ms,rate=50Mbit/s,loss=1% --why-not cubic")]
pub struct ExplainArgs {
    /// Requirements
    #[command(flatten)]
    pub wanted: WantedArgs,
    /// Print only where two named profiles, or the files of such, differ
    #[arg(long, num_args = 2, value_names = ["NAME", "NAME"])]
    pub diff: Option<Vec<String>>,
    /// Facts of the path: rtt=TIME,queue=TIME,rate=RATE,loss=SHARE,burst=PACKETS,congestive=SHARE
    /// (of the losses),packets=NUMBER (that the application makes in a second),together=NUMBER
    /// (that leave at once),payload=BYTES (in each),mtu=BYTES,samples=NUMBER (of packets seen),
    /// each optional. The `path` of an exchange that `--json` tells of is one such value
    #[arg(long, value_name = "FACTS", default_value = "", hide_default_value = true)]
    pub path: String,
    /// Compare a mechanism with the one that is chosen: what it would bring on the path, and what
    /// speaks against it; as NAME or FUNCTION=NAME
    #[arg(long, value_name = "MECHANISM", conflicts_with = "json")]
    pub why_not: Option<String>,
    /// Print a JSON object
    #[arg(long)]
    pub json: bool,
}

/// Options of `uts functions`.
#[derive(Clone, Debug, ClapArgs)]
#[command(after_help = "Examples:
  uts functions congestion
  uts functions --profiles
  uts functions --table tcp-reno tp4 netblt vmtp xtp
  uts functions --graph > functions.svg
  uts functions --numbers > numbers.toml")]
pub struct FunctionsArgs {
    /// Only functions and mechanisms whose names contain this; with --table, the profiles
    #[arg(value_name = "PART")]
    pub parts: Vec<String>,
    /// List the named profiles, and what they lack of what they are named for
    #[arg(long, conflicts_with_all = ["table", "graph"])]
    pub profiles: bool,
    /// Print which mechanism each of some named profiles has for each function [default: the
    /// protocols of table 2.3 of Richards' thesis]
    #[arg(long, conflicts_with = "graph")]
    pub table: bool,
    /// Print what depends on what among the functions, as SVG
    #[arg(long)]
    pub graph: bool,
    /// Print a file for --mapping, with the numbers that hold without one
    #[arg(long, conflicts_with_all = ["parts", "profiles", "table", "graph", "json"])]
    pub numbers: bool,
    /// Print one JSON object a line
    #[arg(long, conflicts_with = "graph")]
    pub json: bool,
}

/// Options of `uts properties`.
#[derive(Clone, Debug, ClapArgs)]
#[command(after_help = "serve, cp and explain take --property NAME=VALUE. The defaults are those of a copy.")]
pub struct PropertiesArgs {
    /// Only properties whose name contains this
    #[arg(value_name = "PART")]
    pub part: Option<String>,
    /// Print one JSON object a line
    #[arg(long)]
    pub json: bool,
}
