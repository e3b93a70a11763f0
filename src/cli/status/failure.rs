//! Why a watch fails, and whether it may get over it by itself.

use kube::{core::Status, runtime::watcher};

/// Why a watch failed.
pub(super) enum Failure {
    /// For want of rights.
    Forbidden,
    /// It was too old, which it gets over by itself.
    Outdated,
    /// No repetition makes it right: there is no such kind, or what is asked for
    /// makes no sense.
    Final(Box<Status>),
    /// It may pass.
    Passing,
}

impl Failure {
    pub(super) fn of(error: &watcher::Error) -> Self {
        use watcher::Error::{InitialListFailed, WatchError, WatchFailed, WatchStartFailed};
        match error {
            InitialListFailed(kube::Error::Api(status))
            | WatchStartFailed(kube::Error::Api(status))
            | WatchFailed(kube::Error::Api(status))
            | WatchError(status) => match status.code {
                403 => Self::Forbidden,
                410 => Self::Outdated,
                400 | 401 | 404 | 422 => Self::Final(Box::new(Status::clone(status))),
                _ => Self::Passing,
            },
            InitialListFailed(_)
            | WatchStartFailed(_)
            | WatchFailed(_)
            | watcher::Error::NoResourceVersion => Self::Passing,
        }
    }
}

/// What is at the bottom of an error: those above only say who passed it on.
pub(super) fn innermost(error: &dyn std::error::Error) -> String {
    let mut last = error;
    while let Some(below) = last.source() {
        last = below;
    }
    last.to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_fault_of_several_watches_is_told_once() {
        let below = std::io::Error::new(std::io::ErrorKind::ConnectionRefused, "refused");
        let error = watcher::Error::WatchStartFailed(kube::Error::Service(Box::new(below)));
        assert!(matches!(Failure::of(&error), Failure::Passing));
        assert_eq!(innermost(&error), "refused");
    }
}
