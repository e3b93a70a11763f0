//! Whether a plan's word is about what is live.
//!
//! A release generation cannot tell for what is not in the plan: the operator
//! must have judged the template that stands on a followed Deployment now, and
//! the contents that tracked ConfigMaps have now.

use std::{collections::HashMap, time::Duration};

use futures::{StreamExt as _, TryStreamExt as _, stream};
use k8s_openapi::api::{apps::v1::Deployment, core::v1::ConfigMap};
use kube::{
    Api,
    api::{ApiResource, DynamicObject, ListParams},
};

use super::{
    is,
    verdict::{Outcome, State},
};
use crate::{
    api::{ConfigMapStatus, Reason, StoredPlan},
    cli::{CliError, Kind, Session, Target, list_all},
    config_maps::{Contents, MAX_BYTES},
    fields::canon,
};

/// Time between two looks while the operator has not seen a change.
pub(super) const AGAIN: Duration = Duration::from_secs(1);
/// Reads at a time.
const AT_ONCE: usize = 8;

/// Whether a plan's word is about what is live.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Word {
    /// It is.
    Current,
    /// It is about what was live before.
    Older,
    /// The operator either has not seen what is live, or need not judge it:
    /// where a release stopped, not every change of what is live is news.
    Unsure,
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
        match state.outcome {
            Some(Outcome::Released | Outcome::RolledBack | Outcome::Undone) => Self::All,
            Some(Outcome::Failed) => Self::Stopped,
            Some(Outcome::Held) if state.reason == Reason::Frozen.as_str() => Self::Stopped,
            Some(Outcome::Held | Outcome::Refused) => Self::Contents,
            Some(Outcome::Superseded | Outcome::Ignored | Outcome::Deleted) | None => Self::Nothing,
        }
    }
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
    /// Those whose contents are told apart by the ConfigMaps alone while a
    /// release is stopped.
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
        session: &Session,
    ) -> Result<Word, CliError> {
        let rests = Rests::of(state);
        let is_current = match rests {
            Rests::Nothing => true,
            Rests::Contents => self.contents(plan, session, rests).await?,
            Rests::All | Rests::Stopped => {
                self.templates(plan, session, rests).await?
                    && self.contents(plan, session, rests).await?
            }
        };
        Ok(match (is_current, rests) {
            (true, _) => Word::Current,
            (false, Rests::All) => Word::Older,
            (false, _) => Word::Unsure,
        })
    }

    /// Whether the live templates are those that were judged.
    async fn templates(
        &self,
        plan: &StoredPlan,
        session: &Session,
        rests: Rests,
    ) -> Result<bool, CliError> {
        let skipped = |name: &&String| rests == Rests::Stopped && self.with_contents.contains(name);
        let names = self.named.iter().chain(&self.followed);
        let names: Vec<&String> = names.filter(|name| !skipped(name)).collect();
        if names.is_empty() {
            return Ok(true);
        }
        let namespace = plan.metadata.namespace.as_deref().unwrap_or_default();
        let live = match read(session, namespace, &names).await {
            Ok(live) => live,
            // Who may only see plans takes the plan's word for it.
            Err(kube::Error::Api(status)) if status.is_forbidden() && self.named.is_empty() => {
                return Ok(true);
            }
            Err(error) => return Err(CliError::api("read the plan's deployments", error)),
        };
        let judged = judged(plan);
        let is_current = |object: &DynamicObject| {
            let digest = canon::digest(&object.data["spec"]["template"]);
            let name = object.metadata.name.as_deref().unwrap_or_default();
            match judged.get(name) {
                Some(judged) => *judged == digest,
                // Where nothing is to be judged, nothing need be recorded.
                None => rests == Rests::Stopped,
            }
        };
        let mut ours = live.iter().filter(|object| {
            let name = object.metadata.name.as_ref();
            name.is_some_and(|name| names.contains(&name))
        });
        Ok(ours.all(is_current))
    }

    /// Whether the contents of the tracked ConfigMaps are those that the
    /// operator saw.
    async fn contents(
        &self,
        plan: &StoredPlan,
        session: &Session,
        rests: Rests,
    ) -> Result<bool, CliError> {
        let namespace = plan.metadata.namespace.as_deref().unwrap_or_default();
        let api = Api::<ConfigMap>::namespaced(session.client.clone(), namespace);
        let reads = self.config_maps.iter().map(|name| {
            let api = api.clone();
            async move { Ok::<_, kube::Error>((name, api.get_opt(name).await?)) }
        });
        let read: Result<Vec<_>, _> = stream::iter(reads).buffered(AT_ONCE).try_collect().await;
        let read = match read {
            Ok(read) => read,
            // As for Deployments.
            Err(kube::Error::Api(status)) if status.is_forbidden() => return Ok(true),
            Err(error) => return Err(CliError::api("read the plan's configmaps", error)),
        };
        let seen = plan.status.iter().flat_map(|status| &status.config_maps);
        let seen: Vec<&ConfigMapStatus> = seen.collect();
        Ok(read.iter().all(|(name, object)| {
            let seen = seen.iter().find(|seen| seen.name == **name);
            is_seen(seen.copied(), object.as_ref(), rests)
        }))
    }
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
        (None, _) => rests == Rests::Contents,
    }
}

/// The Deployments of these names, and maybe others.
async fn read(
    session: &Session,
    namespace: &str,
    names: &[&String],
) -> Result<Vec<DynamicObject>, kube::Error> {
    let resource = ApiResource::erase::<Deployment>(&());
    let api = Api::<DynamicObject>::namespaced_with(session.client.clone(), namespace, &resource);
    match names {
        [name] => Ok(api.get_opt(name).await?.into_iter().collect()),
        _ => list_all(&api, ListParams::default()).await,
    }
}

/// Digests of the live templates that the plan's word is about, by workload.
fn judged(plan: &StoredPlan) -> HashMap<&str, &str> {
    let components = plan.status.iter().flat_map(|status| &status.components);
    components
        .filter_map(|c| Some((c.workload.name.as_deref()?, c.live_digest.as_deref()?)))
        .collect()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::cli::testing::with;

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
            })
        };
        assert_eq!(of(Outcome::Released, "Released"), Rests::All);
        assert_eq!(of(Outcome::Failed, "ReleaseFailed"), Rests::Stopped);
        assert_eq!(of(Outcome::Held, "Frozen"), Rests::Stopped);
        assert_eq!(of(Outcome::Held, "Paused"), Rests::Contents);
        assert_eq!(of(Outcome::Superseded, "Superseded"), Rests::Nothing);
    }
}
