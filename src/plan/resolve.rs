//! A plan with the contents that its ConfigMaps have now.
//!
//! The references of a partial template to tracked ConfigMaps are pointed at
//! the snapshots of their contents, so that other contents are another
//! template, and with it content like any other.

use std::collections::BTreeMap;

use serde_json::json;

use super::{Plan, Violations};
use crate::{
    api::{ReleasePlanStatus, StoredPlan},
    config_maps::{Tracked, rewrite},
    fields::canon::digest_json,
};

impl Plan {
    /// The plan with the contents of its ConfigMaps, as far as they are known:
    /// `digests` holds them by name. The names of the snapshots depend on the
    /// plan's uid.
    #[must_use]
    pub fn resolved(&self, plan_uid: &str, digests: &BTreeMap<String, String>) -> Self {
        let mut plan = self.clone();
        let mut contents = BTreeMap::new();
        for component in &mut plan.components {
            let known = |name: &String| {
                let digest = digests.get(name)?;
                Some(Tracked::new(name, digest, plan_uid))
            };
            component.tracked = component.config_maps.iter().filter_map(known).collect();
            let Some(template) = component
                .template
                .as_mut()
                .filter(|_| !component.config_maps.is_empty())
            else {
                continue;
            };
            for name in &component.config_maps {
                contents.insert(name.clone(), digests.get(name).cloned());
            }
            let snapshots = component.tracked.iter();
            let snapshots = snapshots.map(|t| (t.name.clone(), t.snapshot.clone()));
            *template = rewrite(template, &snapshots.collect());
            component.template_digest = Some(digest_json(template));
        }
        if !contents.is_empty() {
            plan.content = digest_json(&json!({"spec": self.spec, "configMaps": contents}));
        }
        plan
    }

    /// The plan with the contents that its status says were last seen: what the
    /// names and digests in the same status are about.
    #[must_use]
    pub fn as_seen(&self, plan_uid: &str, status: &ReleasePlanStatus) -> Self {
        let seen = status.config_maps.iter();
        let seen = seen.filter_map(|seen| Some((seen.name.clone(), seen.digest.clone()?)));
        self.resolved(plan_uid, &seen.collect())
    }

    /// The ConfigMaps that the plan tracks, each once.
    #[must_use]
    pub fn config_maps(&self) -> Vec<&str> {
        let names = self.components.iter().flat_map(|c| &c.config_maps);
        let mut names: Vec<&str> = names.map(String::as_str).collect();
        names.sort_unstable();
        names.dedup();
        names
    }
}

/// A stored plan with the contents that its status says were last seen.
///
/// # Errors
/// With all faults of its spec.
pub fn as_seen(stored: &StoredPlan) -> Result<Plan, Violations> {
    let uid = stored.metadata.uid.as_deref().unwrap_or_default();
    let plan = Plan::parse(&stored.spec)?;
    Ok(match &stored.status {
        Some(status) => plan.as_seen(uid, status),
        None => plan,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{config_maps::names, plan::parse_tests::yaml};

    fn plan() -> Plan {
        Plan::parse(&yaml(
            "
            components:
            - workload: {kind: Deployment, name: cart}
              template: {spec: {volumes: [{name: v, configMap: {name: settings}}, {name: w, configMap: {name: other}}]}}
              configMaps: [settings]
            - workload: {kind: Deployment, name: web}
              template: {spec: {containers: [{name: app, envFrom: [{configMapRef: {name: settings}}]}]}}
              configMaps: [settings]
            - workload: {kind: Deployment, name: db}
              template: {spec: {containers: [{name: app, image: 'db:1'}]}}
            - workload: {kind: Deployment, name: mail}
              configMaps: [mail]",
        ))
        .unwrap()
    }

    fn with(settings: &str, mail: &str) -> Plan {
        let digest = |text: &str| digest_json(&json!(text));
        let digests = [("settings", settings), ("mail", mail)];
        let digests = digests.map(|(name, text)| (name.to_owned(), digest(text)));
        plan().resolved("uid", &BTreeMap::from(digests))
    }

    #[test]
    fn tracked_references_name_one_snapshot_and_others_stay() {
        let plan = with("a", "x");
        let [cart, web, db, _] = plan.components() else {
            panic!("four components")
        };
        let snapshot = cart.tracked[0].snapshot.clone();
        let named = |c: &crate::plan::ComponentPlan| names(c.template.as_ref().unwrap());
        assert_eq!(named(cart), [snapshot.clone(), "other".to_owned()].into());
        assert_eq!(named(web), [snapshot].into());
        let before = super::super::Plan::config_maps(&plan);
        assert_eq!(before, ["mail", "settings"]);
        assert_eq!(
            db.template_digest,
            with("b", "x").components[2].template_digest
        );
        assert_ne!(
            cart.template_digest,
            with("b", "x").components[0].template_digest
        );
    }

    #[test]
    fn contents_are_content_where_the_template_names_them() {
        assert_eq!(with("a", "x").content(), with("a", "y").content());
        assert_ne!(with("a", "x").content(), with("b", "x").content());
        assert_ne!(with("a", "x").content(), plan().content());
        assert_eq!(with("a", "x").spec_digest(), plan().content());
        let missing = plan().resolved("uid", &BTreeMap::new());
        assert_eq!(missing.components()[0].tracked, []);
        assert_ne!(missing.content(), with("a", "x").content());
    }

    #[test]
    fn a_plan_without_config_maps_stays_as_it_is() {
        let plan = Plan::parse(&yaml(
            "components: [{workload: {kind: Deployment, name: web}}]",
        ));
        let plan = plan.unwrap();
        assert_eq!(plan.resolved("uid", &BTreeMap::new()), plan);
    }
}
