//! Names that are not known, and which may have been meant.

/// The name that someone may have meant.
pub(crate) fn nearest<'n>(wrong: &str, names: impl IntoIterator<Item = &'n str>) -> Option<&'n str> {
    let wrong = wrong.to_lowercase();
    let scored =
        names.into_iter().map(|name| (strsim::damerau_levenshtein(&wrong, &name.to_lowercase()), name));
    // A third of the letters may differ; beyond that a suggestion misleads.
    scored.min().filter(|(distance, name)| *distance * 3 <= name.len().max(wrong.len())).map(|(_, name)| name)
}

/// "`bufer` is not known; did you mean `buffer`?", or which there are.
pub(crate) fn unknown<'n>(
    what: &str,
    wrong: &str,
    names: impl IntoIterator<Item = &'n str> + Clone,
) -> String {
    let mut message = format!("there is no {what} `{wrong}`");
    if let Some(name) = nearest(wrong, names.clone()) {
        message.push_str(&format!("; did you mean `{name}`?"));
        return message;
    }
    let all: Vec<&str> = names.into_iter().collect();
    if all.is_empty() {
        message.push_str("; none is defined");
    } else {
        message.push_str(&format!("; there are {}", all.join(", ")));
    }
    message
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn suggestions_are_near_or_none() {
        let names = ["buffer", "rate", "delay"];
        assert_eq!(nearest("bufer", names), Some("buffer"));
        assert_eq!(nearest("Rate", names), Some("rate"));
        assert_eq!(nearest("jitter", names), None);
        assert_eq!(unknown("path", "x", names), "there is no path `x`; there are buffer, rate, delay");
        assert_eq!(unknown("path", "x", []), "there is no path `x`; none is defined");
    }
}
