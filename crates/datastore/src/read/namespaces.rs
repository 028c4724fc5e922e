//! The labels of namespaces, which decide whom a pool with a `namespaceSelector` serves.

use std::sync::Arc;

use calipam_files::skip;
use calipam_model::snapshot::{Snapshot, Source, WhySkipped};

use super::whole::kubernetes::list::Counter;
use super::whole::kubernetes::order::{Lists, lists};
use crate::client::kubernetes::{KubeClient, kinds};
use crate::store::Datastore;

impl Datastore {
    /// Adds the labels of namespaces if a pool asks for them and the account may list namespaces.
    pub(crate) async fn add_namespaces(&self, snapshot: &mut Snapshot) {
        let Some(client) = self.kubernetes() else { return };
        if snapshot.pools.iter().any(|pool| !pool.value.namespace_selector.is_empty()) {
            add(client, snapshot).await;
        }
    }
}

async fn add(client: &Arc<KubeClient>, snapshot: &mut Snapshot) {
    let Ok(kind) = kinds::find(client.api(), Source::Namespaces) else { return };
    let reader = Lists { client: Arc::clone(client), counter: Counter::quiet() };
    match lists::<Snapshot>(&reader, vec![kind]).await {
        Ok(lists) => {
            lists.into_iter().for_each(|listed| snapshot.absorb(listed.taken));
            snapshot.mark_read([Source::Namespaces]);
        }
        Err(error) => skip(snapshot, Source::Namespaces, WhySkipped::Other(error.to_string())),
    }
}
