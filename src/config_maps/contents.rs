//! The contents of a ConfigMap: what of it is released and brought back.

use std::collections::BTreeMap;

use k8s_openapi::{ByteString, api::core::v1::ConfigMap};
use serde_json::json;

use crate::fields::canon::digest_json;

/// Most bytes of contents that are released. The API server stores up to 1 MiB
/// of them; what is left is for what stands around.
pub const MAX_BYTES: usize = 900 * 1024;

/// `data` and `binaryData` of a ConfigMap. Labels, annotations and whether it
/// is immutable are none of it.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Contents {
    /// Its `data`.
    pub data: BTreeMap<String, String>,
    /// Its `binaryData`.
    pub binary_data: BTreeMap<String, ByteString>,
}

impl Contents {
    /// The contents of a ConfigMap.
    #[must_use]
    pub fn of(object: &ConfigMap) -> Self {
        Self {
            data: object.data.clone().unwrap_or_default(),
            binary_data: object.binary_data.clone().unwrap_or_default(),
        }
    }

    /// Digest of the contents: SHA-256, 64 hex digits.
    #[must_use]
    pub fn digest(&self) -> String {
        digest_json(&json!({"data": self.data, "binaryData": self.binary_data}))
    }

    /// Bytes of keys and values.
    #[must_use]
    pub fn bytes(&self) -> usize {
        let text = self.data.iter().map(|(key, value)| key.len() + value.len());
        let binary = self.binary_data.iter();
        let binary = binary.map(|(key, value)| key.len() + value.0.len());
        text.chain(binary).sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn map(json: serde_json::Value) -> Contents {
        Contents::of(&serde_json::from_value(json).unwrap())
    }

    #[test]
    fn only_contents_make_the_digest() {
        let plain = map(json!({"metadata": {"name": "a"}, "data": {"k": "v"}}));
        let other = map(json!({
            "metadata": {"name": "b", "labels": {"x": "y"}, "resourceVersion": "7"},
            "immutable": true, "binaryData": {}, "data": {"k": "v"},
        }));
        assert_eq!(plain.digest(), other.digest());
        for changed in [
            json!({"data": {"k": "w"}}),
            json!({"data": {"k": "v", "l": ""}}),
            json!({"data": {"k": "v"}, "binaryData": {"b": "AA=="}}),
            json!({"binaryData": {"k": "dg=="}}),
            json!({}),
        ] {
            assert_ne!(map(changed.clone()).digest(), plain.digest(), "{changed}");
        }
    }

    #[test]
    fn the_digest_does_not_drift() {
        let contents = map(json!({"data": {"b": "2", "a": "1"}, "binaryData": {"c": "AP8="}}));
        assert_eq!(
            contents.digest(),
            digest_json(&json!({"data": {"a": "1", "b": "2"}, "binaryData": {"c": "AP8="}}))
        );
        assert_eq!(contents.bytes(), 7);
    }
}
