//! Counts the plans that were woken and not looked at yet.
//!
//! The runtime's own queue cannot be asked. Plans that come up by their own
//! timer are not counted: they are not late.

use std::{
    collections::HashSet,
    sync::{Mutex, PoisonError},
};

use kube::runtime::reflector::ObjectRef;

use crate::{api::StoredPlan, metrics::Metrics};

/// Plans that were woken and not looked at yet.
pub(super) struct Queued {
    plans: Mutex<HashSet<ObjectRef<StoredPlan>>>,
    metrics: Metrics,
}

impl Queued {
    pub(super) fn new(metrics: Metrics) -> Self {
        Self {
            plans: Mutex::default(),
            metrics,
        }
    }

    /// A plan was woken.
    pub(super) fn add(&self, plan: &ObjectRef<StoredPlan>) {
        let mut plans = self.plans.lock().unwrap_or_else(PoisonError::into_inner);
        plans.insert(named(plan));
        self.metrics.set_queue_depth(plans.len());
    }

    /// A plan is looked at.
    pub(super) fn remove(&self, plan: &ObjectRef<StoredPlan>) {
        let mut plans = self.plans.lock().unwrap_or_else(PoisonError::into_inner);
        plans.remove(&named(plan));
        self.metrics.set_queue_depth(plans.len());
    }
}

/// The reference without what differs between its sources.
fn named(plan: &ObjectRef<StoredPlan>) -> ObjectRef<StoredPlan> {
    ObjectRef::new(&plan.name).within(plan.namespace.as_deref().unwrap_or_default())
}
