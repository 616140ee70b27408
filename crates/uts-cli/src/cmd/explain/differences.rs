//! `uts explain --diff`: where two profiles differ.

use crate::args::{ExplainArgs, profile};
use crate::cmd::{Failure, functions::columns};
use crate::ui::lines;
use serde_json::json;
use uts::{PathFacts, Requirements};
use uts_engine::selector::{Library, select};
use uts_functions::{Function, Profile};

/// Requirements and profile that a named profile leads to.
struct Side {
    requirements: Requirements,
    profile: Profile,
}

/// Prints the functions and properties in which two named profiles differ.
pub(super) fn run(args: &ExplainArgs, first: &str, second: &str) -> Result<(), Failure> {
    let rows = rows(&side(args, first)?, &side(args, second)?);
    if args.json {
        for [what, a, b] in &rows {
            lines::print_json(json!({ "what": what, first: a, second: b }));
        }
        return Ok(());
    }
    if rows.is_empty() {
        lines::print(&format!("{first} and {second} do not differ"));
        return Ok(());
    }
    let head = ["", first, second].map(str::to_owned).to_vec();
    lines::print(&columns(std::iter::once(head).chain(rows.into_iter().map(Vec::from))));
    Ok(())
}

fn side(args: &ExplainArgs, name: &str) -> Result<Side, Failure> {
    let mut requirements = Requirements::bulk();
    let asked = args.wanted.properties().map_err(Failure::Usage)?;
    for (property, value) in profile(name).map_err(Failure::Usage)?.into_iter().chain(asked) {
        requirements.set(&property, &value).map_err(|error| Failure::Usage(error.to_string()))?;
    }
    uts_tunnel::dictionary::complete(&mut requirements);
    let selection = select(&requirements, &PathFacts::default(), &Library::local(), None)
        .map_err(|error| Failure::Failed(format!("{name}: {error}")))?;
    Ok(Side { requirements, profile: selection.profile })
}

/// Functions and properties that differ, with the values of both.
fn rows(a: &Side, b: &Side) -> Vec<[String; 3]> {
    let functions = Function::ALL.iter().filter(|f| a.profile.get(**f) != b.profile.get(**f));
    let functions = functions.map(|f| [f.name().to_owned(), a.profile.describe(*f), b.profile.describe(*f)]);
    let properties = uts::requirements::PROPERTIES.iter().filter_map(|property| {
        let [a, b] = [a, b].map(|side| property.value(&side.requirements));
        (a != b).then(|| [property.name.to_owned(), a, b])
    });
    functions.chain(properties).collect()
}
