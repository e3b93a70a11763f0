//! What the operator says of orders that wait. It stands behind its message on
//! what goes on, or is in the way, meanwhile. Pure text.

use crate::api::{RETRY, UNDO};

/// What stands before it.
const WAITING: &str = "; meanwhile, ";
/// What stands between two orders.
const NEXT: [&str; 2] = ["; undo to ", "; retry of "];

/// What an order waits for in the operator's words, if its message says so:
/// "waits for the end of release 4".
pub(super) fn waits<'a>(message: &'a str, order: &str, revision: &str) -> Option<&'a str> {
    let begin = match order {
        UNDO => format!("undo to {revision}"),
        RETRY => format!("retry of {revision}"),
        _ => return None,
    };
    let mut found = message.match_indices(&begin).filter_map(|(at, _)| {
        let (before, rest) = message.split_at(at);
        let rest = rest.get(begin.len()..)?;
        let begins =
            before.ends_with(WAITING) || before.ends_with("; ") && before.contains(WAITING);
        (begins && rest.starts_with([' ', ','])).then_some(rest)
    });
    let rest = found.next()?;
    let ends = NEXT.iter().filter_map(|next| rest.find(next));
    let rest = rest.get(..ends.min().unwrap_or(rest.len()))?;
    // Who gave it stands in between.
    let what = rest.find(", waits ").and_then(|at| rest.get(at..));
    Some(what.unwrap_or(rest).trim_start_matches([',', ' ']))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_an_order_waits_for_is_told_in_the_operators_words() {
        let message = "x; y; meanwhile, undo to shop-1, asked for by jane, waits for configmap \
                       a to exist; or b; retry of shop-2 waits until the plan is valid";
        let undo = waits(message, UNDO, "shop-1");
        assert_eq!(undo, Some("waits for configmap a to exist; or b"));
        let retry = waits(message, RETRY, "shop-2");
        assert_eq!(retry, Some("waits until the plan is valid"));
        for (order, revision) in [
            (UNDO, "shop-2"),
            (UNDO, "shop-"),
            (RETRY, "shop-1"),
            ("belay.dev/abort", "shop-1"),
        ] {
            assert_eq!(waits(message, order, revision), None, "{order} {revision}");
        }
        assert_eq!(waits("x; undo to shop-1 waits", UNDO, "shop-1"), None);
        // A rollback says of itself what it waits for meanwhile.
        let twice = "a is refused; meanwhile, waiting for b; meanwhile, undo to shop-1 waits for c";
        assert_eq!(waits(twice, UNDO, "shop-1"), Some("waits for c"));
    }
}
