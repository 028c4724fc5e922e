//! Checks of generated clusters: the findings are those that the generator expects, in any datastore, even while other
//! programs write.

mod api_server;
mod churn_on_etcd;
mod churn_on_kubernetes;
mod differences;
mod etcd_with_kubernetes;
mod findings;
mod forms;
mod healthy;
mod kubectl_lists;
mod sources;
mod views;
