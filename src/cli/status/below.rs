//! What the workloads of a plan add to its verdict, so that the line on top never
//! promises more than the marks below it show.
//!
//! The operator's word is taken for what it judged. What it has not seen, and
//! what came after its judgement, is told here; nothing is judged anew.

use k8s_openapi::{apimachinery::pkg::apis::meta::v1::Time, jiff::Timestamp};

use super::{
    away::{ORDERED, OVERDUE, SETTLED},
    model::{ComponentView, DeploymentCounts, Health, PodTrouble, Verdict, Way},
    pods::{age, restarted_at},
    said::doubts_of,
    verdict::{AWAY, EDITED, Facts, condition, was},
    ways::RESUME,
};
use crate::{
    api::{ConditionType, Phase, Reason, ReleaseProgress, ReleaseResult, Stage},
    cli::counted,
    plan::Plan,
};

/// Workloads that are named of those that are not well.
const NAMED: usize = 3;

/// A Deployment whose live template the operator has not looked at.
#[derive(Clone, Debug)]
pub(super) struct Unseen {
    /// As commands take it.
    pub(super) workload: String,
    /// When it was edited last.
    pub(super) at: Option<Time>,
}

/// Where the operator gave in to another writer, what is live is that one's:
/// healthy or not, it is not what the plan says.
pub(super) fn mark_contended(
    verdict: &Verdict,
    components: &mut [ComponentView],
    unlike: &[Unseen],
) {
    if verdict.reason != Reason::Contended.as_str() {
        return;
    }
    let others = |c: &&mut ComponentView| unlike.iter().any(|u| u.workload == c.workload);
    for component in components.iter_mut().filter(others) {
        component.health = Health::Failed;
        component.contended = true;
    }
}

/// Puts what is below a plan into its verdict.
pub(super) fn agree(
    verdict: &mut Verdict,
    facts: &Facts<'_>,
    components: &[ComponentView],
    unseen: Option<&Unseen>,
) {
    resume(verdict, facts, components);
    let rests = facts.status.release.is_none();
    let reason = verdict.reason.clone();
    let is = |reasons: &[Reason]| reasons.iter().any(|r| r.as_str() == reason);
    let held = [Reason::RolledBack, Reason::Undone, Reason::ReleaseFailed];
    let judged = rests && (verdict.health == Health::Ok || is(&held));
    let stopped = is(&[Reason::Frozen, Reason::RollbackAborted]) && facts.stops_exactly();
    if (judged || stopped)
        && let Some(unseen) = unseen
    {
        return not_seen(verdict, facts, unseen);
    }
    if !rests {
        return fail_fast(verdict, facts, components);
    }
    let worst = worst(components);
    match (verdict.health, worst) {
        (Health::Ok, Health::Failed) => {
            let doubts = doubts_of(verdict).to_owned();
            verdict.health = worst;
            "Was healthy when it was released, and is not now".clone_into(&mut verdict.title);
            verdict.message = with_doubts(components, &doubts);
            // Since when is not known here.
            verdict.since = None;
            "nothing goes back by itself: only a release is judged".clone_into(&mut verdict.next);
            // No older template brings back what does not exist.
            if components.iter().all(|c| c.deployment.is_some()) {
                verdict.ways.extend(facts.undo());
            }
        }
        (Health::Ok, Health::Working | Health::Held) => {
            let doubts = doubts_of(verdict).to_owned();
            verdict.health = worst;
            let short = |c: &ComponentView| c.deployment.is_some_and(|d| d.available < d.wanted);
            let title = if components.iter().any(short) {
                "Released; not all pods are available at present"
            } else {
                "Released; workloads are changing at present"
            };
            title.clone_into(&mut verdict.title);
            verdict.message = with_doubts(components, &doubts);
            verdict.since = None;
        }
        (Health::Held, Health::Failed) => {
            verdict.health = worst;
            verdict.title.push_str("; not all of it is healthy");
        }
        (Health::Working, Health::Failed)
            if is(&[Reason::BaselineUnavailable, Reason::TargetsMissing]) =>
        {
            verdict.health = worst;
            let mut broken = components.iter().filter(|c| c.trouble().next().is_some());
            verdict.ways.extend(broken.next().map(|c| Way {
                effect: "find out why its pods do not run".to_owned(),
                command: facts.kubectl(&format!("describe {}", c.workload)),
            }));
        }
        _ => {}
    }
}

/// What is paused by itself, where that is known, holds up what goes on here.
fn resume(verdict: &mut Verdict, facts: &Facts<'_>, components: &[ComponentView]) {
    let waits = [
        Reason::WorkloadPaused,
        Reason::RollbackStarted,
        Reason::RollingBack,
        Reason::RollbackStalled,
        Reason::Deleting,
    ];
    let known = components.iter().any(|c| c.deployment.is_some());
    if !known || !waits.iter().any(|r| r.as_str() == verdict.reason) {
        return;
    }
    let guess = |way: &Way| way.command.as_ref().is_some_and(|c| c.contains(RESUME));
    verdict.ways.retain(|way| !guess(way));
    let open = |d: &DeploymentCounts| {
        !d.observed || d.updated < d.wanted || d.replicas > d.updated || d.available < d.wanted
    };
    let paused = components
        .iter()
        .filter(|c| c.deployment.is_some_and(|d| d.paused && open(&d)));
    let ways = paused
        .map(|c| facts.resume(&c.workload))
        .collect::<Vec<_>>();
    verdict.ways.splice(0..0, ways);
}

/// The old verdict says nothing of what is live now.
fn not_seen(verdict: &mut Verdict, facts: &Facts<'_>, unseen: &Unseen) {
    let at = unseen.at.as_ref();
    let away = at.is_some_and(|at| age(at, facts.now) > AWAY);
    let what = format!("the pod template of {}", unseen.workload);
    let title = if away {
        format!("Nobody has looked at {what} as it is now: is the operator running?")
    } else {
        format!("The operator has not looked at {what} as it is now yet")
    };
    *verdict = Verdict {
        health: if away {
            Health::Failed
        } else {
            Health::Working
        },
        reason: EDITED.to_owned(),
        title,
        message: was(&verdict.reason, &verdict.message, &verdict.ways),
        cause: None,
        since: unseen.at.clone(),
        next: "the operator looks at an edit within seconds while it runs".to_owned(),
        next_at: None,
        ways: away.then(|| facts.doctor()).into_iter().collect(),
    };
}

/// A release of which a new pod is in trouble already may end long before its
/// deadline.
fn fail_fast(verdict: &mut Verdict, facts: &Facts<'_>, components: &[ComponentView]) {
    let (Some(release), Some(plan)) = (&facts.status.release, facts.plan) else {
        return;
    };
    // An operator that fails says so itself, and judges nothing meanwhile.
    let fails = Reason::ReconcileError.as_str();
    let judged = matches!(release.stage, Stage::Promote | Stage::Bake)
        && facts.status.phase == Some(Phase::RollingOut)
        && !release.retried
        && ![EDITED, OVERDUE, ORDERED, fails].contains(&verdict.reason.as_str());
    if !judged {
        return;
    }
    let new = components.iter().flat_map(|c| &c.replica_sets);
    let new = new.filter(|set| set.live).flat_map(|set| &set.trouble);
    // Pods of a component without a change are old, and so are their restarts.
    let begun = facts.begun(release);
    let is_new = |pod: &&PodTrouble| pod.created.as_ref().is_none_or(|at| at.0 >= begun);
    let new: Vec<&PodTrouble> = new.filter(is_new).collect();
    let loops = |pod: &&&PodTrouble| pod.restarts > 0 || pod.reason == "CrashLoopBackOff";
    let limit = plan.restarts();
    let times = match limit {
        1 => "once".to_owned(),
        many => format!("{many} times"),
    };
    let restarted = format!("as soon as a container has restarted {times}");
    // An operator that runs ends it with the restart that makes it due, whatever the
    // container does by then.
    let due = |pod: &&&PodTrouble| pod.restarts >= limit;
    let due = new.iter().filter(due);
    let due = due.filter_map(|pod| restarted_at(pod, limit));
    if let Some(due) = due
        .min_by_key(|at| at.0)
        .filter(|at| facts.is_long(Some(at)))
        && let Some(ready) = condition(facts.status, ConditionType::Ready)
    {
        let message = format!(
            "due was: {} {restarted}; {}",
            facts.end(),
            facts.before(ready)
        );
        *verdict = Verdict {
            message,
            ..facts.unjudged(ready, due)
        };
        return;
    }
    let pulls = |pod: &&&PodTrouble| ["ErrImagePull", "ImagePullBackOff"].contains(&&*pod.reason);
    let when = if new.iter().any(|pod| loops(&pod)) {
        restarted
    } else if new.iter().any(|pod| pulls(&pod)) {
        "as soon as the kubelet backs off from pulling".to_owned()
    } else {
        return;
    };
    let end = facts.end();
    verdict.next = match verdict.next.strip_prefix(end) {
        Some(rest) => format!("{end} {when} (failFast), or{rest}"),
        None => format!("{end} {when} (failFast); {}", verdict.next),
    };
}

/// How the worst component is. That one may not be read says nothing of it.
fn worst(components: &[ComponentView]) -> Health {
    let known = |c: &&ComponentView| c.health == Health::Failed || c.deployment.is_some();
    let has = |health| components.iter().filter(known).any(|c| c.health == health);
    let order = [Health::Failed, Health::Held, Health::Working];
    let mut order = order.into_iter();
    order.find(|health| has(*health)).unwrap_or(Health::Ok)
}

/// The same with what was in doubt before, which matters now.
fn with_doubts(components: &[ComponentView], doubts: &str) -> String {
    let unwell = unwell(components);
    if doubts.is_empty() {
        return unwell;
    }
    format!("{unwell}; {doubts}")
}

/// What is not as it should be of each workload.
fn unwell(components: &[ComponentView]) -> String {
    let unwell = components.iter().filter(|c| c.health != Health::Ok);
    let unwell: Vec<String> = unwell
        .map(|c| {
            let workload = &c.workload;
            format!("{workload}{}", incomplete(c))
        })
        .collect();
    let more = unwell.len().saturating_sub(NAMED);
    let mut text = unwell[..unwell.len() - more].join(", ");
    if more > 0 {
        text.push_str(&format!(" and {more} more"));
    }
    text
}

/// What a workload lacks: of several things the one that the others follow from.
fn incomplete(component: &ComponentView) -> String {
    let Some(counts) = component.deployment else {
        return " does not exist".to_owned();
    };
    let (wanted, available, updated) = (counts.wanted, counts.available, counts.updated);
    if !counts.observed {
        return ": its last edit is not taken up yet".to_owned();
    }
    if available < wanted {
        return format!(": {available} of {wanted} pods are available");
    }
    if updated < wanted {
        return format!(": {updated} of {wanted} pods have its template");
    }
    if let Some(pod) = component.trouble().next() {
        return format!(": pod {} is in trouble ({})", pod.pod, pod.reason);
    }
    let mut sets = component.replica_sets.iter();
    if let Some(refused) = sets.find_map(|set| set.refused.as_deref()) {
        return format!(": its pods cannot be created ({refused})");
    }
    let old = counts.replicas - updated;
    if old > 0 {
        let pods = counted(usize::try_from(old).unwrap_or_default(), "pod");
        return format!(": {pods} of an older template still there");
    }
    match component.state {
        Some(state) => format!(" is {state:?} as the operator last saw it"),
        None => " is not known to the operator yet".to_owned(),
    }
}

impl Facts<'_> {
    /// From when on pods are of what is being released, or of a release in whose place
    /// it came: it was seen within seconds.
    fn begun(&self, release: &ReleaseProgress) -> Timestamp {
        let records = self.status.history.iter().rev();
        let before = records.take_while(|record| record.result == ReleaseResult::Superseded);
        let begun = before.last().map(|record| record.started_at.0);
        let begun = begun.map_or(release.started_at.0, |at| at.min(release.started_at.0));
        begun.checked_sub(SETTLED).unwrap_or(begun)
    }

    /// How a release ends that fails.
    pub(super) fn end(&self) -> &'static str {
        use crate::api::OnFailure;
        let freezes = self
            .plan
            .is_some_and(|plan| plan.on_failure() == OnFailure::Freeze);
        match &self.status.stable_revision {
            None => "it fails and stays in place",
            Some(_) if freezes => "it stops where it is",
            Some(_) => "all goes back",
        }
    }

    /// Whether a release has stopped that leaves the stop for any other template.
    /// Where it moved several workloads, or fields of them, one may go back alone.
    pub(super) fn stops_exactly(&self) -> bool {
        let release = self.status.release.as_ref();
        let stopped = release.is_some_and(|release| release.stage == Stage::Stopped);
        let components = self.plan.map(Plan::components).unwrap_or_default();
        let [only] = components else { return false };
        let followed = only.template.is_none() && only.config_maps.is_empty();
        stopped && followed && !self.is_paused()
    }

    /// What tells whether the operator runs.
    pub(super) fn doctor(&self) -> Way {
        Way {
            effect: "find out whether the operator runs".to_owned(),
            command: self.command("check", ""),
        }
    }
}
