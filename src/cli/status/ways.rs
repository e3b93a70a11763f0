//! What a person can do about a plan, as commands to paste.
//!
//! Only what the operator would carry out is offered, and nothing that a plan
//! on its way out would not take.

use std::collections::BTreeSet;

use super::{
    model::Way,
    said::EDIT,
    undone::remark,
    verdict::{Facts, condition, reason_of},
};
use crate::{
    api::{Cause, ComponentState, ConditionType, Phase, Reason, Stage},
    cli::orders::order::{annotate, keep, offered, out_of_rollback, retry_of, undo_to},
    plan::{Plan, abortable, unbegun},
};

pub(super) fn way(effect: &str, command: Option<String>) -> Way {
    Way {
        effect: effect.to_owned(),
        command,
    }
}

/// What kubectl resumes a workload by.
pub(super) const RESUME: &str = "rollout resume ";

/// What an abort of a first release does.
const NOTHING_BEFORE: &str =
    "end the release; there is nothing to go back to, so what is live stays as it is";

/// What leads out of a first release that failed beside other content.
const REPAIR: &str =
    "repair the workload: once it is available, it is what is returned to from then on";

/// Places that are named of those where content comes from.
const PLACES: usize = 3;

/// The first of several names, and how many others there are.
fn shorten(names: &mut Vec<String>) {
    let more = names.len().saturating_sub(PLACES);
    if more > 0 {
        names.truncate(PLACES);
        names.push(format!("{more} more"));
    }
}

/// What the operator says where only what stood beside a correction went back.
const ONCE_MORE: &str = "apply what went back once more";

impl Facts<'_> {
    /// To change the content where it comes from.
    fn change(&self) -> String {
        let components = self.plan.map(Plan::components).unwrap_or_default();
        let templated = components.iter().any(|c| c.template.is_some());
        let plan = templated || components.is_empty();
        let plan = plan.then(|| "the plan".to_owned()).into_iter();
        let followed = components.iter().filter(|c| c.template.is_none());
        let followed = followed.map(|c| c.target.to_string());
        let maps: BTreeSet<&String> = components.iter().flat_map(|c| &c.config_maps).collect();
        let seen = &self.status.config_maps;
        let is_gone = |name: &&String| seen.iter().any(|map| map.missing && map.name == **name);
        let (gone, maps): (Vec<&String>, Vec<&String>) = maps.into_iter().partition(is_gone);
        let maps = maps.into_iter().map(|name| format!("configmap {name}"));
        let mut places: Vec<String> = plan.chain(followed).chain(maps).collect();
        shorten(&mut places);
        let mut text = format!("{EDIT}{}", places.join(" or "));
        if !gone.is_empty() {
            // What is not there has no content that somebody could change.
            let mut gone: Vec<String> = gone.into_iter().cloned().collect();
            shorten(&mut gone);
            text.push_str(&format!(", or create configmap {} again", gone.join(", ")));
        }
        text
    }

    /// What a person can do.
    pub(super) fn ways(&self, reason: Option<Reason>) -> Vec<Way> {
        let Some(reason) = reason else {
            return Vec::new();
        };
        if self.stored.is_deleting() {
            // It takes no orders any more.
            return self.let_go().into_iter().collect();
        }
        let abort = |effect: &str| {
            let current = abortable(self.status)?;
            // Of one that has not begun nothing goes back.
            let drop = unbegun(self.status).map(|to| format!("drop the undo to {to}"));
            let first = self.status.stable_revision.is_none();
            let effect = if first { NOTHING_BEFORE } else { effect };
            Some(way(
                drop.as_deref().unwrap_or(effect),
                self.command("abort", &format!("--revision {current}")),
            ))
        };
        let mut ways: Vec<Option<Way>> = Vec::new();
        let edit = || Some(way(&self.change(), None));
        match reason {
            Reason::Settling
            | Reason::ReleaseStarted
            | Reason::Promoting
            | Reason::Baking
            | Reason::Superseded
            | Reason::RetryRequested
            | Reason::UndoRequested
            | Reason::Reasserted => {
                ways.push(abort("go back now"));
                ways.push(Some(way("hold it where it is", self.command("pause", ""))));
            }
            Reason::RollbackStarted | Reason::RollingBack => {
                ways.push(abort("end the rollback and keep what is live"));
            }
            Reason::RollbackStalled => {
                ways.push(self.stalled_pods());
                ways.push(self.out_of_rollback());
                ways.push(abort("end the rollback and keep what is live"));
            }
            Reason::RolledBack | Reason::Undone => {
                ways.push(edit());
                if self.message().contains(ONCE_MORE) {
                    // With what failed it would be tried as it was.
                    let more = format!("{ONCE_MORE}: beside the correction it is new");
                    ways.push(Some(way(&more, None)));
                } else if self.refused().is_some() {
                    ways.push(self.retry());
                }
            }
            Reason::Frozen => {
                ways.push(abort("go back"));
                ways.push(edit());
                ways.push(self.retry());
            }
            Reason::ReleaseFailed | Reason::RollbackAborted => {
                ways.push(edit());
                if self.status.stable_revision.is_none() {
                    ways.push(Some(way(REPAIR, None)));
                }
                ways.push(self.undo());
                ways.push(self.retry());
            }
            Reason::Paused => {
                ways.push(Some(way("go on", self.command("resume", ""))));
                ways.push(abort("go back now"));
            }
            Reason::WorkloadPaused => {
                ways.extend(self.paused_workloads());
                ways.push(abort("go back now"));
            }
            Reason::StatusLost => ways.push(Some(match offered(self.status) {
                Some(to) => way(
                    "go back to a kept revision",
                    self.command("undo", &format!("--to {to}")),
                ),
                None => way(
                    "name the revision to go back to, once they are listed",
                    None,
                ),
            })),
            Reason::InvalidPlan | Reason::NotAvailableYet => {
                let edit = format!("edit releaseplan {}", self.name());
                ways.push(Some(way("correct the plan", self.kubectl(&edit))));
            }
            Reason::Deleting => {}
            Reason::ReconcileError => ways.push(Some(self.doctor())),
            Reason::ConfigMapRefused if self.goes_back() => {
                match self.immutable() {
                    Some(name) => ways.push(Some(way(
                        "delete it, and it is made again with the contents of then",
                        self.kubectl(&format!("delete configmap {name}")),
                    ))),
                    None => ways.push(Some(way("change what refuses the contents", None))),
                }
                ways.push(abort("end the rollback and keep what is live"));
            }
            Reason::TemplateMismatch | Reason::TemplateRefused | Reason::ConfigMapRefused => {
                ways.push(edit());
                if self.goes_back() {
                    ways.push(abort("end the rollback and keep what is live"));
                }
            }
            Reason::Contended => {
                ways.extend(self.contended());
                ways.push(match self.status.phase {
                    Some(Phase::Rollback) => abort("end the rollback and keep what is live"),
                    _ => abort("go back now"),
                });
            }
            Reason::Conflict => ways.push(Some(self.conflict())),
            Reason::TargetsMissing => {
                // What only cannot be read is there.
                let message = self.message();
                if message.contains(" to exist") || !message.contains(" to be readable (") {
                    let create = "create what is missing, or correct its name in the plan";
                    ways.push(Some(way(create, None)));
                }
                if self.goes_back() {
                    ways.push(abort("end the rollback and keep what is live"));
                }
            }
            Reason::RevisionLost => {
                ways.push(Some(way("restore the record from a backup", None)));
                ways.push(self.begin_anew());
            }
            Reason::SnapshotLost => {
                let give = "give the ConfigMap the contents that were lost";
                ways.push(Some(way(give, None)));
                ways.push(abort("end the rollback and keep what is live"));
            }
            Reason::ConfigMapEdited => {
                let give = "keep the edit elsewhere, and give the ConfigMap its contents of then";
                ways.push(Some(way(give, None)));
                ways.push(abort("end the rollback and keep what is live"));
            }
            Reason::BaselineUnavailable if self.status.phase == Some(Phase::Failed) => {
                ways.push(edit());
                ways.push(self.retry());
            }
            Reason::Released
            | Reason::BaselineTaken
            | Reason::BaselineUnavailable
            | Reason::Reverted
            | Reason::RetryIgnored
            | Reason::AbortIgnored
            | Reason::UndoIgnored
            | Reason::ConfigMapMissing
            | Reason::StatusRebuilt
            | Reason::DeletionFinished => {}
        }
        if self.is_paused() && reason != Reason::Paused {
            ways.push(Some(way("end the pause", self.command("resume", ""))));
        }
        ways.into_iter().flatten().collect()
    }

    pub(super) fn goes_back(&self) -> bool {
        let release = self.status.release.as_ref();
        release.is_some_and(|release| release.stage == Stage::Restore)
    }

    /// The ConfigMap that contents cannot be written to since it is immutable.
    fn immutable(&self) -> Option<&str> {
        let (before, _) = self.message().split_once(" is immutable, so ")?;
        let (_, name) = before.rsplit_once("configmap ")?;
        (!name.contains(' ')).then_some(name)
    }

    fn let_go(&self) -> Option<Way> {
        let text = keep(self.stored)?;
        Some(way("let it go with what is live", self.kubectl(&text)))
    }

    /// To take what is live as stable, where the operator offers that. What is under
    /// way must not go back for it.
    fn begin_anew(&self) -> Option<Way> {
        let message = self.message();
        if !message.contains("take what is live as stable: ") {
            return None;
        }
        let delete = self.kubectl(&format!("delete releaseplan {}", self.name()))?;
        let keep = keep(self.stored).filter(|_| message.contains("deletionPolicy"));
        let command = match keep.and_then(|keep| self.kubectl(&keep)) {
            Some(keep) => format!("{keep} && {delete}"),
            None => delete,
        };
        let effect = "take what is live as stable, and apply the plan again then";
        Some(way(effect, Some(command)))
    }

    /// The revision that `retry` takes by itself.
    pub(super) fn retry(&self) -> Option<Way> {
        let revision = retry_of(self.stored)?;
        let mut refused = self.status.refused.iter();
        let refused = refused.find(|r| r.revision == revision);
        let undone = condition(self.status, ConditionType::Ready)
            .is_some_and(|ready| reason_of(ready) == Some(Reason::Undone));
        let held = refused.filter(|r| undone || r.cause == Cause::Undone);
        let effect = match held {
            Some(refused) => {
                let remark = remark(self.status, refused);
                let remark = remark.map_or_else(String::new, |remark| format!(" ({remark})"));
                format!("release the plan's content after all{remark}")
            }
            None => "try the same again".to_owned(),
        };
        let more = format!("--revision {revision}");
        Some(way(&effect, self.command("retry", &more)))
    }

    /// The revision that `undo` goes to by itself.
    pub(super) fn undo(&self) -> Option<Way> {
        let to = undo_to(self.stored)?;
        let command = self.command("undo", &format!("--to {to}"));
        Some(way("go to an earlier revision", command))
    }

    /// The rollback ends, and an older revision comes back in one write: an
    /// undo alone would wait for what does not end.
    fn out_of_rollback(&self) -> Option<Way> {
        let (older, left) = out_of_rollback(self.status)?;
        let command = self.kubectl(&annotate(self.name(), older, left));
        Some(way("go to an older revision instead", command))
    }

    fn stalled_pods(&self) -> Option<Way> {
        let waits = |c: &&crate::api::ComponentStatus| c.progress_at.is_some();
        let component = self.status.components.iter().find(waits)?;
        let name = component.workload.name.as_deref()?;
        let text = format!("describe deployment {name}");
        Some(way("find out why its pods do not run", self.kubectl(&text)))
    }

    /// A guess: whether a workload is paused only the workload itself says.
    fn paused_workloads(&self) -> Vec<Option<Way>> {
        let open = self.status.components.iter().filter(|c| {
            c.state == Some(ComponentState::Updating) && c.updated_replicas < c.replicas
        });
        open.filter_map(|c| c.workload.name.as_deref())
            .map(|name| Some(self.resume(&format!("deployment/{name}"))))
            .collect()
    }

    /// To resume a workload that is paused by itself.
    pub(super) fn resume(&self, workload: &str) -> Way {
        way("go on", self.kubectl(&format!("{RESUME}{workload}")))
    }
}
