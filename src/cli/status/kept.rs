//! The objects of one kind that a watch has told so far.
//!
//! What was known stays until a watch that begins again has told all. Knows no
//! cluster.

use std::collections::HashMap;

use kube::{Resource, runtime::watcher};

/// Objects of one kind.
pub(super) struct Kept<K> {
    pub(super) objects: HashMap<String, K>,
    /// What a watch that begins again has told so far, by the scope it is of.
    begun: HashMap<usize, HashMap<String, K>>,
    /// The scope that each object is of.
    pub(super) scopes: HashMap<String, usize>,
}

impl<K> Default for Kept<K> {
    fn default() -> Self {
        Self {
            objects: HashMap::new(),
            begun: HashMap::new(),
            scopes: HashMap::new(),
        }
    }
}

impl<K: Resource<DynamicType = ()>> Kept<K> {
    /// True once a full list is known.
    pub(super) fn take(&mut self, scope: usize, event: watcher::Event<K>) -> bool {
        let key = |object: &K| {
            let meta = object.meta();
            let part = |part: &Option<String>| part.clone().unwrap_or_default();
            format!("{}/{}", part(&meta.namespace), part(&meta.name))
        };
        match event {
            watcher::Event::Apply(object) => {
                self.scopes.insert(key(&object), scope);
                self.objects.insert(key(&object), object);
            }
            watcher::Event::Delete(object) => {
                self.scopes.remove(&key(&object));
                self.objects.remove(&key(&object));
            }
            watcher::Event::Init => {
                self.begun.insert(scope, HashMap::new());
            }
            watcher::Event::InitApply(object) => {
                self.begun
                    .entry(scope)
                    .or_default()
                    .insert(key(&object), object);
            }
            watcher::Event::InitDone => {
                let fresh = self.begun.remove(&scope).unwrap_or_default();
                let scopes = &self.scopes;
                self.objects
                    .retain(|key, _| scopes.get(key) != Some(&scope));
                self.scopes.retain(|_, known| *known != scope);
                self.scopes
                    .extend(fresh.keys().map(|key| (key.clone(), scope)));
                self.objects.extend(fresh);
                return true;
            }
        }
        false
    }

    pub(super) fn clear(&mut self) {
        *self = Self::default();
    }
}

/// Whether an event tells what there is: a list begins before it is asked for, and
/// may break off in the middle.
pub(super) const fn is_answer<K>(event: &watcher::Event<K>) -> bool {
    use watcher::Event::{Apply, Delete, InitDone};
    matches!(event, Apply(_) | Delete(_) | InitDone)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::cli::status::objects::PodView;

    fn pod(name: &str) -> PodView {
        serde_json::from_value(json!({"metadata": {"name": name, "namespace": "s"}})).unwrap()
    }

    fn names(kept: &Kept<PodView>) -> Vec<&str> {
        let mut names: Vec<&str> = kept.objects.keys().map(String::as_str).collect();
        names.sort_unstable();
        names
    }

    #[test]
    fn what_was_known_stays_until_a_watch_that_begins_again_has_told_all() {
        let mut kept = Kept::default();
        for event in [
            watcher::Event::Init,
            watcher::Event::InitApply(pod("a")),
            watcher::Event::InitApply(pod("b")),
        ] {
            assert!(!kept.take(0, event));
        }
        assert_eq!(names(&kept), [""; 0]);
        assert!(kept.take(0, watcher::Event::InitDone));
        kept.take(1, watcher::Event::Apply(pod("other")));
        assert_eq!(names(&kept), ["s/a", "s/b", "s/other"]);

        kept.take(0, watcher::Event::Init);
        kept.take(0, watcher::Event::InitApply(pod("b")));
        assert_eq!(names(&kept), ["s/a", "s/b", "s/other"]);
        kept.take(0, watcher::Event::InitDone);
        assert_eq!(
            names(&kept),
            ["s/b", "s/other"],
            "that of another scope stays"
        );
        kept.take(0, watcher::Event::Delete(pod("b")));
        assert_eq!(names(&kept), ["s/other"]);
    }
}
