//! Warnings in the form that the API server passes on.
//!
//! It cuts long warnings at a place of its own choosing, drops all of them when
//! there are too many, and refuses control characters. So they are fitted here.

use serde_json::Value;

/// Longest warning, in characters, that clients are sure to see in full.
pub(super) const LONGEST: usize = 120;
/// Lines that one warning may become.
const LINES: usize = 3;
/// Warnings in one answer.
const MOST: usize = 24;

/// Longest form of a value inside a warning, in characters.
const VALUE: usize = 80;

/// A value as JSON, cut where it is too long for a warning.
pub(super) fn shortened(value: &Value) -> String {
    let text = value.to_string();
    if text.chars().count() <= VALUE {
        return text;
    }
    text.chars().take(VALUE - 1).chain(['…']).collect()
}

/// The warnings, each at most 120 characters: longer ones are broken between
/// words into up to three, and cut after that. Repetitions are left out.
pub(super) fn fit(warnings: &[String]) -> Vec<String> {
    let mut fitted: Vec<String> = Vec::new();
    for warning in warnings {
        for line in wrap(warning) {
            if !fitted.contains(&line) {
                fitted.push(line);
            }
        }
    }
    if fitted.len() > MOST {
        let left = fitted.len() + 1 - MOST;
        fitted.truncate(MOST - 1);
        fitted.push(format!("{left} more lines of warnings are not shown"));
    }
    fitted
}

fn wrap(text: &str) -> Vec<String> {
    let mut lines: Vec<String> = Vec::new();
    let mut line = String::new();
    let mut length = 0;
    for word in text.split(|c: char| c.is_whitespace() || c.is_control()) {
        let mut word: Vec<char> = word.chars().collect();
        while !word.is_empty() {
            let space = usize::from(length > 0);
            if length + space + word.len() <= LONGEST {
                if space > 0 {
                    line.push(' ');
                }
                line.extend(&word);
                length += space + word.len();
                word.clear();
            } else if length > 0 {
                lines.push(std::mem::take(&mut line));
                length = 0;
            } else {
                lines.push(word.drain(..LONGEST).collect());
            }
        }
    }
    if length > 0 {
        lines.push(line);
    }
    if lines.len() > LINES {
        lines.truncate(LINES);
        if let Some(last) = lines.last_mut() {
            *last = last.chars().take(LONGEST - 1).chain(['…']).collect();
        }
    }
    lines
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use serde_json::json;

    fn fit_one(text: &str) -> Vec<String> {
        fit(&[text.to_owned()])
    }

    #[test]
    fn short_warnings_stay_as_they_are() {
        assert_eq!(fit_one("all is well"), ["all is well"]);
        assert_eq!(fit_one(""), [""; 0]);
    }

    #[test]
    fn long_warnings_are_broken_between_words_and_lose_none() {
        let text = "deployment cart does not exist yet ".repeat(6);
        let lines = fit_one(&text);
        assert_eq!(lines.len(), 2);
        assert_eq!(lines.join(" "), text.trim());
    }

    #[test]
    fn endless_warnings_are_cut_and_say_so() {
        let lines = fit_one(&"x".repeat(1_000));
        assert_eq!(lines.iter().map(|l| l.chars().count()).max(), Some(LONGEST));
        assert!(lines.last().unwrap().ends_with('…'));
        let many: Vec<String> = (0..100).map(|n| format!("warning {n}")).collect();
        let shown = fit(&many);
        assert_eq!(shown.len(), MOST);
        assert_eq!(shown[MOST - 1], "77 more lines of warnings are not shown");
    }

    #[test]
    fn long_values_are_cut_between_characters() {
        assert_eq!(shortened(&json!(["-v"])), r#"["-v"]"#);
        let long = shortened(&json!(["ä".repeat(500)]));
        assert_eq!(long.chars().count(), VALUE);
        assert!(long.starts_with("[\"ä") && long.ends_with('…'));
    }

    proptest! {
        #[test]
        fn no_warning_is_too_long_or_carries_control_characters(text in "\\PC{0,400}|[\\x00-\\x7f]{0,400}") {
            for line in fit_one(&text) {
                prop_assert!(line.chars().count() <= LONGEST);
                prop_assert!(!line.is_empty() && !line.chars().any(char::is_control));
            }
        }
    }
}
