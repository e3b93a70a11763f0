//! The writes of a decision, as the API server and the executor treat them.

use std::collections::BTreeSet;

use serde_json::Value;

use super::{cluster::Deployment, sim::*};
use crate::{
    api::{ABORT, RETRY, UNDO},
    config_maps::{Kept, names},
    machine::Action,
    plan::Target,
};

impl Sim {
    /// What the API server makes of the writes of a decision.
    pub(super) fn carry_out(&mut self, actions: &[Action]) -> Result<(), Stop> {
        for action in actions {
            self.count()?;
            match action {
                Action::EnsureFinalizer => self.facts.finalizer = true,
                Action::RemoveFinalizer => {
                    self.facts.finalizer = false;
                    self.gone = self.facts.deleting;
                }
                Action::DropAnnotation { name, value } => {
                    let facts = &mut self.facts;
                    let annotation = match name.as_str() {
                        ABORT => &mut facts.abort,
                        UNDO => &mut facts.undo,
                        RETRY => &mut facts.retry,
                        _ => panic!("{name} is not Belay's to remove"),
                    };
                    annotation.take_if(|now| now == value);
                }
                Action::CreateRevision { revision, number } => {
                    let name = revision.name.clone();
                    self.numbers.entry(name).or_insert(*number);
                    self.revisions
                        .entry(revision.name.clone())
                        .or_insert_with(|| revision.as_ref().clone());
                }
                Action::CreateSnapshot { tracked } => {
                    self.permitted(&tracked.snapshot)?;
                    let text = self.config_maps.get(&tracked.name);
                    let text = text.filter(|text| contents(text).digest() == tracked.digest);
                    let text = text.filter(|_| !self.unreadable).ok_or(Stop::Conflict)?;
                    let entry = self.snapshots.entry(tracked.snapshot.clone());
                    entry.or_insert_with(|| text.clone());
                }
                Action::WriteContents { tracked, uid, .. } => {
                    let name = &tracked.name;
                    self.permitted(name)?;
                    let there = self.config_maps.contains_key(name);
                    assert!(!there || !self.immutable, "{name} is immutable");
                    let text = self.snapshots.get(&tracked.snapshot);
                    let text = text
                        .filter(|_| there != uid.is_empty())
                        .ok_or(Stop::Conflict)?;
                    self.config_maps.insert(name.clone(), text.clone());
                    self.journal.push(("write", name.clone()));
                }
                Action::PruneRevisions { keep } => {
                    self.revisions.retain(|name, _| keep.contains(name));
                    let frozen = self.revisions.values().flat_map(|r| &r.data.components);
                    let kept = frozen.flat_map(|f| &f.config_maps);
                    let mut kept: BTreeSet<String> = kept.map(|t| t.snapshot.clone()).collect();
                    for deployment in self.deployments.values() {
                        kept.extend(deployment.named());
                    }
                    self.snapshots.retain(|name, _| kept.contains(name));
                }
                Action::Apply { write } => {
                    self.assert_kept(&write.template);
                    let image = write.template.to_string();
                    let deployment =
                        self.writable(&write.target, &write.uid, Some(&write.resource_version))?;
                    if image.contains("-rejected") {
                        let text = "denied by policy".to_owned();
                        return Err(Stop::Refused(write.target.name.clone(), text));
                    }
                    deployment.apply(&write.template);
                    self.journal.push(("apply", write.target.name.clone()));
                }
                Action::Replace { write } => {
                    self.assert_kept(&write.template);
                    self.writable(&write.target, &write.uid, Some(&write.resource_version))?
                        .replace(&write.template);
                    self.journal.push(("replace", write.target.name.clone()));
                }
                Action::Own {
                    target,
                    uid,
                    fields,
                } => {
                    self.writable(target, uid, None)?.own(fields);
                    self.journal.push(("own", target.name.clone()));
                }
            }
            self.dirty = true;
        }
        Ok(())
    }

    fn permitted(&self, name: &str) -> Result<(), Stop> {
        let says = self
            .policies
            .iter()
            .find(|(of, _)| match of.strip_suffix('*') {
                Some(stem) => name.starts_with(stem),
                None => name == *of,
            });
        let stop = |(_, says): (_, &&str)| Stop::Unwritten(name.to_owned(), (*says).to_owned());
        says.map_or(Ok(()), |says| Err(stop(says)))
    }

    /// No template ever names a snapshot that does not exist.
    fn assert_kept(&self, template: &Value) {
        let named = names(template);
        let frozen = self.revisions.values().flat_map(|r| &r.data.components);
        for tracked in frozen.flat_map(|frozen| &frozen.config_maps) {
            assert!(
                !named.contains(&tracked.snapshot) || self.kept(tracked) == Kept::Whole,
                "a template names {tracked:?}, which is not kept"
            );
        }
    }

    fn writable(
        &mut self,
        target: &Target,
        uid: &str,
        version: Option<&str>,
    ) -> Result<&mut Deployment, Stop> {
        let deployment = self
            .deployments
            .get_mut(&target.name)
            .ok_or(Stop::Conflict)?;
        let current = deployment.version.to_string();
        let fits = deployment.uid == uid && version.is_none_or(|version| version == current);
        if fits {
            Ok(deployment)
        } else {
            Err(Stop::Conflict)
        }
    }
}
