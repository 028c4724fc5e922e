//! Checks of generated clusters: the findings are those that the generator expects, in any datastore, even while other
//! programs write.

mod api_server;
mod churn;
mod differences;
mod findings;
mod forms;
mod healthy;
mod kubectl_lists;
mod sources;
mod views;
