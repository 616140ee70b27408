//! Code of the services in `proto/`, by a compiler in Rust: `protoc` need not be there.

fn main() -> Result<(), Box<dyn std::error::Error>> {
    println!("cargo::rerun-if-changed=proto");
    let files = protox::compile(["proto/numbers.proto"], ["proto"])?;
    Ok(tonic_prost_build::configure().compile_fds(files)?)
}
