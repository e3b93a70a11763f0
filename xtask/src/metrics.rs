//! Reads numbers from the text of `/metrics`.

/// The value of a metric without labels.
pub(crate) fn value(text: &str, name: &str) -> Option<u64> {
    text.lines()
        .find_map(|line| line.strip_prefix(name)?.strip_prefix(' '))
        .and_then(|value| value.trim().parse().ok())
}

#[cfg(test)]
mod tests {
    use super::value;

    #[test]
    fn a_metric_is_not_taken_for_one_whose_name_it_begins() {
        let text = "# TYPE a counter\na_count_total 7\na_count 3\n";
        assert_eq!(value(text, "a_count"), Some(3));
        assert_eq!(value(text, "b"), None);
    }
}
