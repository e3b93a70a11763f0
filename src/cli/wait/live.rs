//! Whether a plan's word is about what is live.
//!
//! A release generation cannot tell for what is not in the plan: the operator
//! must have judged the template that stands on a followed Deployment now, and
//! the contents that tracked ConfigMaps have now.

use std::{
    collections::{BTreeSet, HashMap},
    time::Duration,
};

use k8s_openapi::{
    api::core::v1::ConfigMap,
    apimachinery::pkg::apis::meta::v1::ObjectMeta,
    jiff::{SignedDuration, Timestamp},
};
use kube::api::DynamicObject;

use super::{
    is,
    reads::Reads,
    verdict::{Outcome, State},
};
use crate::{
    api::{ComponentState, ConditionType, ConfigMapStatus, Reason, StoredPlan},
    cli::{
        CliError, Kind, Session, Target,
        status::verdict::{last_edit, stops_exactly},
    },
    clock::{Clock, SystemClock},
    config_maps::{Contents, MAX_BYTES},
    fields::canon,
};

/// Time between two looks while the operator has not seen a change.
pub(super) const AGAIN: Duration = Duration::from_secs(1);

/// For how long an edit is younger than the word of a plan that is fought over.
const MOMENT: SignedDuration = SignedDuration::from_secs(10);

/// What is live and is not as it was judged or seen.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Unlike {
    /// "configmap web".
    pub(super) what: String,
    /// When it was changed last, if that is known: not of what was deleted.
    pub(super) at: Option<Timestamp>,
}

impl Unlike {
    /// Whether it is the Deployment of this name.
    fn is_of(&self, name: &str) -> bool {
        self.what == deployment(name)
    }
}

fn deployment(name: &str) -> String {
    format!("deployment {name}")
}

/// Whether a plan's word is about what is live.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Word {
    /// It is.
    Current,
    /// It is about what was live before.
    Older(Vec<Unlike>),
    /// The operator either has not seen what is live, or need not judge it:
    /// where a release stopped, not every change of what is live is news. With
    /// the time of that change, if it is known.
    Unsure(Option<Timestamp>),
}

/// What an outcome rests on beside the plan.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Rests {
    /// On all that is live.
    All,
    /// On what was live when it stopped.
    Stopped,
    /// On the contents of ConfigMaps at most.
    Contents,
    /// On nothing.
    Nothing,
}

impl Rests {
    fn of(state: &State) -> Self {
        // Other templates take it out of these at once.
        let held = [Reason::Frozen, Reason::Contended];
        match state.outcome {
            Some(Outcome::Released | Outcome::RolledBack | Outcome::Undone) => Self::All,
            Some(Outcome::Failed) => Self::Stopped,
            Some(Outcome::Held) if held.map(Reason::as_str).contains(&&*state.reason) => {
                Self::Stopped
            }
            Some(Outcome::Held | Outcome::Refused) => Self::Contents,
            Some(Outcome::Superseded | Outcome::Ignored | Outcome::Deleted) | None => Self::Nothing,
        }
    }
}

/// Whether anything that a plan is about is not as the operator saw it when it came
/// to rest. What cannot be read says nothing.
pub(in crate::cli) async fn is_unseen(plan: &StoredPlan, session: &Session) -> bool {
    let none = BTreeSet::new();
    let mut reads = Reads::new(session, &none);
    let mut live = Live::of(plan, &[], "");
    live.followed = workloads(plan);
    let templates = live.templates(plan, &mut reads, Rests::All).await;
    if templates.is_ok_and(|unlike| !unlike.is_empty()) {
        return true;
    }
    let contents = live.contents(plan, &mut reads, Rests::Contents).await;
    contents.is_ok_and(|unlike| !unlike.is_empty())
}

/// The Deployments that a plan names.
fn workloads(plan: &StoredPlan) -> Vec<String> {
    let components = plan.spec["components"].as_array().into_iter().flatten();
    let names = components.filter_map(|component| component["workload"]["name"].as_str());
    names.map(str::to_owned).collect()
}

/// What has to be what was judged.
pub(super) struct Live {
    /// Deployments that were named on the command line: they must be readable.
    named: Vec<String>,
    /// Whether the plan writes into one of those.
    templated: bool,
    /// Whether nothing but they is meant.
    alone: bool,
    /// Those that the plan follows.
    followed: Vec<String>,
    /// Those whose templates may differ by the stamp of their contents while a release
    /// is stopped.
    with_contents: Vec<String>,
    /// ConfigMaps that the plan tracks.
    config_maps: Vec<String>,
}

impl Live {
    /// `namespace` is that of targets that name none.
    pub(super) fn of(plan: &StoredPlan, targets: &[Target], namespace: &str) -> Self {
        let components = plan.spec["components"].as_array();
        let mut live = Self {
            named: Vec::new(),
            templated: false,
            alone: !targets.iter().any(|target| is(target, plan, namespace)),
            followed: Vec::new(),
            with_contents: Vec::new(),
            config_maps: Vec::new(),
        };
        for component in components.into_iter().flatten() {
            let Some(name) = component["workload"]["name"].as_str() else {
                continue;
            };
            let tracked = component["configMaps"].as_array().into_iter().flatten();
            let before = live.config_maps.len();
            live.config_maps
                .extend(tracked.filter_map(|name| Some(name.as_str()?.to_owned())));
            let is_followed = component["template"].is_null();
            if is_followed && live.config_maps.len() > before {
                live.with_contents.push(name.to_owned());
            }
            let mut deployments = targets.iter().filter(|target| {
                let own = target.namespace.as_deref().unwrap_or(namespace);
                target.kind == Kind::Deployment && Some(own) == plan.metadata.namespace.as_deref()
            });
            if deployments.any(|target| target.name == name) {
                live.named.push(name.to_owned());
                live.templated |= !is_followed;
            } else if is_followed {
                live.followed.push(name.to_owned());
            }
        }
        live.config_maps.sort_unstable();
        live.config_maps.dedup();
        live
    }

    /// Whether the plan writes into the Deployments that were named, where it is
    /// them alone that somebody waits for.
    pub(super) fn deployments(&self) -> Option<bool> {
        (self.alone && !self.named.is_empty()).then_some(self.templated)
    }

    /// Whether an outcome is about what is live.
    pub(super) async fn word(
        &self,
        plan: &StoredPlan,
        state: &State,
        reads: &mut Reads<'_>,
    ) -> Result<Word, CliError> {
        let rests = Rests::of(state);
        let mut templates = Vec::new();
        if matches!(rests, Rests::All | Rests::Stopped) {
            templates = self.templates(plan, reads, rests).await?;
        }
        if state.reason == Reason::Contended.as_str() {
            // What is fought over is never as it was judged: only what was set a
            // moment ago may be something else.
            let now = SystemClock.now();
            let young = |at: Timestamp| now.duration_since(at) < MOMENT;
            templates.retain(|template| template.at.is_some_and(young));
        }
        let mut unlike = Vec::new();
        if rests != Rests::Nothing && (templates.is_empty() || rests == Rests::Stopped) {
            unlike = self.contents(plan, reads, rests).await?;
        }
        if rests == Rests::All || stops_exactly(plan) {
            // While it is stopped, the stamp of their contents may be another.
            let (unsure, sure) = templates.into_iter().partition(|template: &Unlike| {
                let mut names = self.with_contents.iter();
                rests == Rests::Stopped && names.any(|name| template.is_of(name))
            });
            templates = unsure;
            let mut sure: Vec<Unlike> = sure;
            unlike.append(&mut sure);
        }
        Ok(match (unlike.is_empty(), templates.is_empty()) {
            (true, true) => Word::Current,
            (true, false) => Word::Unsure(newest(&templates)),
            // What ConfigMaps hold is noted on every look, whatever is under way.
            (false, _) => Word::Older(unlike),
        })
    }

    /// The tracked ConfigMaps whose contents the operator has not seen: on every look
    /// it notes what they hold.
    pub(super) async fn unseen(
        &self,
        plan: &StoredPlan,
        reads: &mut Reads<'_>,
    ) -> Result<Vec<Unlike>, CliError> {
        self.contents(plan, reads, Rests::Contents).await
    }

    /// The Deployments whose live templates are not those that were judged.
    async fn templates(
        &self,
        plan: &StoredPlan,
        reads: &mut Reads<'_>,
        rests: Rests,
    ) -> Result<Vec<Unlike>, CliError> {
        let names: Vec<&String> = self.named.iter().chain(&self.followed).collect();
        if names.is_empty() {
            return Ok(Vec::new());
        }
        let namespace = plan.metadata.namespace.as_deref().unwrap_or_default();
        match reads.deployments(namespace, &names).await {
            Ok(live) => Ok(self.unlike(plan, &names, &live, rests)),
            // Who may only see plans takes the plan's word for it.
            Err(kube::Error::Api(status)) if status.is_forbidden() && self.named.is_empty() => {
                Ok(Vec::new())
            }
            Err(error) => Err(CliError::api("read the plan's deployments", error)),
        }
    }

    /// Those of the Deployments of these names that are not as they were judged.
    fn unlike(
        &self,
        plan: &StoredPlan,
        names: &[&String],
        live: &[DynamicObject],
        rests: Rests,
    ) -> Vec<Unlike> {
        let (judged, missing) = (judged(plan), missing(plan));
        let is_current = |name: &str, object: Option<&DynamicObject>| match object {
            Some(object) => match judged.get(name) {
                Some(judged) => *judged == canon::digest(&object.data["spec"]["template"]),
                // Where nothing is to be judged, nothing need be recorded.
                None => rests == Rests::Stopped,
            },
            // Nothing is released to what is not there.
            None if rests == Rests::All && self.named.iter().any(|named| named == name) => false,
            None => missing.contains(&name),
        };
        let found = |name: &str| {
            let mut live = live.iter();
            live.find(|object| object.metadata.name.as_deref() == Some(name))
        };
        let all = names.iter().map(|name| (name, found(name)));
        let unlike = all.filter(|(name, object)| !is_current(name, *object));
        unlike
            .map(|(name, object)| Unlike {
                what: deployment(name),
                at: object.and_then(|object| changed(&object.metadata)),
            })
            .collect()
    }

    /// The tracked ConfigMaps whose contents are not those that the operator saw.
    async fn contents(
        &self,
        plan: &StoredPlan,
        reads: &mut Reads<'_>,
        rests: Rests,
    ) -> Result<Vec<Unlike>, CliError> {
        let namespace = plan.metadata.namespace.as_deref().unwrap_or_default();
        let read = match reads.config_maps(namespace, &self.config_maps).await {
            Ok(read) => read,
            // As for Deployments.
            Err(kube::Error::Api(status)) if status.is_forbidden() => return Ok(Vec::new()),
            Err(error) => return Err(CliError::api("read the plan's configmaps", error)),
        };
        let seen = plan.status.iter().flat_map(|status| &status.config_maps);
        let seen: Vec<&ConfigMapStatus> = seen.collect();
        let unlike = read.iter().filter(|(name, object)| {
            let seen = seen.iter().find(|seen| seen.name == *name);
            let told = || object.as_ref().is_some_and(|o| is_told(plan, name, o));
            !is_seen(seen.copied(), object.as_ref(), rests) && !told()
        });
        Ok(unlike
            .map(|(name, object)| Unlike {
                what: format!("configmap {name}"),
                at: object.as_ref().and_then(|object| changed(&object.metadata)),
            })
            .collect())
    }
}

/// When an object was changed last, if that is known.
fn changed(meta: &ObjectMeta) -> Option<Timestamp> {
    last_edit(meta).map(|at| at.0)
}

/// The last of several changes; none unless all are known.
fn newest(changes: &[Unlike]) -> Option<Timestamp> {
    let known: Option<Vec<Timestamp>> = changes.iter().map(|unlike| unlike.at).collect();
    known?.into_iter().max()
}

/// Whether the operator says that a ConfigMap is too large, as it is now: it has seen
/// it, and keeps no digest of that.
fn is_told(plan: &StoredPlan, name: &str, live: &ConfigMap) -> bool {
    let bytes = Contents::of(live).bytes();
    let told = format!("configmap {name} holds {bytes} bytes; ");
    let mut conditions = plan.status.iter().flat_map(|status| &status.conditions);
    bytes > MAX_BYTES
        && conditions.any(|c| c.type_ == ConditionType::Ready.as_str() && c.message.contains(&told))
}

/// Whether a ConfigMap is as the operator saw it.
fn is_seen(seen: Option<&ConfigMapStatus>, live: Option<&ConfigMap>, rests: Rests) -> bool {
    match (seen, live) {
        (Some(seen), None) => seen.missing,
        (Some(seen), Some(live)) => {
            let contents = Contents::of(live);
            // The digest of what is too large is not kept.
            (contents.bytes() > MAX_BYTES && rests != Rests::All)
                || seen.digest.as_ref() == Some(&contents.digest())
        }
        (None, _) => rests != Rests::All,
    }
}

/// Digests of the live templates that the plan's word is about, by workload.
fn judged(plan: &StoredPlan) -> HashMap<&str, &str> {
    let components = plan.status.iter().flat_map(|status| &status.components);
    components
        .filter_map(|c| Some((c.workload.name.as_deref()?, c.looked_at()?)))
        .collect()
}

/// Workloads of which the operator has seen that they are not there.
fn missing(plan: &StoredPlan) -> Vec<&str> {
    let components = plan.status.iter().flat_map(|status| &status.components);
    let missing = components.filter(|c| c.state == Some(ComponentState::Missing));
    missing.filter_map(|c| c.workload.name.as_deref()).collect()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::cli::testing::{session, with};

    #[test]
    fn an_edit_of_a_config_map_that_the_operator_has_not_seen_is_no_result() {
        let map = |value: &str| -> ConfigMap {
            serde_json::from_value(json!({"data": {"k": value}})).unwrap()
        };
        let seen = |value: &str| ConfigMapStatus {
            name: "cart".into(),
            digest: Some(Contents::of(&map(value)).digest()),
            missing: false,
        };
        assert!(is_seen(Some(&seen("1")), Some(&map("1")), Rests::All));
        assert!(!is_seen(Some(&seen("1")), Some(&map("2")), Rests::All));
        assert!(!is_seen(Some(&seen("1")), None, Rests::All));
        assert!(!is_seen(None, Some(&map("1")), Rests::All));
        let gone = ConfigMapStatus {
            missing: true,
            ..seen("1")
        };
        assert!(is_seen(Some(&gone), None, Rests::All));
        assert!(!is_seen(Some(&gone), Some(&map("2")), Rests::All));
        // What is too large is refused, and its digest is not kept.
        let large = map(&"x".repeat(MAX_BYTES + 1));
        assert!(is_seen(Some(&seen("1")), Some(&large), Rests::Contents));
        assert!(!is_seen(Some(&seen("1")), Some(&large), Rests::All));
    }

    /// Beside what was rolled back: it would never be told what it is.
    #[test]
    fn a_config_map_that_is_told_to_be_too_large_was_seen() {
        let map = |bytes: usize| -> ConfigMap {
            serde_json::from_value(json!({"data": {"k": "x".repeat(bytes)}})).unwrap()
        };
        let large = map(MAX_BYTES + 1);
        let bytes = Contents::of(&large).bytes();
        let plan = with(|plan| {
            let message = format!(
                "rolled back: x; configmap cart holds {bytes} bytes; up to {MAX_BYTES} are released"
            );
            plan["status"]["conditions"] =
                crate::cli::testing::conditions("False", "RolledBack", &message);
        });
        assert!(is_told(&plan, "cart", &large));
        assert!(!is_told(&plan, "cart", &map(MAX_BYTES + 9)));
        assert!(!is_told(&plan, "other", &large));
        assert!(!is_told(&with(|_| {}), "cart", &large));
    }

    #[test]
    fn a_deployment_of_another_namespace_is_another_one() {
        let target = |namespace: &str| Target {
            namespace: Some(namespace.into()),
            .."deploy/cart".parse::<Target>().unwrap()
        };
        let plan = with(|_| {});
        let live = Live::of(&plan, &[target("s")], "elsewhere");
        assert_eq!(live.named, ["cart"]);
        let live = Live::of(&plan, &[target("other")], "s");
        assert!(live.named.is_empty());
        assert_eq!(live.followed, ["web"]);
    }

    #[test]
    fn a_stop_rests_on_what_was_live_then() {
        let of = |outcome, reason: &str| {
            Rests::of(&State {
                outcome: Some(outcome),
                reason: reason.into(),
                message: String::new(),
                step: None,
                revision: None,
                stable: None,
                open: None,
            })
        };
        assert_eq!(of(Outcome::Released, "Released"), Rests::All);
        assert_eq!(of(Outcome::Failed, "ReleaseFailed"), Rests::Stopped);
        assert_eq!(of(Outcome::Held, "Frozen"), Rests::Stopped);
        assert_eq!(of(Outcome::Held, "Paused"), Rests::Contents);
        assert_eq!(of(Outcome::Superseded, "Superseded"), Rests::Nothing);
    }

    /// Neither one that somebody misspelt into the plan, nor one that was deleted.
    #[test]
    fn nothing_is_released_to_a_deployment_that_is_not_there() {
        let template = json!({"spec": {"containers": [{"name": "app", "image": "web:1"}]}});
        let web: DynamicObject = serde_json::from_value(json!({
            "metadata": {"name": "web"}, "spec": {"template": template.clone()},
        }))
        .unwrap();
        let plan = |state: &str| {
            with(|plan| {
                plan["status"]["components"] = json!([{
                    "name": "web", "workload": {"kind": "Deployment", "name": "web"},
                    "state": state, "liveDigest": canon::digest(&template),
                }]);
            })
        };
        let name = "web".to_owned();
        let unlike = |state: &str, targets: &[&str], live: &[DynamicObject], rests| {
            let plan = plan(state);
            let targets: Vec<Target> = targets.iter().map(|t| t.parse().unwrap()).collect();
            let of = Live::of(&plan, &targets, "s");
            of.unlike(&plan, &[&name], live, rests).len()
        };
        for targets in [&["deploy/web"][..], &["shop"]] {
            for rests in [Rests::All, Rests::Stopped] {
                assert_eq!(
                    unlike("Updated", targets, std::slice::from_ref(&web), rests),
                    0
                );
                assert_eq!(unlike("Updated", targets, &[], rests), 1);
            }
            // The operator has seen that, and said what it means.
            assert_eq!(unlike("Missing", targets, &[], Rests::Stopped), 0);
        }
        assert_eq!(unlike("Missing", &["deploy/web"], &[], Rests::All), 1);
        assert_eq!(unlike("Missing", &["shop"], &[], Rests::All), 0);
    }

    #[test]
    fn a_change_is_as_old_as_the_last_of_what_is_unlike() {
        let at = |text: &str| Some(text.parse::<Timestamp>().unwrap());
        let (a, b) = (at("2026-03-01T11:00:00Z"), at("2026-03-01T12:00:00Z"));
        let newest = |changes: [Option<Timestamp>; 2]| {
            newest(&changes.map(|at| Unlike {
                what: "deployment web".into(),
                at,
            }))
        };
        assert_eq!(newest([a, b]), b);
        assert_eq!(newest([a, None]), None);
    }

    /// An edit that came some milliseconds ago shows in the Deployment alone.
    #[tokio::test]
    async fn an_edit_of_any_deployment_is_unseen_until_its_template_was_judged() {
        let template = |image: &str| json!({"spec": {"containers": [{"image": image}]}});
        let plan = |web: &str| {
            with(|plan| {
                let judged = |name: &str, image: &str| {
                    json!({"name": name, "workload": {"kind": "Deployment", "name": name},
                           "liveDigest": canon::digest(&template(image))})
                };
                plan["status"]["components"] =
                    json!([judged("cart", "cart:2"), judged("web", web)]);
            })
        };
        let server = session(|path| {
            let template = |image: &str| json!({"spec": {"containers": [{"image": image}]}});
            let live = |name: &str, image: &str| json!({"metadata": {"name": name}, "spec": {"template": template(image)}});
            (path == "/apis/apps/v1/namespaces/s/deployments").then(|| {
                json!({"kind": "DeploymentList", "apiVersion": "apps/v1", "metadata": {},
                       "items": [live("cart", "cart:2"), live("web", "web:2")]})
            })
        });
        assert!(!is_unseen(&plan("web:2"), &server).await);
        assert!(is_unseen(&plan("web:1"), &server).await);
        let mut surroundings = plan("web:2");
        surroundings.status.as_mut().unwrap().components[0].live_digest = Some("old".into());
        assert!(is_unseen(&surroundings, &server).await);
        // What somebody made of a workload that a first release failed on was seen,
        // and is judged by nothing.
        let mut failed = serde_json::to_value(plan("web:1")).unwrap();
        failed["status"]["components"][1]["failedFirst"] =
            json!({"specDigest": "old", "repairDigest": canon::digest(&template("web:2"))});
        let failed: StoredPlan = serde_json::from_value(failed).unwrap();
        assert!(!is_unseen(&failed, &server).await);
        let nobody = session(|_| None);
        assert!(!is_unseen(&plan("web:1"), &nobody).await);
    }
}
