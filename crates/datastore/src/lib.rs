//! Data access.
