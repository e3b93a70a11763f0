//! A namespace that the webhooks are not asked about, as in a cluster in which
//! they are away or not installed yet.

use serde_json::json;

use super::{SOON, Scene};

const SWITCH: &str = "belay-test/webhooks";

impl Scene {
    /// Lets namespaces opt out of the webhooks.
    pub async fn make_webhooks_optional(&self) {
        let selector = json!({"matchExpressions": [
            {"key": SWITCH, "operator": "NotIn", "values": ["off"]},
        ]});
        let patch =
            json!([{"op": "add", "path": "/webhooks/0/namespaceSelector", "value": selector}]);
        for kind in [
            "mutatingwebhookconfiguration",
            "validatingwebhookconfiguration",
        ] {
            let patch = patch.to_string();
            let args = ["patch", kind, "belay.dev", "--type=json", "-p", &patch];
            self.kubectl(&args).await;
        }
    }

    /// Waits until the API server asks the webhooks about this namespace, or no
    /// longer does. `invalid` is a plan `shop` that only the webhook refuses.
    pub async fn webhooks(&self, on: bool, invalid: &str) {
        let value = if on { "on" } else { "off" };
        let label = format!("{SWITCH}={value}");
        let args = ["label", "--overwrite", "namespace", &self.namespace, &label];
        self.kubectl(&args).await;
        let probe = invalid.replace("{name: shop", "{name: probe");
        let deadline = tokio::time::Instant::now() + SOON;
        // The API server hears of both changes by watches of its own.
        loop {
            let output = self.try_apply(&probe, &["--dry-run=server"]).await;
            if output.success() != on {
                return;
            }
            assert!(
                tokio::time::Instant::now() < deadline,
                "webhooks {value}: {}",
                output.stderr
            );
        }
    }
}
