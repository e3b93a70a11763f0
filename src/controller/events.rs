//! Events on plans: one for each transition, with its own text.
//!
//! The runtime's recorder counts events of the same reason up and keeps the
//! text of the first, so that a second release would be told in the words of
//! the first. Only transitions are told, so there is nothing to count.

use k8s_openapi::{
    api::events::v1::Event,
    apimachinery::pkg::apis::meta::v1::{MicroTime, ObjectMeta},
};
use kube::{Api, Resource as _, api::PostParams};

use super::Context;
use crate::{api::StoredPlan, machine::EventNote};

/// Name under which Belay reports.
const CONTROLLER: &str = "belay.dev/operator";
/// What every event of ours is about.
const ACTION: &str = "Release";

/// Tells the events of a decision. They are comfort: a failure is logged and
/// changes nothing.
pub(super) async fn tell(ctx: &Context, plan: &StoredPlan, events: &[EventNote]) {
    let namespace = plan.metadata.namespace.as_deref().unwrap_or_default();
    let api = Api::<Event>::namespaced(ctx.client.clone(), namespace);
    for (index, note) in events.iter().enumerate() {
        let event = event(ctx, plan, note, index);
        if let Err(error) = api.create(&PostParams::default(), &event).await {
            tracing::warn!(%error, reason = %note.reason, "an event could not be published");
        }
    }
}

fn event(ctx: &Context, plan: &StoredPlan, note: &EventNote, index: usize) -> Event {
    let now = ctx.clock.now();
    let name = plan.metadata.name.as_deref().unwrap_or_default();
    let stem: String = name.chars().take(200).collect();
    let stem = stem.trim_end_matches(['-', '.']);
    Event {
        metadata: ObjectMeta {
            name: Some(format!("{stem}.{:x}.{index}", now.as_microsecond())),
            namespace: plan.metadata.namespace.clone(),
            ..ObjectMeta::default()
        },
        event_time: Some(MicroTime(now)),
        type_: Some(if note.warning { "Warning" } else { "Normal" }.to_owned()),
        reason: Some(note.reason.as_str().to_owned()),
        note: Some(note.note.clone()),
        action: Some(ACTION.to_owned()),
        regarding: Some(plan.object_ref(&())),
        reporting_controller: Some(CONTROLLER.to_owned()),
        reporting_instance: Some("belay".to_owned()),
        ..Event::default()
    }
}
