//! What refused content holds a plan, as far as its status tells.
//!
//! Pure. The operator finds it in what is live; here a release that brings the
//! content again, beside other content of what failed, is known by what it said when
//! it began.

use super::verdict::condition;
use crate::{
    api::{
        Cause, ConditionType, Reason, RefusedContent, ReleaseKind, ReleasePlanStatus,
        ReleaseProgress, Stage,
    },
    machine::{holding, scope},
    plan::Plan,
};

/// The refused content that holds a plan at rest, and whether it is that of the
/// plan itself: otherwise it is what was done to workloads that it follows. Where
/// something moves, what was live before holds nothing.
pub(in crate::cli) fn held<'a>(
    plan: Option<&Plan>,
    status: &'a ReleasePlanStatus,
) -> Option<(&'a RefusedContent, bool)> {
    let content = plan.map(Plan::content);
    let refused = holding(&scope(plan, status), status, content)?;
    let is_own = |r: &RefusedContent| content.is_some() && r.spec.as_deref() == content;
    if !is_own(refused) {
        return status.release.is_none().then_some((refused, false));
    }
    let holds = |r: &&RefusedContent| !comes_again(plan, status, r);
    if holds(&refused) {
        return Some((refused, true));
    }
    let mut others = status.refused.iter().rev();
    let other = others.find(|r| is_own(r) && holds(r));
    other.map(|refused| (refused, true))
}

/// Whether refused content of the plan is what is being released, or waits for that:
/// what failed of it has other content by now.
pub(in crate::cli) fn comes_again(
    plan: Option<&Plan>,
    status: &ReleasePlanStatus,
    refused: &RefusedContent,
) -> bool {
    // What an undo took away stays away beside whatever is released.
    let undone = matches!(refused.cause, Cause::Undone | Cause::StatusLost) || refused.held;
    let components = plan.map(Plan::components).unwrap_or_default();
    let failed = components
        .iter()
        .find(|c| refused.component.as_ref() == Some(&c.name));
    // Only what is not the plan's own can have other content beside the plan's.
    if undone || failed.is_none_or(|failed| failed.template.is_some()) {
        return false;
    }
    let Some(release) = &status.release else {
        return refused.corrected && !is_held_back(status);
    };
    let goes_on = matches!(release.stage, Stage::Settle | Stage::Promote | Stage::Bake);
    if !goes_on || release.undo.is_some() || release.kind != ReleaseKind::Content {
        return false;
    }
    let Some(changed) = changed(status, release) else {
        return true;
    };
    let templated = components.iter().filter(|c| c.template.is_some());
    let mut names = templated.map(|c| &c.name);
    let is_changed = |name: &str| changed.split(", ").any(|changed| changed == name);
    failed.is_some_and(|failed| is_changed(&failed.name))
        || refused.corrected && names.any(|name| is_changed(name))
}

/// Whether the operator says that it does not release something again.
fn is_held_back(status: &ReleasePlanStatus) -> bool {
    let ready = condition(status, ConditionType::Ready);
    let held = [Reason::RolledBack, Reason::Undone].map(Reason::as_str);
    ready.is_some_and(|ready| held.contains(&&*ready.reason))
}

/// The components that a release changes, as the operator said when it began; none
/// while it is prepared.
fn changed<'a>(status: &'a ReleasePlanStatus, release: &ReleaseProgress) -> Option<&'a str> {
    let begin = format!("release {}: ", release.number);
    let begun = status.decisions.iter().rev();
    let begun = begun.filter(|decision| decision.reason == Reason::ReleaseStarted);
    let mut changed = begun.filter_map(|decision| decision.message.strip_prefix(&begin));
    let (changed, _) = changed
        .next()
        .filter(|_| release.stage != Stage::Settle)?
        .split_once(" to ")?;
    Some(changed)
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;
    use crate::cli::testing::{conditions, rolled_back, with};

    /// Whether the content of the plan is told to be held. `web`, which is followed,
    /// failed beside it.
    fn is_held(change: impl FnOnce(&mut Value)) -> bool {
        let asks = Plan::parse(&with(|_| {}).spec).unwrap();
        let plan = with(|plan| {
            rolled_back(plan);
            plan["status"]["refused"][0]["spec"] = json!(asks.content());
            change(plan);
        });
        let status = plan.status.unwrap();
        let held = held(Some(&asks), &status);
        assert!(held.is_none_or(|(_, own)| own));
        held.is_some()
    }

    fn release(plan: &mut Value, stage: &str, changed: &str) {
        plan["status"]["release"] = json!({
            "number": 3, "kind": "Content", "stage": stage, "content": "c",
            "startedAt": "2026-03-01T11:59:00.000000Z",
            "stageSince": "2026-03-01T11:59:00.000000Z", "applied": ["shop-dddd"],
        });
        plan["status"]["decisions"] = json!([{
            "at": "2026-03-01T11:59:01Z", "reason": "ReleaseStarted",
            "message": format!("release 3: {changed} to shop-dddd, from shop-bbbb"),
        }]);
    }

    #[test]
    fn content_that_comes_again_beside_other_content_of_what_failed_is_not_held() {
        let moving = |stage: &str, changed: &str| is_held(|plan| release(plan, stage, changed));
        assert!(is_held(|_| {}));
        for stage in ["Promote", "Bake"] {
            assert!(!moving(stage, "cart, web"), "{stage}");
            // That one brings something else.
            assert!(moving(stage, "other"), "{stage}");
        }
        assert!(!moving("Settle", "other"));
        for stage in ["Restore", "Stopped"] {
            assert!(moving(stage, "cart, web"), "{stage}");
        }
        let set = |path: &'static str, value: &'static str| {
            is_held(|plan| {
                release(plan, "Promote", "cart, web");
                *plan.pointer_mut(path).unwrap() = json!(value);
            })
        };
        assert!(set("/status/release/kind", "Surroundings"));
        assert!(set("/status/refused/0/cause", "Undone"));
        assert!(is_held(|plan| {
            release(plan, "Promote", "cart, web");
            plan["status"]["refused"][0]["held"] = json!(true);
        }));
        // No other content of it comes without an edit of the plan.
        assert!(set("/status/refused/0/component", "cart"));
    }

    /// A pause keeps it from being released, and no refusal.
    #[test]
    fn content_that_waits_beside_corrected_content_is_not_held() {
        let at_rest = |reason: &str| {
            is_held(|plan| {
                plan["status"]["refused"][0]["corrected"] = json!(true);
                plan["status"]["conditions"] = conditions("False", reason, "");
            })
        };
        assert!(at_rest("RolledBack"));
        assert!(!at_rest("Paused"));
        let moving = |changed: &str| {
            is_held(|plan| {
                plan["status"]["refused"][0]["corrected"] = json!(true);
                release(plan, "Promote", changed);
            })
        };
        assert!(!moving("cart"));
        assert!(moving("other"));
    }
}
