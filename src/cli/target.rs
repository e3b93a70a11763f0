//! What a command is about: `TYPE/NAME`, a bare name of a plan, or the objects
//! of a file.
//!
//! Says what is meant; [`super::find`] looks for it in the cluster.

use std::{
    io::Read as _,
    path::{Path, PathBuf},
    str::FromStr,
};

use clap::Args;
use serde_json::Value;

use super::{CliError, names};
use crate::api::{GROUP, RELEASE_GENERATION};

/// Lists in lists that are looked into.
const MAX_LISTS: usize = 8;

/// Kinds that a command takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// A plan.
    Plan,
    /// A Deployment, which stands for the plan that names it.
    Deployment,
}

/// An object that a command is about.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Target {
    /// Its kind.
    pub kind: Kind,
    /// Its name.
    pub name: String,
    /// Its namespace, where the file says one.
    pub namespace: Option<String>,
    /// Release generation that the file says: what `kubectl apply -o yaml`
    /// answered.
    pub generation: Option<i64>,
    /// Uid that the file says: one of the same name may be another object.
    pub uid: Option<String>,
}

impl std::fmt::Display for Target {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let kind = match self.kind {
            Kind::Plan => "releaseplan",
            Kind::Deployment => "deployment",
        };
        write!(f, "{kind}/{}", self.name)
    }
}

impl FromStr for Target {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (kind, name) = match text.split_once('/') {
            None => (Kind::Plan, text),
            Some((kind, name)) => (kind.parse()?, name),
        };
        Self::new(kind, name)
    }
}

impl Target {
    fn new(kind: Kind, name: &str) -> Result<Self, String> {
        Ok(Self {
            kind,
            name: names::object(name)?,
            namespace: None,
            generation: None,
            uid: None,
        })
    }
}

impl FromStr for Kind {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text.to_ascii_lowercase().as_str() {
            "plan"
            | "plans"
            | "relplan"
            | "relplans"
            | "releaseplan"
            | "releaseplans"
            | "releaseplan.belay.dev"
            | "releaseplans.belay.dev" => Ok(Self::Plan),
            "deploy" | "deployment" | "deployments" | "deployment.apps" | "deployments.apps" => {
                Ok(Self::Deployment)
            }
            _ => Err(format!(
                "{text:?} is not a type that Belay knows (plan, deploy)"
            )),
        }
    }
}

/// One plan.
#[derive(Args, Clone, Debug, Default, PartialEq, Eq)]
pub struct OnePlan {
    /// NAME, plan/NAME, or deploy/NAME for the plan that holds it.
    #[arg(
        value_name = "PLAN",
        required_unless_present = "file",
        conflicts_with = "file"
    )]
    #[arg(add = super::completion::targets())]
    pub target: Option<Target>,

    /// File with the plan or its Deployment; - is standard input.
    #[arg(short = 'f', long = "filename", value_name = "FILE")]
    pub file: Option<PathBuf>,
}

/// Any number of plans.
#[derive(Args, Clone, Debug, Default, PartialEq, Eq)]
pub struct SomePlans {
    /// NAME, plan/NAME, or deploy/NAME for the plan that holds it.
    #[arg(value_name = "PLAN")]
    #[arg(add = super::completion::targets())]
    pub targets: Vec<Target>,

    /// File with plans or their Deployments; - is standard input.
    #[arg(short = 'f', long = "filename", value_name = "FILE")]
    pub files: Vec<PathBuf>,

    /// All plans with these labels.
    #[arg(short = 'l', long, value_name = "SELECTOR", conflicts_with_all = ["targets", "files"])]
    pub selector: Option<String>,

    /// All plans of all namespaces.
    #[arg(short = 'A', long, conflicts_with_all = ["targets", "files", "namespace"])]
    pub all_namespaces: bool,
}

impl OnePlan {
    /// The object that is meant.
    ///
    /// # Errors
    /// A file that cannot be read, or that does not hold exactly one.
    pub async fn target(&self) -> Result<Target, CliError> {
        let mut targets = targets(self.target.as_slice(), self.file.as_slice()).await?;
        match (targets.pop(), targets.is_empty()) {
            (Some(target), true) => Ok(target),
            _ => Err(CliError::usage(
                "the file holds several plans, and this is about one",
                "name it: plan/NAME",
            )),
        }
    }
}

impl SomePlans {
    /// The objects that are named; none if all plans are meant.
    ///
    /// # Errors
    /// A file that cannot be read, or that holds none.
    pub async fn targets(&self) -> Result<Vec<Target>, CliError> {
        targets(&self.targets, &self.files).await
    }
}

async fn targets(named: &[Target], files: &[PathBuf]) -> Result<Vec<Target>, CliError> {
    let mut targets = named.to_vec();
    for file in files {
        let text = read(file).await?;
        let found = parse(&text).map_err(|reason| CliError::File {
            path: file.clone(),
            reason,
        })?;
        targets.extend(found);
    }
    Ok(targets)
}

/// The text of a file, or of standard input for `-`.
///
/// # Errors
/// It cannot be read.
pub async fn read(path: &Path) -> Result<String, CliError> {
    let owned = path.to_owned();
    // A person who has enough of what does not come is heard meanwhile.
    let reading = tokio::task::spawn_blocking(move || {
        if owned == Path::new("-") {
            let mut text = String::new();
            return std::io::stdin().read_to_string(&mut text).map(|_| text);
        }
        std::fs::read_to_string(owned)
    });
    let text = reading.await.unwrap_or_else(|error| Err(error.into()));
    text.map_err(|error| CliError::File {
        path: path.to_owned(),
        reason: error.to_string(),
    })
}

/// The objects in a manifest, which may be JSON. Of a file with both, the plans
/// are meant; kinds that are neither plans nor Deployments are left out.
fn parse(text: &str) -> Result<Vec<Target>, String> {
    let objects = objects(text)?;
    let targets = objects.iter().filter_map(object);
    let mut targets = targets.collect::<Result<Vec<_>, _>>()?;
    if targets.iter().any(|target| target.kind == Kind::Plan) {
        targets.retain(|target| target.kind == Kind::Plan);
    }
    if targets.is_empty() {
        return Err("no ReleasePlan and no Deployment in it".into());
    }
    Ok(targets)
}

/// The objects in a manifest, also those in lists.
///
/// # Errors
/// It is no YAML, or has lists in lists without end.
pub(super) fn objects(text: &str) -> Result<Vec<Value>, String> {
    let mut objects: Vec<Value> =
        serde_saphyr::from_multiple(text).map_err(|error| error.to_string())?;
    let is_list = |value: &Value| value["items"].is_array();
    for _ in 0..MAX_LISTS {
        if !objects.iter().any(is_list) {
            return Ok(objects);
        }
        objects = objects.into_iter().flat_map(items).collect();
    }
    if objects.iter().any(is_list) {
        return Err(format!("lists stand in lists more than {MAX_LISTS} deep"));
    }
    Ok(objects)
}

/// What is in a list; of anything else, itself.
fn items(mut object: Value) -> Vec<Value> {
    let items = object.get_mut("items").and_then(Value::as_array_mut);
    items.map(std::mem::take).unwrap_or_else(|| vec![object])
}

fn object(value: &Value) -> Option<Result<Target, String>> {
    let group = value["apiVersion"].as_str()?.split('/').next()?;
    let kind = match (group, value["kind"].as_str()?) {
        (GROUP, "ReleasePlan") => Kind::Plan,
        ("apps", "Deployment") => Kind::Deployment,
        _ => return None,
    };
    let metadata = &value["metadata"];
    let name = metadata["name"].as_str().unwrap_or_default();
    let generation = metadata["annotations"][RELEASE_GENERATION].as_str();
    let named = || {
        let namespace = metadata["namespace"]
            .as_str()
            .filter(|name| !name.is_empty());
        let namespace = namespace.map(|namespace| {
            names::namespace(namespace)
                .map_err(|fault| format!("metadata.namespace {namespace:?}: {fault}"))
        });
        Ok(Target {
            namespace: namespace.transpose()?,
            generation: generation.and_then(|number| number.parse().ok()),
            uid: metadata["uid"].as_str().map(str::to_owned),
            ..Target::new(kind, name)?
        })
    };
    Some(named())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_taken_as_kubectl_prints_and_takes_them() {
        for text in [
            "shop",
            "plan/shop",
            "relplan/shop",
            "releaseplan/shop",
            "ReleasePlans/shop",
            "releaseplan.belay.dev/shop",
        ] {
            let target: Target = text.parse().unwrap();
            assert_eq!(target.to_string(), "releaseplan/shop", "{text}");
        }
        for text in ["deploy/cart", "deployment.apps/cart", "deployments/cart"] {
            let target: Target = text.parse().unwrap();
            assert_eq!(target.to_string(), "deployment/cart", "{text}");
        }
        for text in ["", "plan/", "pod/x", "plan/a/b", "../x", "Shop", "a b"] {
            assert!(text.parse::<Target>().is_err(), "{text}");
        }
    }

    #[test]
    fn a_file_names_its_plans_and_the_generation_that_apply_answered() {
        let found = parse(
            "apiVersion: v1
kind: Service
metadata: {name: cart}
---
apiVersion: apps/v1
kind: Deployment
metadata: {name: cart}
---
apiVersion: belay.dev/v1alpha1
kind: ReleasePlan
metadata:
  {name: shop, namespace: s, uid: u1, annotations: {belay.dev/release-generation: '7'}}
",
        )
        .unwrap();
        assert_eq!(found.len(), 1);
        assert_eq!(found[0].to_string(), "releaseplan/shop");
        assert_eq!(found[0].namespace.as_deref(), Some("s"));
        assert_eq!(found[0].generation, Some(7));
        assert_eq!(found[0].uid.as_deref(), Some("u1"));

        let list = r#"{"apiVersion": "v1", "kind": "List", "items": [
            {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "a"}},
            {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "b"}}]}"#;
        assert_eq!(parse(list).unwrap().len(), 2);
        let nested = format!(r#"{{"kind": "List", "items": [{list}, {{"kind": "Service"}}]}}"#);
        assert_eq!(parse(&nested).unwrap().len(), 2);
        for bad in ["{name: a/b}", "{name: a, namespace: ../x}", "{}"] {
            let text = format!("{{apiVersion: apps/v1, kind: Deployment, metadata: {bad}}}");
            assert!(parse(&text).is_err(), "{bad}");
        }
        for nothing in ["", "kind: Service", "a: [", "42"] {
            assert!(parse(nothing).is_err(), "{nothing}");
        }
    }

    /// Whatever stands beside a list, or in it.
    #[test]
    fn a_manifest_is_read_or_refused_whatever_is_in_it() {
        let odd = [
            "hello",
            "42",
            "null",
            "true",
            "[a, b]",
            "[]",
            "{}",
            "items: x",
            "{kind: List, items: }",
            "{kind: List, items: {a: b}}",
        ];
        let plan = "{apiVersion: belay.dev/v1alpha1, kind: ReleasePlan, metadata: {name: shop}}";
        for value in odd {
            for text in [
                format!("kind: List\nitems: []\n---\n{value}\n---\n{plan}"),
                format!("kind: List\nitems:\n- {value}\n- {{kind: List, items: [{plan}]}}"),
            ] {
                assert_eq!(parse(&text).map(|found| found.len()), Ok(1), "{text}");
            }
        }
        // What is no list stays as it was.
        let texts = [r#"{"kind": "List", "items": []}"#, r#"{"kind": "Service"}"#];
        let found = objects(&texts.join("\n---\n")).unwrap();
        assert_eq!(found, [serde_json::json!({"kind": "Service"})]);
    }

    #[test]
    fn lists_that_are_too_deep_are_refused_and_not_passed_over() {
        let plan = r#"{"apiVersion": "belay.dev/v1alpha1", "kind": "ReleasePlan", "metadata": {"name": "a"}}"#;
        let deep = |lists: usize| {
            let list = r#"{"kind": "List", "items": ["#.repeat(lists);
            format!("{list}{plan}{}", "]}".repeat(lists))
        };
        assert_eq!(parse(&deep(MAX_LISTS)).map(|found| found.len()), Ok(1));
        let fault = parse(&deep(MAX_LISTS + 1)).unwrap_err();
        assert!(fault.contains("more than 8 deep"), "{fault}");
    }
}
