//! What views of objects have in common: types that hold only the part of an
//! object that somebody reads, trimmed while it is decoded.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use serde::Deserialize;

/// Makes a type with a field `metadata` a view of a kind: it is listed and
/// watched like that.
macro_rules! view_of {
    ($view:ty, $kind:ty) => {
        impl kube::Resource for $view {
            type DynamicType = ();
            type Scope = <$kind as kube::Resource>::Scope;

            fn kind(dt: &()) -> std::borrow::Cow<'_, str> {
                <$kind as kube::Resource>::kind(dt)
            }

            fn group(dt: &()) -> std::borrow::Cow<'_, str> {
                <$kind as kube::Resource>::group(dt)
            }

            fn version(dt: &()) -> std::borrow::Cow<'_, str> {
                <$kind as kube::Resource>::version(dt)
            }

            fn plural(dt: &()) -> std::borrow::Cow<'_, str> {
                <$kind as kube::Resource>::plural(dt)
            }

            fn meta(&self) -> &k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta {
                &self.metadata
            }

            fn meta_mut(
                &mut self,
            ) -> &mut k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta {
                &mut self.metadata
            }
        }
    };
}

pub(crate) use view_of;

/// A condition of a ReplicaSet or a pod.
#[derive(Clone, Debug, Default, Deserialize, PartialEq, Eq)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct Condition {
    /// Its type.
    #[serde(rename = "type")]
    pub(crate) kind: String,
    /// Whether it holds.
    pub(crate) status: String,
    /// What it says.
    pub(crate) message: Option<String>,
    /// When that changed last.
    pub(crate) last_transition_time: Option<Time>,
}

/// Why a ReplicaSet cannot make more pods, if that is so.
pub(crate) fn replica_failure(conditions: &[Condition]) -> Option<&str> {
    let mut conditions = conditions.iter();
    let failure = conditions.find(|c| c.kind == "ReplicaFailure" && c.status == "True")?;
    Some(failure.message.as_deref().unwrap_or("no message"))
}
