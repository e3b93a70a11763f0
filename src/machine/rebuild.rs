//! A plan whose status is gone while its revisions are there: restored without
//! it, or replaced by somebody. What was stable is told from the revisions,
//! never by adopting what is live.

use super::{
    contents,
    context::{Context, is_at, is_complete},
    report,
    rollout::reset,
    snapshots, ways,
};
use crate::{
    api::{
        Cause, ComponentState, Failure, Phase, Reason, RefusedContent, ReleaseKind,
        ReleaseProgress, ReleaseRecord, ReleaseResult, Stage, UNDO,
    },
    config_maps::rewrite,
    fields::canon,
    machine::Known,
    revision::Revision,
};

/// Whether the status is gone; tells what was stable, or holds.
pub(super) fn run(ctx: &mut Context<'_>) -> bool {
    let known = &ctx.input.world.known;
    if known.is_empty() {
        return false;
    }
    if let [only] = known.as_slice()
        && only.number == 0
        && is_live(ctx, only)
    {
        // The first pass over the plan did not come to its end; it is made again.
        return false;
    }
    if !snapshots::is_resolved(ctx) {
        // Which content was tried before is told by the contents, too.
        let (missing, unread) = snapshots::missing(ctx);
        let what = [missing, unread].concat().join(" and ");
        let text = format!(
            "the status is gone, and is told from the kept revisions once the contents of the plan are known: waiting for {what}"
        );
        report::stalled(ctx, Reason::StatusLost, &text);
        return true;
    }
    let Some(stable) = stable(ctx, known) else {
        hold(ctx, known);
        return true;
    };
    ctx.status.stable_revision = Some(stable.revision.name.clone());
    ctx.status.phase = Some(Phase::Stable);
    let text = format!(
        "the status was gone; {} is the stable revision, told from the kept revisions",
        stable.revision.name
    );
    // Numbers go on from where they were. What was tried last and is not what is
    // live did not stay.
    let mut tried: Vec<&Known> = known.iter().collect();
    tried.retain(|known| known.number >= stable.number && known.number > 0);
    tried.sort_by_key(|known| (known.number, known.revision.name == stable.revision.name));
    tried.dedup_by_key(|known| known.number);
    for tried in tried {
        let at = ctx.time();
        let is_stable = tried.number == stable.number;
        let (result, from) = if is_stable {
            (ReleaseResult::Succeeded, None)
        } else {
            (
                ReleaseResult::RolledBack,
                Some(stable.revision.name.clone()),
            )
        };
        let revision = if is_stable { stable } else { tried };
        ctx.status.history.push(ReleaseRecord {
            number: tried.number,
            kind: ReleaseKind::Content,
            revision: Some(revision.revision.name.clone()),
            requested_by: None,
            changes: Vec::new(),
            from,
            unproven: false,
            started_at: at.clone(),
            ended_at: at,
            result,
            message: Some(text.clone()),
        });
    }
    refuse(ctx, known, &stable.revision);
    ctx.tell(true, Reason::StatusRebuilt, &text);
    ctx.wake_in(std::time::Duration::ZERO);
    report::progressing(ctx, Reason::StatusRebuilt, &text);
    true
}

/// The newest revision whose healthy form is live. With nothing but the first
/// one, which was live and healthy when the plan began, it is that.
fn stable<'a>(ctx: &Context<'_>, known: &'a [Known]) -> Option<&'a Known> {
    let live = known.iter().filter(|known| is_live(ctx, known));
    // A record of the same release that says more of what is owned came later.
    let newest = live.max_by_key(|known| (known.number, owned(ctx, known)));
    newest.or(match known {
        [only] if only.number == 0 => Some(only),
        _ => None,
    })
}

/// Whether all components have the templates of a revision, and are available.
fn is_live(ctx: &Context<'_>, known: &Known) -> bool {
    ctx.components().all(|view| {
        let frozen = known.revision.data.of(&view.scope.target);
        let workload = view.observed.workload.as_ref();
        workload.zip(frozen).is_some_and(|(workload, frozen)| {
            let owned = workload.owned.difference(&contents::annotation());
            let touched = frozen.touched().union(&owned);
            is_complete(workload) && is_at(workload, frozen, &touched)
        })
    })
}

/// How many components own what a revision says.
fn owned(ctx: &Context<'_>, known: &Known) -> usize {
    let components = ctx.components().filter(|view| {
        let frozen = known.revision.data.of(&view.scope.target);
        let workload = view.observed.workload.as_ref();
        workload
            .zip(frozen)
            .is_some_and(|(workload, frozen)| workload.owned == frozen.fields)
    });
    components.count()
}

/// Content that was tried before is not tried again: how it ended is not known.
fn refuse(ctx: &mut Context<'_>, known: &[Known], stable: &Revision) {
    let Ok(plan) = ctx.input.plan else { return };
    let content = plan.content();
    let tried = |known: &&Known| known.revision.data.spec == content;
    let tried = known.iter().filter(tried).max_by_key(|known| known.number);
    if let Some(tried) = tried.filter(|_| stable.data.spec != content) {
        let at = ctx.time();
        ctx.status.refused.push(RefusedContent {
            revision: tried.revision.name.clone(),
            spec: Some(content.to_owned()),
            live: Vec::new(),
            cause: Cause::StatusLost,
            component: None,
            corrected: false,
            held: false,
            message: "it was released before, and how that ended was lost".to_owned(),
            at,
        });
    }
}

/// Whether a revision is made of the templates that are asked for now.
fn is_asked_for(ctx: &Context<'_>, known: &Known) -> bool {
    ctx.components().all(|view| {
        let frozen = known.revision.data.of(&view.scope.target);
        let plain = |template| canon::digest(&contents::plain(template));
        frozen.is_some_and(|frozen| match &view.scope.template {
            Some(template) => {
                let now = view.scope.tracked.iter();
                let now = now.map(|now| (now.snapshot.clone(), now.name.clone()));
                let then = frozen.keeps().cloned();
                let then = then.map(|then| (then.name, then.snapshot));
                let asked = rewrite(&rewrite(template, &now.collect()), &then.collect());
                Some(canon::digest_json(&asked)) == frozen.partial_digest
            }
            None => view
                .observed
                .workload
                .as_ref()
                .is_some_and(|live| plain(&live.template) == plain(&frozen.template)),
        })
    })
}

fn hold(ctx: &mut Context<'_>, known: &[Known]) {
    ctx.status.phase = Some(Phase::Pending);
    let kept: Vec<String> = known
        .iter()
        .map(|known| format!("{} (release {})", known.revision.name, known.number))
        .collect();
    // What the plan or a workload asks for now may be what did not come to its
    // end, also where a ConfigMap has got other contents since.
    let likely = known
        .iter()
        .max_by_key(|known| (!is_asked_for(ctx, known), known.number));
    let likely = likely.map_or("", |known| known.revision.name.as_str());
    let text = format!(
        "the status of this plan is gone, and what is live is no kept revision in full and available. It goes on by itself once one of them is. Or name the one to go back to, such as {likely}: {} ; kept: {}",
        ways::order(ctx, &[(UNDO, likely)]),
        kept.join(", ")
    );
    report::stalled(ctx, Reason::StatusLost, &text);
}

/// Whether the release in progress goes to the revision that a person named while
/// the status was gone.
pub(super) fn is_asked_for_in_loss(ctx: &Context<'_>) -> bool {
    ctx.release().is_some_and(|release| {
        let failure = release.failure.as_ref();
        let lost = failure.is_some_and(|failure| failure.cause == Cause::StatusLost);
        release.kind == ReleaseKind::Undo && lost
    })
}

/// Goes to the revision that a person named; false if it is not kept.
pub(super) fn go_to(ctx: &mut Context<'_>, name: &str) -> bool {
    let known = &ctx.input.world.known;
    let Some(to) = known.iter().find(|known| known.revision.name == name) else {
        return false;
    };
    refuse(ctx, known, &to.revision);
    let message = "the status was gone, and this revision was asked for".to_owned();
    let applied = known.iter().map(|known| known.revision.name.clone());
    ctx.status.release = Some(ReleaseProgress {
        number: known.iter().map(|known| known.number).max().unwrap_or(0) + 1,
        kind: ReleaseKind::Undo,
        stage: Stage::Restore,
        content: String::new(),
        started_at: ctx.micros(),
        stage_since: ctx.micros(),
        requested_by: None,
        generation: ctx.input.world.plan.release_generation,
        applied: applied.filter(|applied| applied != name).collect(),
        held_since: None,
        failure: Some(Failure {
            component: None,
            cause: Cause::StatusLost,
            message: message.clone(),
            at: ctx.micros(),
        }),
        undo: None,
        retried: false,
    });
    ctx.status.stable_revision = Some(name.to_owned());
    ctx.status.phase = Some(Phase::Rollback);
    ctx.status.step = Some("Restore".to_owned());
    reset(ctx, ComponentState::Waiting);
    ctx.tell(false, Reason::UndoRequested, &message);
    report::progressing(ctx, Reason::UndoRequested, &message);
    true
}
