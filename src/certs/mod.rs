//! Certificates of the webhook server.
//!
//! [`issue`] makes and judges them, purely; [`store`] decides where they live;
//! [`publish`] tells the API server whom to trust; [`keeper`] runs the three in
//! a circle. Certificates are never taken from memory where there is a Secret:
//! all replicas serve what the Secret holds.

pub mod issue;
pub mod keeper;
pub mod publish;
pub mod store;
