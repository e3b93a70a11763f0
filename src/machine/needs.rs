//! What a pass has to read before it can decide: nothing more, so that an idle
//! plan costs no dry run and no revision is loaded for it.

use std::{collections::BTreeMap, sync::Arc};

use super::{PlanFacts, Scope, Workload};
use crate::{
    api::{Phase, Reason, ReleaseKind, ReleasePlanStatus, Stage},
    fields::{Found, canon},
    plan::{Target, is_lost, retryable, undoable},
    revision::Revision,
};

/// What has to be read.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Needs {
    /// Components whose templates, the partial and the frozen one, have to go
    /// through a dry run.
    pub dry_run: Vec<bool>,
    /// Whether the pods of the components have to be watched.
    pub pods: bool,
    /// Revisions to load.
    pub revisions: Vec<String>,
    /// Whether all revisions of the plan have to be found, since the status
    /// names none.
    pub known: bool,
}

/// Decides what a pass has to read, from what is known and the workloads.
#[must_use]
pub fn needs(
    scope: &[Scope],
    workloads: &[Option<Workload>],
    status: &ReleasePlanStatus,
    facts: &PlanFacts,
) -> Needs {
    let news = scope
        .iter()
        .zip(workloads)
        .any(|(scope, workload)| is_news(scope, workload.as_ref(), status))
        || scope.len() != status.components.len();
    let release = status.release.as_ref();
    let settling = release.is_some_and(|r| r.stage == Stage::Settle);
    let resting = status.phase == Some(Phase::Stable) && release.is_none();
    let undo = release.and_then(|release| release.undo.as_ref());
    let (retry, back) = (facts.retry.as_deref(), facts.undo.as_deref());
    let dry = !facts.deleting
        && ((settling && undo.is_none()) || (release.is_none() && (!resting || news)));
    let mut revisions = Vec::new();
    let needed = news || holds(scope, status);
    if release.is_some() || (resting && needed) || retry.is_some() || back.is_some() {
        revisions.extend(status.stable_revision.clone());
    }
    if let Some(release) = release {
        revisions.extend(release.applied.iter().cloned());
        revisions.extend(status.proven_revision.clone());
        revisions.extend(status.target_revision.clone());
        revisions.extend(tried_before(status).cloned());
    }
    revisions.extend(undo.cloned());
    let retried = retry.filter(|name| retryable(status).contains(name));
    let undone = back.filter(|name| undoable(status).contains(name));
    revisions.extend(retried.into_iter().chain(undone).map(str::to_owned));
    revisions.sort();
    revisions.dedup();
    Needs {
        dry_run: scope
            .iter()
            .zip(workloads)
            .map(|(scope, workload)| dry && !scope.leaving && workload.is_some())
            .collect(),
        pods: release.is_some_and(|r| !matches!(r.stage, Stage::Settle | Stage::Stopped)),
        revisions,
        known: !facts.deleting && (is_new(status) || is_lost(status)),
    }
}

/// The first content that failed before the one that is released now: what its
/// record is compared with, since nothing is stable.
pub(super) fn tried_before(status: &ReleasePlanStatus) -> Option<&String> {
    let release = status.release.as_ref()?;
    let last = status.history.last()?;
    let is_first = |kind| kind == ReleaseKind::First;
    (status.stable_revision.is_none() && is_first(release.kind) && is_first(last.kind))
        .then_some(last.revision.as_ref())?
}

/// Whether the status says of nothing that it was ever stable or released: the
/// plan is new, or its status is gone and something else was in the way since.
fn is_new(status: &ReleasePlanStatus) -> bool {
    matches!(status.phase, None | Some(Phase::Pending))
        && status.stable_revision.is_none()
        && status.release.is_none()
        && status.history.is_empty()
        // Whoever claimed a workload has looked for revisions, and said so of a
        // loss that another reason may stand in front of by now.
        && (status.components.iter().all(|c| c.claimed_at.is_none())
            || status.decisions.iter().any(|d| d.reason == Reason::StatusLost))
}

/// Whether other content is live than the plan asks for, so that which contents
/// of ConfigMaps are in use only the stable revision says.
fn holds(scope: &[Scope], status: &ReleasePlanStatus) -> bool {
    let held = [Reason::RolledBack, Reason::Undone];
    let mut conditions = status.conditions.iter();
    scope.iter().any(|scope| !scope.config_maps.is_empty())
        && conditions.any(|c| c.type_ == "Ready" && held.iter().any(|r| r.as_str() == c.reason))
}

/// What stood in the fields that Belay took of a workload, under the stable
/// revision and under every target applied since. The earliest record stands.
#[must_use]
pub fn found(
    status: &ReleasePlanStatus,
    revisions: &BTreeMap<String, Arc<Revision>>,
    target: &Target,
) -> Found {
    let applied = status.release.iter().flat_map(|release| &release.applied);
    let mut found = Found::default();
    for name in status.stable_revision.iter().chain(applied) {
        let frozen = revisions.get(name).and_then(|r| r.data.of(target));
        if let Some(frozen) = frozen {
            found.merge(frozen.found.clone());
        }
    }
    found
}

/// Whether a component is not as it was when it was last judged.
pub(super) fn is_news(
    scope: &Scope,
    workload: Option<&Workload>,
    status: &ReleasePlanStatus,
) -> bool {
    let reference = scope.target.to_ref();
    let Some(known) = status.components.iter().find(|c| c.workload == reference) else {
        return true;
    };
    if scope.leaving {
        return true;
    }
    let Some(workload) = workload else {
        return false;
    };
    known.name != scope.name
        || known.partial_digest != scope.template_digest
        || known.config_digest != scope.config_digest()
        || known.uid.as_deref() != Some(workload.uid.as_str())
        || known.live_digest.as_deref() != Some(canon::digest(&workload.template).as_str())
}
