//! Deployments as the API server and the deployment controller treat them.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Map, Value, json};

use crate::{
    api::Cause,
    config_maps::names,
    fields::{FieldSet, Path, PathElement, canon, get, graft},
    machine::{NewPods, PodFault, Workload},
};

/// One Deployment with its ReplicaSets.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Deployment {
    pub(super) uid: String,
    pub(super) version: u64,
    pub(super) replicas: i32,
    pub(super) paused: bool,
    pub(super) template: Value,
    /// Fields of the template that Belay owns by apply.
    pub(super) ours: FieldSet,
    /// Fields of the template that its user owns.
    pub(super) theirs: FieldSet,
    /// Whether Belay has an entry of operation Update.
    pub(super) updated_by_us: bool,
    /// No pod of it gets or stays available, whatever its image.
    pub(super) broken: bool,
    /// Its pods run, whatever its image.
    repaired: bool,
    /// Digest of the live template.
    live: String,
    observed: bool,
    sets: BTreeMap<String, ReplicaSet>,
    /// ConfigMaps that the template of each set names.
    names: BTreeMap<String, BTreeSet<String>>,
}

/// Pods of one template.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
struct ReplicaSet {
    pods: i32,
    available: i32,
    restarts: i32,
    age: i32,
}

/// A pod template with one container `app`, two variables and a sidecar.
pub(super) fn template(image: &str) -> Value {
    json!({
        "metadata": {"labels": {"app": "shop"}},
        "spec": {
            "containers": [
                {"name": "app", "image": image, "env": [{"name": "LOG", "value": "info"}]},
                {"name": "proxy", "image": "envoy:1"},
            ],
            "terminationGracePeriodSeconds": 30,
        },
    })
}

impl Deployment {
    /// A Deployment of two pods that is as far as its image lets it come.
    pub(super) fn new(uid: &str, image: &str) -> Self {
        let template = template(image);
        let mut deployment = Self {
            uid: uid.to_owned(),
            version: 1,
            replicas: 2,
            paused: false,
            theirs: fields_of(&template),
            template,
            ours: FieldSet::default(),
            updated_by_us: false,
            broken: false,
            repaired: false,
            live: String::new(),
            observed: false,
            sets: BTreeMap::new(),
            names: BTreeMap::new(),
        };
        deployment.changed();
        for _ in 0..8 {
            deployment.tick();
        }
        deployment
    }

    pub(super) fn image(&self) -> &str {
        self.template["spec"]["containers"][0]["image"]
            .as_str()
            .unwrap()
    }

    pub(super) fn marked(&self) -> bool {
        self.updated_by_us || !self.ours.is_empty()
    }

    /// ConfigMaps that the live template or a pod names.
    pub(super) fn named(&self) -> BTreeSet<String> {
        let mut sets = self.sets.iter().filter(|(_, set)| set.pods > 0);
        let mut named = names(&self.template);
        named.extend(
            sets.by_ref()
                .flat_map(|(digest, _)| self.names[digest].clone()),
        );
        named
    }

    fn current(&self) -> ReplicaSet {
        self.sets.get(&self.live).copied().unwrap_or_default()
    }

    pub(super) fn available(&self) -> i32 {
        self.sets.values().map(|set| set.available).sum()
    }

    /// Whether every pod has the live template and is available.
    pub(super) fn complete(&self) -> bool {
        let current = self.current();
        self.observed
            && current.available == self.replicas
            && self.sets.values().map(|set| set.pods).sum::<i32>() == self.replicas
    }

    /// The workload as the controller reads it.
    pub(super) fn read(&self, pods: bool) -> Workload {
        let current = self.current();
        // The counters of a Deployment lag behind until its controller saw the
        // template: the numbers are then those of the one before.
        let updated = if self.observed {
            current.pods
        } else {
            self.replicas
        };
        Workload {
            uid: self.uid.clone(),
            resource_version: self.version.to_string(),
            replicas: self.replicas,
            total: self.sets.values().map(|set| set.pods).sum(),
            updated,
            available: self.available(),
            observed: self.observed,
            paused: self.paused,
            template: self.template.clone(),
            owned: self.ours.clone(),
            marked: self.marked(),
            stray: self.updated_by_us,
            managers: vec!["kubectl".to_owned()],
            dry_run: None,
            stable_today: None,
            refusal: None,
            new_pods: pods.then(|| NewPods {
                available: current.available,
                refused: (self.observed && self.image().contains("-quota"))
                    .then(|| "exceeded quota".to_owned()),
                faults: self.faults(current),
            }),
        }
    }

    fn faults(&self, set: ReplicaSet) -> Vec<PodFault> {
        if set.pods == 0 {
            return Vec::new();
        }
        let (cause, message) = match self.image() {
            image if image.contains("-pullerror") && set.age > 1 => {
                (Some(Cause::ImagePullBackOff), "ImagePullBackOff")
            }
            image if image.contains("-pull") => (None, "ErrImagePull"),
            _ if set.restarts > 0 => (None, "CrashLoopBackOff"),
            _ => return Vec::new(),
        };
        vec![PodFault {
            pod: "pod-1".to_owned(),
            container: "app".to_owned(),
            restarts: set.restarts,
            cause,
            message: message.to_owned(),
        }]
    }

    /// A second of the deployment controller and of the kubelets; true if
    /// anything changed.
    pub(super) fn tick(&mut self) -> bool {
        let before = (self.observed, self.sets.clone());
        self.observed = true;
        let image = format!(
            "{} {}",
            self.image(),
            self.template["spec"]["containers"][1]["image"]
        );
        let (wanted, total) = (
            self.replicas,
            self.sets.values().map(|s| s.pods).sum::<i32>(),
        );
        let live = self.live.clone();
        let moving = !self.paused;
        let current = self.sets.entry(live.clone()).or_default();
        let was = *current;
        if moving && !image.contains("-quota") && current.pods < wanted && total <= wanted {
            current.pods += 1;
        }
        if moving {
            current.pods = current.pods.min(wanted);
        }
        let dead = image.contains("-dies") && current.age > 6;
        if self.repaired {
            current.available = was.pods.min(current.pods);
        } else if image.contains("-crash") || dead {
            current.restarts = (current.restarts + 1).min(10);
            current.available = 0;
        } else if self.broken
            || image.contains("-unready")
            || image.contains("-pull")
            || (image.contains("-slow") && current.age < 10)
        {
            current.available = 0;
        } else {
            current.available = was.pods.min(current.pods);
        }
        current.age = (current.age + 1).min(12);
        if current.pods == 0 {
            *current = ReplicaSet::default();
        }
        if moving {
            self.drain(&live);
        }
        self.sets
            .retain(|digest, set| *digest == live || set.pods > 0);
        let changed = before != (self.observed, self.sets.clone());
        if changed {
            self.version += 1;
        }
        changed
    }

    /// Takes down old pods: those that are not available at once, the others
    /// as new ones take their place.
    fn drain(&mut self, live: &str) {
        let wanted = self.replicas;
        let mut available = self.available();
        for (_, set) in self.sets.iter_mut().filter(|(digest, _)| *digest != live) {
            set.pods = set.available;
            while available > wanted && set.pods > 0 {
                set.pods -= 1;
                set.available -= 1;
                available -= 1;
            }
        }
    }

    /// The pods of the live template have restarted before now.
    pub(super) fn restarted(&mut self, times: i32) {
        if let Some(set) = self.sets.get_mut(&self.live) {
            set.restarts = times;
        }
        self.version += 1;
    }

    /// What kept the pods from running is gone; their restarts are still told.
    pub(super) fn repair(&mut self) {
        self.repaired = true;
    }

    /// One pod of the live template is available for a moment.
    pub(super) fn flap(&mut self) {
        if let Some(set) = self.sets.get_mut(&self.live) {
            set.available = 1;
        }
        self.version += 1;
    }

    /// Somebody else's change of the template.
    pub(super) fn edit(&mut self, path: &[&str], value: Value) {
        let path: Path = path
            .iter()
            .map(|element| PathElement::parse(element).unwrap())
            .collect();
        graft(&mut self.template, &path, value).unwrap();
        let mut set = FieldSet::default();
        set.insert(&path);
        self.ours = self.ours.difference(&set);
        self.theirs = self.theirs.union(&set);
        self.changed();
    }

    /// `kubectl set image`.
    pub(super) fn set_image(&mut self, image: &str) {
        let path = ["f:spec", "f:containers", r#"k:{"name":"app"}"#, "f:image"];
        self.edit(&path, json!(image));
    }

    /// Somebody else's arguments for the container.
    pub(super) fn set_args(&mut self, args: &[&str]) {
        let path = ["f:spec", "f:containers", r#"k:{"name":"app"}"#, "f:args"];
        self.edit(&path, json!(args));
    }

    /// Somebody else's volume of a ConfigMap.
    pub(super) fn mount(&mut self, config_map: &str) {
        let volume = r#"k:{"name":"config"}"#;
        let path = ["f:spec", "f:volumes", volume, "f:configMap", "f:name"];
        self.edit(&path, json!(config_map));
    }

    pub(super) fn args(&self) -> Option<&Value> {
        self.template["spec"]["containers"][0].get("args")
    }

    /// `kubectl rollout restart`.
    pub(super) fn restart(&mut self, at: &str) {
        self.edit(
            &[
                "f:metadata",
                "f:annotations",
                "f:kubectl.kubernetes.io/restartedAt",
            ],
            json!(at),
        );
    }

    fn changed(&mut self) {
        self.version += 1;
        self.observed = false;
        self.live = canon::digest(&self.template);
        let named = names(&self.template);
        self.names.insert(self.live.clone(), named);
    }

    /// Server-side apply with force.
    pub(super) fn apply(&mut self, body: &Value) {
        let before = self.clone();
        let set = fields_of(body);
        for path in set.leaves() {
            let Some(value) = get(body, &path) else {
                continue;
            };
            if get(&self.template, &path) != Some(value) {
                let mut taken = FieldSet::default();
                taken.insert(&path);
                self.theirs = self.theirs.difference(&taken);
            }
            graft(&mut self.template, &path, value.clone()).unwrap();
        }
        for path in self.ours.difference(&set).paths() {
            if !self.theirs.contains(&path) {
                remove(&mut self.template, path.elements());
            }
        }
        drop_empty(&mut self.template);
        self.ours = set;
        if self.template != before.template {
            self.changed();
        } else if self.ours != before.ours || self.theirs != before.theirs {
            self.version += 1;
        }
    }

    /// JSON patch of the whole template.
    pub(super) fn replace(&mut self, template: &Value) {
        if canon::equal(&self.template, template) {
            return;
        }
        let changed: Vec<Path> = self
            .ours
            .union(&self.theirs)
            .leaves()
            .into_iter()
            .filter(|path| get(&self.template, path) != get(template, path))
            .collect();
        for path in changed {
            let mut set = FieldSet::default();
            set.insert(&path);
            self.ours = self.ours.difference(&set);
            self.theirs = self.theirs.difference(&set);
        }
        self.template = template.clone();
        self.updated_by_us = true;
        self.changed();
    }

    pub(super) fn own(&mut self, fields: &FieldSet) {
        self.ours = fields.clone();
        self.updated_by_us = false;
        self.version += 1;
    }
}

/// The fields that an apply of `body` owns.
pub(super) fn fields_of(body: &Value) -> FieldSet {
    FieldSet::parse(&tree(body, "")).unwrap()
}

fn tree(value: &Value, name: &str) -> Value {
    match value {
        Value::Object(fields) if name != "nodeSelector" => Value::Object(
            fields
                .iter()
                .map(|(name, value)| (format!("f:{name}"), tree(value, name)))
                .collect(),
        ),
        Value::Array(items) if ["containers", "env", "volumes"].contains(&name) => {
            let mut tree_of = Map::new();
            for item in items {
                let mut fields = tree(item, "");
                fields["."] = json!({});
                tree_of.insert(format!("k:{}", json!({"name": item["name"]})), fields);
            }
            Value::Object(tree_of)
        }
        _ => json!({}),
    }
}

/// The API server stores nothing for an empty list, although an apply of one
/// owns the field.
fn drop_empty(value: &mut Value) {
    match value {
        Value::Object(fields) => {
            fields.retain(|_, value| value.as_array().is_none_or(|items| !items.is_empty()));
            fields.values_mut().for_each(drop_empty);
        }
        Value::Array(items) => items.iter_mut().for_each(drop_empty),
        _ => {}
    }
}

fn remove(value: &mut Value, path: &[PathElement]) {
    let Some((first, rest)) = path.split_first() else {
        return;
    };
    match (first, value) {
        (PathElement::Field(name), Value::Object(fields)) if rest.is_empty() => {
            fields.remove(name.as_str());
        }
        (PathElement::Field(name), Value::Object(fields)) => {
            if let Some(value) = fields.get_mut(name.as_str()) {
                remove(value, rest);
            }
        }
        (PathElement::Key(keys), Value::Array(items)) => {
            let is = |item: &Value| {
                keys.iter()
                    .all(|(key, literal)| item.get(key) == Some(literal.value()))
            };
            if rest.is_empty() {
                items.retain(|item| !is(item));
            } else if let Some(item) = items.iter_mut().find(|item| is(item)) {
                remove(item, rest);
            }
        }
        _ => {}
    }
}
