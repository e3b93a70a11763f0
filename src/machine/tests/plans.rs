//! Plans for the simulated cluster, and what its API server makes of them.

use serde_json::{Value, json};

use super::cluster::{Deployment, fields_of};
use crate::{
    config_maps::Contents,
    fields::{Found, carry, get, graft},
    machine::DryRun,
    plan::{Target, missing_containers},
};

/// A plan of templated components `name: image`; all come after none.
pub(super) fn templated(components: &[(&str, &str)]) -> Value {
    let components: Vec<Value> = components
        .iter()
        .map(|(name, image)| component(name, image))
        .collect();
    json!({"components": components})
}

/// A templated component.
pub(super) fn component(name: &str, image: &str) -> Value {
    json!({
        "name": name,
        "workload": {"kind": "Deployment", "name": name},
        "template": {"spec": {"containers": [{"name": "app", "image": image}]}},
    })
}

/// A followed component.
pub(super) fn followed(name: &str) -> Value {
    json!({"name": name, "workload": {"kind": "Deployment", "name": name}})
}

/// A followed component whose workload reads a ConfigMap.
pub(super) fn reading(name: &str, config_map: &str) -> Value {
    let mut component = followed(name);
    component["configMaps"] = json!([config_map]);
    component
}

/// Contents of a ConfigMap with one key.
pub(super) fn contents(text: &str) -> Contents {
    Contents {
        data: [("settings".to_owned(), text.to_owned())].into(),
        ..Contents::default()
    }
}

/// A templated component that tracks a ConfigMap and reads it as a volume.
pub(super) fn configured(name: &str, image: &str, config_map: &str) -> Value {
    let mut component = component(name, image);
    component["configMaps"] = json!([config_map]);
    component["template"]["spec"]["volumes"] =
        json!([{"name": "config", "configMap": {"name": config_map}}]);
    component
}

/// Answer to a dry run of a partial template.
pub(super) fn dry_run(
    target: &Target,
    deployment: &Deployment,
    partial: &Value,
    found: &Found,
) -> DryRun {
    if let Some(missing) = missing_containers(partial, &deployment.template).first() {
        return DryRun::Mismatch(format!("{target} has {missing}"));
    }
    if partial.to_string().contains("-refused") {
        return DryRun::Refused("spec.template: invalid".to_owned());
    }
    let dropped = deployment.ours.difference(&fields_of(partial));
    let body = match carry(partial, &dropped, found) {
        Ok(carried) if carried.unknown.is_empty() => carried.body,
        Ok(carried) => {
            let mut body = carried.body;
            for path in &carried.unknown {
                if let Some(value) = get(&deployment.template, path) {
                    graft(&mut body, path, value.clone()).unwrap();
                }
            }
            body
        }
        Err(error) => return DryRun::NotAvailable(error.to_string()),
    };
    let mut after = deployment.clone();
    after.apply(&body);
    let own = fields_of(partial);
    DryRun::Merged {
        template: after.template,
        owned: after.ours.intersection(&own),
        carried: after.ours.difference(&own),
        body,
    }
}
