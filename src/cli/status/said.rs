//! The operator's words without the commands that stand below them anyway.
//!
//! A condition ends in a whole command to paste. Where a way out with the same
//! effect is shown in a line of its own, once is enough. Pure text.

use std::collections::BTreeSet;

use super::{
    model::{Verdict, Way},
    text::{Line, Tone},
};
use crate::api::Reason;

/// What a command of a message begins with, what leads to it included: a writer that
/// is named may be called kubectl, too.
const LED: &str = ": kubectl ";
/// What stands behind a command if text follows.
const ENDS: [&str; 3] = [" ;", "; ", " )"];
/// What stands before that for which orders wait.
pub(super) const MEANWHILE: &str = "; meanwhile, ";
/// What is said behind the command that deletes a plan.
const APPLY: &str = " ; then apply the plan again";
/// What begins the sentence that says where content comes from.
const CHANGE: &str = ". Change the content of ";
/// What begins a way out that says so, too.
pub(super) const EDIT: &str = "change the content of ";
/// What stands between two parts of a message.
const BREAKS: [&str; 3] = [". ", "; ", ", or "];

/// A message without the commands that one of `ways` gives as well.
pub(in crate::cli) fn once(message: &str, ways: &[Way]) -> String {
    let known: Vec<BTreeSet<String>> = ways
        .iter()
        .filter_map(|way| effect(way.command.as_deref()?))
        .collect();
    let mut kept = String::new();
    let mut rest = message;
    while let Some(start) = rest.find(LED) {
        let (before, command) = rest.split_at(start + ": ".len());
        let ends = ENDS.iter().filter_map(|text| command.find(text));
        let (command, after) = command.split_at(ends.min().unwrap_or(command.len()));
        if effect(command).is_some_and(|effect| known.contains(&effect)) {
            let lead = BREAKS.iter().filter_map(|text| before.rfind(text)).max();
            kept.push_str(&before[..lead.unwrap_or(0)]);
            rest = after.strip_prefix(APPLY).unwrap_or(after);
        } else {
            kept.push_str(before);
            kept.push_str(command);
            rest = after;
        }
    }
    kept.push_str(rest);
    let kept = kept.trim_start_matches([' ', ';', ',']).trim_end();
    // The same without a command.
    let told = |way: &Way| way.effect.starts_with(EDIT);
    let at = kept.rfind(CHANGE).filter(|_| ways.iter().any(told));
    let at = at.filter(|at| !kept[at + 2..].contains([';', '.']));
    let kept = at.map_or(kept, |at| &kept[..at]);
    kept.replace(" ;", ";").replace(" )", ")")
}

/// Reasons with a cause of which the message tells that again.
const CAUSED: [Reason; 8] = [
    Reason::RolledBack,
    Reason::Undone,
    Reason::Frozen,
    Reason::RollbackStarted,
    Reason::RollingBack,
    Reason::Deleting,
    Reason::Reverted,
    Reason::RollbackAborted,
];
/// What stands before a way back that is lost, and in the midst of it.
const LOST: [&str; 2] = ["; a rollback ", " could not bring all configuration back: "];

/// What a message says of a plan, and behind it what is in doubt nevertheless, such
/// as a way back.
fn doubts<'a>(reason: &str, message: &'a str) -> (&'a str, &'a str) {
    let at_rest = [Reason::RolledBack, Reason::Undone].map(Reason::as_str);
    let end = if reason == Reason::Released.as_str() {
        const WELL: &str = "is released and healthy";
        message.find(WELL).map(|at| at + WELL.len())
    } else if at_rest.contains(&reason) {
        // What was refused may be told of with any words.
        const AGAIN: [&str; 2] = ["belay.dev/retry=", "--overwrite"];
        let order = message.rfind(AGAIN[0]);
        let end = order.and_then(|order| Some(order + message[order..].find(AGAIN[1])?));
        end.map(|end| end + AGAIN[1].len())
    } else {
        let lost = message.rfind(LOST[1]);
        lost.and_then(|lost| message[..lost].rfind(LOST[0]))
    };
    let (said, doubts) = message.split_at(end.unwrap_or(message.len()));
    let doubts = doubts.trim_start_matches([' ', ';']);
    (said, doubts.strip_prefix("meanwhile, ").unwrap_or(doubts))
}

/// The same of a verdict: without its cause, which is shown by itself.
pub(super) fn parts(verdict: &Verdict) -> (&str, &str) {
    let (message, doubts) = doubts(&verdict.reason, &verdict.message);
    let is = |reason: &Reason| reason.as_str() == verdict.reason;
    let waits = message.rfind("; waiting for ").map(|at| at + "; ".len());
    let untold = is(&Reason::Deleting) && waits.is_none();
    if verdict.cause.is_none() || untold || !CAUSED.iter().any(is) {
        return (message, doubts);
    }
    let goes_back = [Reason::RollingBack, Reason::Deleting].iter().any(is);
    let begin = waits.filter(|_| goes_back);
    let begin = begin.or_else(|| Some(message.rfind(MEANWHILE)? + MEANWHILE.len()));
    (begin.map_or("", |begin| &message[begin..]), doubts)
}

/// What is in doubt of a plan that is released.
pub(super) fn doubts_of(verdict: &Verdict) -> &str {
    doubts(&verdict.reason, &verdict.message).1
}

/// A text below `head`, which may be a label: words within a width and on `most`
/// lines, and each command on a line of its own that is never broken, so that it can
/// be pasted.
pub(in crate::cli) fn lines(head: Line, text: &str, width: usize, most: usize) -> Vec<Line> {
    let indent = Line::default().to(head.width());
    let mut begun = head;
    let mut lines = Vec::new();
    let mut rest = text;
    loop {
        let start = rest.find(LED).map(|start| start + ": ".len());
        let (words, command) = rest.split_at(start.unwrap_or(rest.len()));
        let words = words.trim_matches([' ', ';', ',']);
        if !words.is_empty() {
            let line = begun.and(Tone::Plain, words);
            lines.extend(line.wrap(width, &indent, most));
            begun = indent.clone();
        }
        if start.is_none() {
            return lines;
        }
        let ends = ENDS.iter().filter_map(|text| command.find(text));
        let (command, after) = command.split_at(ends.min().unwrap_or(command.len()));
        lines.push(begun.and(Tone::Strong, command).whole());
        begun = indent.clone();
        rest = after.strip_prefix(" )").unwrap_or(after);
    }
}

/// What a command brings about, whether kubectl or Belay does it.
fn effect(command: &str) -> Option<BTreeSet<String>> {
    let words: Vec<&str> = command.split_whitespace().collect();
    let orders = words
        .iter()
        .filter_map(|word| word.strip_prefix("belay.dev/"));
    let orders: BTreeSet<String> = orders.map(str::to_owned).collect();
    if !orders.is_empty() {
        return Some(orders);
    }
    let deletes = |pair: &[&str]| matches!(pair, ["delete", "relplan" | "releaseplan"]);
    if words.windows(2).any(deletes) {
        return Some(["delete".to_owned()].into());
    }
    let mut verbs = ["abort", "retry", "undo"].into_iter();
    if let Some(verb) = verbs.find(|verb| words.contains(verb)) {
        let at = words
            .iter()
            .position(|w| ["--revision", "--to"].contains(w))?;
        return Some([format!("{verb}={}", words.get(at + 1)?)].into());
    }
    let other = if let Some(at) = words.windows(2).position(|w| w == ["rollout", "resume"]) {
        words.get(at + 2)?
    } else if words.contains(&"resume") || command.contains(r#""paused":false"#) {
        "resume"
    } else if command.contains(r#""deletionPolicy":"Keep""#) {
        "keep"
    } else {
        return None;
    };
    Some([other.to_owned()].into())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn told(message: &str, commands: &[&str]) -> String {
        let ways: Vec<Way> = commands
            .iter()
            .map(|command| Way {
                effect: String::new(),
                command: Some((*command).to_owned()),
            })
            .collect();
        once(message, &ways)
    }

    #[test]
    fn a_command_that_stands_below_is_left_out_with_what_leads_to_it() {
        let retry = "kubectl annotate relplan shop -n web belay.dev/retry=shop-1 --overwrite";
        let patch =
            r#"kubectl patch relplan shop -n web --type merge -p '{"spec":{"paused":false}}'"#;
        for (message, command, expected) in [
            (
                format!("undone: a. b is live. Change the content of the plan, or try the same again: {retry}"),
                "belay retry shop --revision shop-1 -n web",
                "undone: a. b is live. Change the content of the plan",
            ),
            (
                format!("the plan is paused (spec.paused). To go on: {patch}"),
                "kubectl belay resume shop -n web --context c",
                "the plan is paused (spec.paused)",
            ),
            (
                format!("the plan is paused (spec.paused). To go on: {patch}; meanwhile, a is late"),
                "belay resume shop -n web",
                "the plan is paused (spec.paused); meanwhile, a is late",
            ),
            (
                "held. To go on: kubectl rollout resume deployment/web -n web ; the rest waits".to_owned(),
                "kubectl rollout resume deployment/web -n web",
                "held; the rest waits",
            ),
            (
                "late. If it is at fault: kubectl annotate relplan s -n w belay.dev/undo=a belay.dev/abort=b --overwrite".to_owned(),
                "kubectl annotate releaseplan s --overwrite belay.dev/undo=a belay.dev/abort=b -n w",
                "late",
            ),
        ] {
            assert_eq!(told(&message, &[command]), expected);
        }
    }

    /// It is the name that kubectl gives itself.
    #[test]
    fn a_writer_that_is_called_kubectl_is_no_command() {
        let said = "field manager kubectl keeps giving deployment web other content. Stop it";
        let retry = "kubectl annotate relplan s -n w belay.dev/retry=s-1 --overwrite";
        let message = format!("{said}, or try it again: {retry}");
        assert_eq!(told(&message, &["belay retry s --revision s-1 -n w"]), said);
    }

    /// Somebody's Deployment is paused by itself, in a rollback.
    #[test]
    fn a_command_in_brackets_is_left_out_without_them() {
        let message = "waiting for deployment web: 0 of 2 pods (paused by its own spec.paused; to go on: kubectl rollout resume deployment/web -n web ), deployment cart to go back";
        assert_eq!(
            told(message, &["kubectl rollout resume deployment/web -n web"]),
            "waiting for deployment web: 0 of 2 pods (paused by its own spec.paused), deployment cart to go back"
        );
    }

    #[test]
    fn of_two_commands_only_those_that_stand_below_are_left_out() {
        let undo = "kubectl annotate relplan s -n w belay.dev/undo=s-1 --overwrite";
        let retry = "kubectl annotate relplan s -n w belay.dev/retry=s-2 --overwrite";
        let message = format!(
            "aborted. Change the content, or go back after all: {undo} ; or try s-2 again: {retry}"
        );
        let undone = "belay undo s --to s-1 -n w";
        let retried = "belay retry s --revision s-2 -n w";
        let left = |commands: &[&str]| told(&message, commands);
        assert_eq!(left(&[undone, retried]), "aborted. Change the content");
        assert_eq!(
            left(&[undone]),
            format!("aborted. Change the content; or try s-2 again: {retry}")
        );
        assert_eq!(
            left(&[retried]),
            format!("aborted. Change the content, or go back after all: {undo}")
        );
    }

    #[test]
    fn what_is_said_nowhere_else_stays() {
        let retry =
            "failed. Try again: kubectl annotate relplan s -n w belay.dev/retry=s-1 --overwrite";
        for other in [
            "belay retry s --revision s-2 -n w",
            "belay abort s --revision s-1 -n w",
            "belay pause s -n w",
            "kubectl rollout resume deployment/s -n w",
        ] {
            assert_eq!(told(retry, &[other]), retry);
        }
        assert_eq!(told(retry, &[]), retry);
        assert_eq!(
            told("waits for b; a is done", &["belay pause s"]),
            "waits for b; a is done"
        );
    }
}
