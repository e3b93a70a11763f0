//! Names of objects as people type them.
//!
//! A name becomes a part of a URL, so what cannot be one is refused before
//! anything is asked, with what it would have to look like.

use crate::names::{LABEL, SUBDOMAIN, is_label, is_subdomain};

/// The name of a namespace. An empty one stands for that of the context, as to
/// kubectl: a variable that is not set makes it.
///
/// # Errors
/// Why no namespace can have this name.
pub(super) fn namespace(text: &str) -> Result<String, String> {
    if text.is_empty() || is_label(text) {
        return Ok(text.to_owned());
    }
    Err(format!(
        "no namespace can have this name: only lower case letters, digits and '-', with a letter \
         or digit at both ends, up to {LABEL} characters"
    ))
}

/// The name of a plan, a Deployment or a revision.
///
/// # Errors
/// Why no object can have this name.
pub(super) fn object(text: &str) -> Result<String, String> {
    if is_subdomain(text) {
        return Ok(text.to_owned());
    }
    Err(format!(
        "{text:?} cannot be the name of an object: only lower case letters, digits, '-' and '.', \
         with a letter or digit at both ends and beside each '.', up to {SUBDOMAIN} characters"
    ))
}

#[cfg(test)]
mod tests {
    use clap::Parser as _;

    use super::*;
    use crate::config::Cli;

    /// What no object is called, and what some of it would do in a URL.
    const BAD: [&str; 10] = [
        "a b", "../x", "..", "-a", "a-", "Shop", "a/b", "a?b", "é", "a%2fb",
    ];

    #[test]
    fn names_are_those_that_objects_can_have() {
        for good in ["shop", "a", "1", "a-b", "shop-7010d899a3"] {
            assert_eq!(namespace(good).as_deref(), Ok(good));
            assert_eq!(object(good).as_deref(), Ok(good));
        }
        assert!(namespace("").is_ok());
        assert!(object("").is_err());
        assert!(object("a.b-c.d").is_ok());
        assert!(namespace("a.b").is_err());
        for bad in ["a..b", ".a", "a.", "a.-b"] {
            assert!(object(bad).is_err(), "{bad}");
        }
        for bad in BAD {
            assert!(namespace(bad).is_err(), "{bad}");
            assert!(object(bad).is_err(), "{bad}");
        }
        assert!(namespace(&"a".repeat(64)).is_err());
        assert!(object(&"a".repeat(254)).is_err());
    }

    /// Wherever a name is typed, in every command that takes it there.
    #[test]
    fn a_name_that_no_object_has_is_refused_with_its_flag() {
        for line in [
            "status -n",
            "explain shop -n",
            "wait shop --namespace",
            "check --operator-namespace",
            "abort shop --revision",
            "retry shop --revision",
            "undo shop --to",
        ] {
            for bad in BAD {
                let flag = line.split(' ').next_back().unwrap_or_default();
                let long = if flag == "-n" { "--namespace" } else { flag };
                let (words, flagged) = (line.split(' '), format!("{flag}={bad}"));
                let words = words.filter(|word| *word != flag).chain([flagged.as_str()]);
                let error = Cli::try_parse_from(["belay"].into_iter().chain(words)).unwrap_err();
                assert_eq!(error.exit_code(), 2);
                let said = error.to_string();
                assert!(said.contains(&format!("'{bad}' for '{long} <")), "{said}");
            }
        }
        for verb in ["status", "wait", "history", "events", "diff", "explain"] {
            for bad in ["a b", "..", "plan/..", "deploy/.a", "deploy/a%2fb"] {
                let error = Cli::try_parse_from(["belay", verb, bad]).unwrap_err();
                let said = error.to_string();
                assert!(said.contains(&format!("'{bad}' for '[PLAN]")), "{said}");
            }
        }
    }
}
