//! Cost of mechanisms that can be exchanged: the functions' part of each packet, at both ends, once
//! by way of the slots that a profile is synthesised into, and once of the same mechanisms named in
//! the source, so that the compiler sees which they are. The code is the same, generic over what it
//! calls; `scripts/instructions` compares the two, and `make bench` their time.
//!
//! `adaptivity synthesised|static PACKETS [unprotected]`

mod stack;

use std::process::ExitCode;

fn main() -> ExitCode {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let protects = words.get(2).map(String::as_str) != Some("unprotected");
    let carrier = match words.first().map(String::as_str) {
        Some("synthesised") => stack::synthesised(protects),
        Some("static") => Some(stack::named(protects)),
        _ => None,
    };
    let (Some(mut carry), Some(packets)) = (carrier, words.get(1).and_then(|n| n.parse().ok())) else {
        eprintln!("adaptivity: synthesised|static PACKETS [unprotected]");
        return ExitCode::FAILURE;
    };
    println!("{packets} packets, window {} bytes", carry(packets));
    ExitCode::SUCCESS
}
