//! Rules and views.
