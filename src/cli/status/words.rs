//! Each reason in words for somebody who was woken up. Pure text: what it is
//! shown with is decided in [`super::verdict`].

use crate::api::Reason;

/// What is the matter, in a few words.
pub(super) const fn title(reason: Reason, paused: bool) -> &'static str {
    match reason {
        Reason::Released | Reason::BaselineTaken if paused => {
            "Released and healthy; paused, so new content waits"
        }
        Reason::Released | Reason::BaselineTaken => "Released and healthy",
        Reason::TargetsMissing => "Something that the plan needs is not there, or cannot be read",
        Reason::BaselineUnavailable => {
            "What is live is not healthy, so there is nothing to return to yet"
        }
        Reason::Settling | Reason::ReleaseStarted => "New content is being prepared",
        Reason::Promoting => "Releasing: waits for pods of the new template",
        Reason::Baking => "Released, and still judged",
        Reason::Superseded => "Newer content takes the place of the release",
        Reason::Reverted => "Going back, because the content did",
        Reason::RollbackStarted | Reason::RollingBack => "The release failed; all goes back",
        Reason::RolledBack => "Rolled back; the failed content is not tried again by itself",
        Reason::RollbackStalled => "Sent back, but what was stable does not get healthy either",
        Reason::ReleaseFailed => "The release failed, and there was nothing to return to",
        Reason::Paused => "Paused by the plan",
        Reason::WorkloadPaused => "A workload is paused by its own spec.paused",
        Reason::TemplateMismatch => "The template names containers that do not exist",
        Reason::TemplateRefused => "The API server refuses a template",
        Reason::Conflict => "Another plan holds a workload of this one",
        Reason::Contended => "Somebody else keeps changing fields of the plan",
        Reason::Reasserted => "Somebody else changed fields of the plan; they are set again",
        Reason::InvalidPlan => "The plan is not valid",
        Reason::NotAvailableYet => "The plan asks for what this version cannot do",
        Reason::Frozen => "The release failed and stopped where it is",
        Reason::RetryRequested => "Tried again, as somebody asked",
        Reason::RetryIgnored | Reason::AbortIgnored | Reason::UndoIgnored => {
            "An order was not carried out"
        }
        Reason::RollbackAborted => "The rollback was ended by a person; what is live stays",
        Reason::UndoRequested => "Going to an earlier revision, as somebody asked",
        Reason::Undone => "An earlier revision is live, as somebody asked",
        Reason::RevisionLost => "The record of a revision is gone or damaged",
        Reason::SnapshotLost => "Contents that a ConfigMap had are gone or damaged",
        Reason::ConfigMapMissing => "A tracked ConfigMap was deleted; what it held is kept",
        Reason::ConfigMapRefused => "A ConfigMap cannot be taken as it is",
        Reason::ConfigMapEdited => "A ConfigMap has to go back, and somebody edited it",
        Reason::StatusLost => "The status is gone, and what was stable cannot be told",
        Reason::StatusRebuilt => "The status was gone and has been rebuilt",
        Reason::ReconcileError => "The operator keeps failing on this plan",
        Reason::Deleting => "Being deleted, after everything is back",
        Reason::DeletionFinished => "Deleted; the workloads are let go",
    }
}

/// Whether nothing goes on until a person decides, whatever else goes on.
pub(super) const fn waits_for_person(reason: Reason) -> bool {
    matches!(
        reason,
        Reason::RolledBack
            | Reason::ReleaseFailed
            | Reason::TemplateMismatch
            | Reason::InvalidPlan
            | Reason::NotAvailableYet
            | Reason::Frozen
            | Reason::RollbackAborted
            | Reason::RevisionLost
            | Reason::SnapshotLost
            | Reason::ConfigMapRefused
            | Reason::ConfigMapEdited
            | Reason::Contended
            | Reason::Conflict
            | Reason::StatusLost
    )
}

/// What happens next by itself.
pub(super) const fn next(reason: Option<Reason>) -> &'static str {
    let Some(reason) = reason else {
        return "this version of the command does not know the reason";
    };
    match reason {
        Reason::Released
        | Reason::BaselineTaken
        | Reason::StatusRebuilt
        | Reason::ConfigMapMissing => "nothing until the content changes",
        Reason::TargetsMissing => "goes on by itself once it is",
        Reason::BaselineUnavailable => {
            "taken as the stable revision once all of it is available; at the deadline other content of the plan is released without a way back, unless it failed before"
        }
        Reason::Settling => {
            "the release begins within seconds; what was refused before is put back instead"
        }
        Reason::ReleaseStarted
        | Reason::Superseded
        | Reason::RetryRequested
        | Reason::UndoRequested => "the release begins within seconds",
        Reason::Promoting | Reason::Baking | Reason::Reasserted => {
            "done once all components are available"
        }
        Reason::Reverted | Reason::RollbackStarted | Reason::RollingBack | Reason::Deleting => {
            "done once all are back and available"
        }
        Reason::RollbackStalled => {
            "done once what was stable gets available; new content takes its place at once"
        }
        Reason::Paused => "nothing moves forward; pods are judged, and a rollback would go on",
        Reason::WorkloadPaused => "goes on once the workload is resumed",
        Reason::Conflict => "goes on once no other plan holds the workload",
        Reason::Contended => {
            "tried again once 10 minutes are past; it lasts until only one of the two writes"
        }
        Reason::ReconcileError => "tried again once a minute",
        Reason::StatusLost => "goes on once one of the kept revisions is live and available",
        Reason::TemplateRefused => "tried again now and then, and when something changes",
        Reason::RolledBack
        | Reason::ReleaseFailed
        | Reason::TemplateMismatch
        | Reason::InvalidPlan
        | Reason::NotAvailableYet
        | Reason::Frozen
        | Reason::RetryIgnored
        | Reason::AbortIgnored
        | Reason::UndoIgnored
        | Reason::RollbackAborted
        | Reason::Undone
        | Reason::RevisionLost
        | Reason::SnapshotLost
        | Reason::ConfigMapRefused
        | Reason::ConfigMapEdited => "nothing until a person decides",
        Reason::DeletionFinished => "the plan goes",
    }
}
