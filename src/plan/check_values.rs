//! Rules for single values: names, lists of names, numbers, durations.

use std::{collections::BTreeSet, ops::RangeInclusive, time::Duration};

use super::{decode::quoted, faults::Faults};
use crate::api::GatewayDuration;

/// The longest duration that a plan may name.
const MAX_DURATION: Duration = Duration::from_secs(7 * 24 * 60 * 60);
const MAX_DURATION_LENGTH: usize = 24;

/// A name as the API server writes those of objects.
pub(super) fn check_name(path: &str, name: &str, max: usize, faults: &mut Faults) {
    let edge = |c: Option<char>| c.is_some_and(|c| c.is_ascii_lowercase() || c.is_ascii_digit());
    let inner = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-' || c == '.';
    if !check_length(path, name, max, faults) {
        return;
    }
    if !edge(name.chars().next()) || !edge(name.chars().next_back()) || !name.chars().all(inner) {
        faults.invalid(
            path,
            format!(
                "{} must consist of lower case letters, digits, '-' and '.', and begin and end with a letter or digit",
                quoted(name)
            ),
        );
    }
}

/// A text that is neither empty nor too long.
pub(super) fn check_length(path: &str, text: &str, max: usize, faults: &mut Faults) -> bool {
    if text.is_empty() {
        faults.invalid(path, "must not be empty");
    } else if text.chars().count() > max {
        faults.invalid(path, format!("must have at most {max} characters"));
    } else {
        return true;
    }
    false
}

/// A list of names without duplicates.
pub(super) fn check_list(
    path: &str,
    names: &[String],
    max: usize,
    max_length: usize,
    faults: &mut Faults,
) {
    if names.len() > max {
        faults.invalid(path, format!("must have at most {max} elements"));
    }
    let mut seen = BTreeSet::new();
    for (index, name) in names.iter().enumerate().take(max) {
        let path = format!("{path}[{index}]");
        if check_length(&path, name, max_length, faults) && !seen.insert(name) {
            faults.duplicate(
                path,
                format!("{} stands in this list already", quoted(name)),
            );
        }
    }
}

/// A number within bounds.
pub(super) fn check_range(
    path: &str,
    number: i32,
    range: &RangeInclusive<i32>,
    faults: &mut Faults,
) {
    if !range.contains(&number) {
        faults.invalid(
            path,
            format!(
                "must be between {} and {}, is {number}",
                range.start(),
                range.end()
            ),
        );
    }
}

/// A duration of at most seven days; zero only where that says something.
pub(super) fn check_duration(
    path: &str,
    text: &str,
    zero_allowed: bool,
    faults: &mut Faults,
) -> Duration {
    let duration = match text.parse::<GatewayDuration>() {
        Ok(duration) if text.len() <= MAX_DURATION_LENGTH => duration.get(),
        _ => {
            let example = r#"must be a duration such as "30s", "10m" or "1h30m""#;
            faults.invalid(path, format!("{} {example}", quoted(text)));
            return Duration::ZERO;
        }
    };
    if duration > MAX_DURATION {
        faults.invalid(path, format!("must be at most 168h (7 days), is {text}"));
    } else if duration.is_zero() && !zero_allowed {
        faults.invalid(path, "must be longer than 0s");
    }
    duration
}
