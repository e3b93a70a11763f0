//! Condition types and reasons, in one place for status, events and metrics.
//!
//! Says how conditions are merged into a status; which condition holds is
//! decided by [`crate::machine`].

use k8s_openapi::{
    apimachinery::pkg::apis::meta::v1::{Condition, Time},
    jiff::Timestamp,
};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Types of the conditions on a plan.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ConditionType {
    /// The content of the plan is released and was proven healthy (kstatus).
    Ready,
    /// Work towards the plan goes on (kstatus).
    Reconciling,
    /// Nothing goes on until somebody acts (kstatus).
    Stalled,
    /// A release is under way.
    RollingOut,
    /// Everything is going back.
    RollbackInProgress,
    /// The stable revision is what is live.
    Stable,
}

impl ConditionType {
    /// The type as it stands in the status.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Ready => "Ready",
            Self::Reconciling => "Reconciling",
            Self::Stalled => "Stalled",
            Self::RollingOut => "RollingOut",
            Self::RollbackInProgress => "RollbackInProgress",
            Self::Stable => "Stable",
        }
    }
}

/// Declares [`Reason`] with its string form, which is the variant's own name.
macro_rules! reasons {
    ($($(#[$doc:meta])+ $name:ident,)+) => {
        /// Reasons on conditions, events, decisions and metrics.
        #[derive(JsonSchema, Serialize, Deserialize, Clone, Copy, Debug, PartialEq, Eq, Hash)]
        pub enum Reason { $($(#[$doc])+ $name,)+ }

        impl Reason {
            /// Every reason there is.
            pub const ALL: &'static [Self] = &[$(Self::$name),+];

            /// The reason as it stands in conditions and events.
            #[must_use]
            pub const fn as_str(self) -> &'static str {
                match self { $(Self::$name => stringify!($name)),+ }
            }
        }
    };
}

impl Reason {
    /// Whether what it is about is told as a warning, in events and from the
    /// status alike. An undo that is not carried out may be somebody's wish, so
    /// whoever tells of it says that.
    #[must_use]
    pub const fn is_warning(self) -> bool {
        match self {
            Self::RollbackStarted
            | Self::RollingBack
            | Self::RolledBack
            | Self::RollbackStalled
            | Self::RollbackAborted
            | Self::ReleaseFailed
            | Self::WorkloadPaused
            | Self::TemplateMismatch
            | Self::TemplateRefused
            | Self::Conflict
            | Self::Contended
            | Self::Reasserted
            | Self::InvalidPlan
            | Self::NotAvailableYet
            | Self::Frozen
            | Self::RetryIgnored
            | Self::AbortIgnored
            | Self::Undone
            | Self::RevisionLost
            | Self::SnapshotLost
            | Self::ConfigMapMissing
            | Self::ConfigMapRefused
            | Self::ConfigMapEdited
            | Self::StatusLost
            | Self::StatusRebuilt
            | Self::ReconcileError => true,
            Self::Released
            | Self::TargetsMissing
            | Self::BaselineUnavailable
            | Self::BaselineTaken
            | Self::Settling
            | Self::ReleaseStarted
            | Self::Promoting
            | Self::Baking
            | Self::Superseded
            | Self::Reverted
            | Self::Paused
            | Self::RetryRequested
            | Self::UndoRequested
            | Self::UndoIgnored
            | Self::Deleting
            | Self::DeletionFinished => false,
        }
    }
}

reasons! {
    /// The content of the plan is released and healthy.
    Released,
    /// Workloads of the plan do not exist yet.
    TargetsMissing,
    /// What is live is not available yet, so nothing can be returned to.
    BaselineUnavailable,
    /// The stable revision was taken from what is live and healthy.
    BaselineTaken,
    /// New content was seen and stands still for a moment before it is released.
    Settling,
    /// A release started.
    ReleaseStarted,
    /// The workloads are getting the new templates.
    Promoting,
    /// All components are available and still judged.
    Baking,
    /// Newer content took the place of a release in progress.
    Superseded,
    /// The content went back to the stable one.
    Reverted,
    /// A release failed and goes back.
    RollbackStarted,
    /// Components are going back.
    RollingBack,
    /// Everything is back on the stable revision; the content is refused.
    RolledBack,
    /// Everything was sent back but does not become available.
    RollbackStalled,
    /// A release failed and there is nothing to return to.
    ReleaseFailed,
    /// The plan is paused by `spec.paused`.
    Paused,
    /// A workload is paused by its own `spec.paused`.
    WorkloadPaused,
    /// The template names containers that the workload does not have.
    TemplateMismatch,
    /// The API server refuses the template.
    TemplateRefused,
    /// Another plan holds a workload of this one.
    Conflict,
    /// Another writer keeps taking back fields of the plan.
    Contended,
    /// Another writer changed fields of the plan, and they are set again.
    Reasserted,
    /// The stored plan is not valid.
    InvalidPlan,
    /// The plan asks for something that this version cannot do.
    NotAvailableYet,
    /// A failed release waits where it is for a person.
    Frozen,
    /// A person asked to try refused content again.
    RetryRequested,
    /// A retry named a revision that is not refused.
    RetryIgnored,
    /// An abort named a revision that is not being released.
    AbortIgnored,
    /// A person ended a rollback; what is live stays.
    RollbackAborted,
    /// A person asked for an earlier revision.
    UndoRequested,
    /// An undo named a revision that nothing can go to.
    UndoIgnored,
    /// An earlier revision is live as asked, and the content of the plan is held.
    Undone,
    /// The stable revision's record is gone or damaged.
    RevisionLost,
    /// A snapshot of a ConfigMap that something has to go back to is gone or
    /// damaged.
    SnapshotLost,
    /// A tracked ConfigMap was deleted; its contents are kept.
    ConfigMapMissing,
    /// A tracked ConfigMap cannot be taken as it is.
    ConfigMapRefused,
    /// Somebody edited a ConfigMap whose contents have to go back.
    ConfigMapEdited,
    /// The status is gone, and what was stable cannot be told.
    StatusLost,
    /// The status was gone; what was stable was told from the revisions.
    StatusRebuilt,
    /// The operator keeps failing on this plan.
    ReconcileError,
    /// The plan is being deleted.
    Deleting,
    /// The deleted plan's workloads are back; the plan may go.
    DeletionFinished,
}

impl std::fmt::Display for Reason {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.as_str())
    }
}

/// The reason for which a plan with these conditions is stalled; none if it is
/// not, or for a reason of another version.
#[must_use]
pub fn stalled_for(conditions: &[Condition]) -> Option<Reason> {
    let stalled = ConditionType::Stalled.as_str();
    let mut found = conditions.iter().filter(|c| c.type_ == stalled);
    let condition = found.find(|c| c.status == "True")?;
    let mut all = Reason::ALL.iter().copied();
    all.find(|reason| reason.as_str() == condition.reason)
}

/// Puts `wanted` into `current`: the transition time of a condition moves only
/// when its status flips, and conditions that are not in `wanted` stay.
pub fn merge_conditions(
    current: &mut Vec<Condition>,
    wanted: &[(ConditionType, bool, Reason, String)],
    observed_generation: Option<i64>,
    now: Timestamp,
) {
    for (type_, status, reason, message) in wanted {
        let status = if *status { "True" } else { "False" };
        let next = |since| Condition {
            type_: type_.as_str().to_owned(),
            status: status.to_owned(),
            reason: reason.as_str().to_owned(),
            message: message.clone(),
            observed_generation,
            last_transition_time: since,
        };
        match current.iter_mut().find(|c| c.type_ == type_.as_str()) {
            Some(condition) => {
                let since = if condition.status == status {
                    condition.last_transition_time.clone()
                } else {
                    Time(now)
                };
                *condition = next(since);
            }
            None => current.push(next(Time(now))),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(second: i64) -> Timestamp {
        Timestamp::from_second(second).unwrap()
    }

    #[test]
    fn transition_time_moves_only_when_the_status_flips() {
        let mut conditions = Vec::new();
        let ready = |status, reason| vec![(ConditionType::Ready, status, reason, String::new())];
        merge_conditions(
            &mut conditions,
            &ready(false, Reason::Settling),
            Some(1),
            at(10),
        );
        merge_conditions(
            &mut conditions,
            &ready(false, Reason::Promoting),
            Some(2),
            at(20),
        );
        assert_eq!(conditions.len(), 1);
        assert_eq!(conditions[0].reason, "Promoting");
        assert_eq!(conditions[0].observed_generation, Some(2));
        assert_eq!(conditions[0].last_transition_time, Time(at(10)));
        merge_conditions(
            &mut conditions,
            &ready(true, Reason::Released),
            Some(2),
            at(30),
        );
        assert_eq!(conditions[0].last_transition_time, Time(at(30)));
    }

    #[test]
    fn a_plan_is_stalled_only_while_the_condition_says_so() {
        let mut conditions = Vec::new();
        assert_eq!(stalled_for(&conditions), None);
        let mut set = |type_, status, reason| {
            let wanted = [(type_, status, reason, String::new())];
            merge_conditions(&mut conditions, &wanted, None, at(10));
            stalled_for(&conditions)
        };
        let ready = set(ConditionType::Ready, true, Reason::Released);
        assert_eq!(ready, None);
        let lost = set(ConditionType::Stalled, true, Reason::RevisionLost);
        assert_eq!(lost, Some(Reason::RevisionLost));
        let goes_on = set(ConditionType::Stalled, false, Reason::Promoting);
        assert_eq!(goes_on, None);
        conditions[1].status = "True".into();
        conditions[1].reason = "OfAnotherVersion".into();
        assert_eq!(stalled_for(&conditions), None);
    }

    #[test]
    fn reasons_are_valid_condition_reasons() {
        for reason in Reason::ALL {
            let text = reason.as_str();
            assert!(text.chars().all(|c| c.is_ascii_alphanumeric()), "{text}");
            assert_eq!(serde_json::to_value(reason).unwrap(), text);
        }
    }
}
