//! Generated clusters, checked as they are read: what is found is what the generator says, whichever datastore holds
//! them, and while other programs write.

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
