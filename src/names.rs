//! Which names objects can have, as the API server judges them.
//!
//! Pure text, for whoever takes a name from a person, a file or an annotation: a
//! name becomes a part of a URL. Knows the form alone, not whether there is such
//! an object.

/// Longest name of a namespace.
pub const LABEL: usize = 63;
/// Longest name of most other objects.
pub const SUBDOMAIN: usize = 253;

/// Whether a namespace can have this name: a label of RFC 1123.
#[must_use]
pub fn is_label(text: &str) -> bool {
    text.len() <= LABEL && is_part(text)
}

/// Whether an object can have this name: labels with dots between them. Only all
/// of it has a longest length.
#[must_use]
pub fn is_subdomain(text: &str) -> bool {
    text.len() <= SUBDOMAIN && text.split('.').all(is_part)
}

/// Lower case letters, digits and dashes, with no dash at the ends.
fn is_part(text: &str) -> bool {
    let plain = |b: Option<&u8>| b.is_some_and(|b| b.is_ascii_lowercase() || b.is_ascii_digit());
    let bytes = text.as_bytes();
    let mut inner = bytes.iter();
    plain(bytes.first()) && plain(bytes.last()) && inner.all(|b| *b == b'-' || plain(Some(b)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_those_that_the_api_server_takes() {
        for good in ["shop", "a", "1", "a-b", "shop-7010d899a3"] {
            assert!(is_label(good) && is_subdomain(good), "{good}");
        }
        for only in ["a.b-c.d", "1.2"] {
            assert!(is_subdomain(only) && !is_label(only), "{only}");
        }
        for bad in [
            "", "a..b", ".a", "a.", "a.-b", "a-.b", "-a", "a-", "A", "a_b", "a/b", "\u{e9}",
        ] {
            assert!(!is_subdomain(bad) && !is_label(bad), "{bad}");
        }
        assert!(is_label(&"a".repeat(63)) && !is_label(&"a".repeat(64)));
        assert!(is_subdomain(&"a".repeat(253)) && !is_subdomain(&"a".repeat(254)));
    }
}
