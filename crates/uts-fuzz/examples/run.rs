//! Runs a target with files: what broke something, once more and under any debugger.

use std::error::Error;

fn main() -> Result<(), Box<dyn Error>> {
    let mut args = std::env::args().skip(1);
    let name = args.next().ok_or("a target and files are needed")?;
    let target = uts_fuzz::find(&name).ok_or_else(|| format!("there is no target `{name}`"))?;
    for file in args {
        (target.run)(&std::fs::read(&file).map_err(|error| format!("{file}: {error}"))?);
        println!("{file}: holds");
    }
    Ok(())
}
