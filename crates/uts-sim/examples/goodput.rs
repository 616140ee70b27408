//! Goodput of one bulk transfer in virtual time, by seed: what a change of a policy or a congestion
//! control is worth.
//!
//! `cargo run --release -p uts-sim --example goodput -- [PATH[; at=WHEN CHANGE ...]] [MEGABYTES]
//! [SEEDS] [PROPERTY=VALUE ...]`

use uts_engine::ConnectionConfig;
use uts_functions::Time;
use uts_path::PathConfig;
use uts_sim::identity::Identities;
use uts_sim::transfer::Transfers;
use uts_sim::{World, WorldConfig};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let argument =
        |at: usize, otherwise: &str| arguments.get(at).cloned().unwrap_or_else(|| otherwise.into());
    let path = argument(0, "rate=100mbit delay=10ms buffer=256kB overhead=28 loss=0.01");
    let megabytes: u64 = argument(1, "300").parse()?;
    let seeds: u64 = argument(2, "8").parse()?;
    let mut config = ConnectionConfig::default();
    for property in arguments.iter().skip(3) {
        config.requirements.assign(property)?;
    }
    let mut parts = path.split(';').map(str::trim);
    let mut over = PathConfig::both(parts.next().unwrap_or_default().parse()?);
    over.schedule.entries = parts.map(str::parse).collect::<Result<_, _>>()?;
    let mut shares = Vec::new();
    for seed in 1..=seeds {
        let world = WorldConfig { path: over.clone(), seed, ..WorldConfig::default() };
        let mut world = World::new(world, Identities::new()?)?;
        let mut transfers = Transfers::start(&mut world, &[(1, config.clone())], megabytes * 1_000_000);
        transfers.run(&mut world, Time::from_millis(10_000_000));
        let progress = &transfers.progress[&1];
        let goodput = progress.goodput(Time::ZERO) * 8.0 / 1e6;
        println!("seed {seed}: {goodput:.2} Mbit/s");
        for (at, exchange) in &progress.exchanges {
            println!("    {at:?} {exchange:?}");
        }
        if let Some(connection) = world.connection(1, progress.connection) {
            println!("    {:?}", connection.stats());
        }
        shares.push(goodput);
    }
    shares.sort_by(f64::total_cmp);
    let mean = shares.iter().sum::<f64>() / shares.len() as f64;
    println!("{path}: mean {mean:.2} Mbit/s, {:.2} to {:.2}", shares[0], shares[shares.len() - 1]);
    Ok(())
}
