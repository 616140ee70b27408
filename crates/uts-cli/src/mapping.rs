//! The administrator's mapping (`--mapping`): numbers by which this end writes functions and
//! mechanisms. It holds for all connections of the program.

use std::path::Path;
use std::sync::{Arc, PoisonError, RwLock};
use uts_engine::Mapping;

static GIVEN: RwLock<Option<Arc<Mapping>>> = RwLock::new(None);

/// Reads a file, and has the connections that are made from now on keep to it.
///
/// # Errors
/// A line that says what is wrong with the file, where, and what was expected.
pub fn register(file: &Path) -> Result<(), String> {
    let shown = file.display().to_string();
    let text = std::fs::read_to_string(file).map_err(|error| format!("--mapping {shown}: {error}"))?;
    let mapping = Mapping::read(&shown, &text).map_err(|error| format!("--mapping {error}"))?;
    *GIVEN.write().unwrap_or_else(PoisonError::into_inner) = Some(Arc::new(mapping));
    Ok(())
}

/// The numbers that were given.
pub fn given() -> Option<Arc<Mapping>> {
    GIVEN.read().unwrap_or_else(PoisonError::into_inner).clone()
}
