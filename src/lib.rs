//! Belay.
