//! Operations of tests on a running etcd: connecting, saving a snapshot, and creating users at the start.

use std::collections::BTreeMap;
use std::fs;
use std::io::Write;
use std::path::Path;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use etcd_client::{
    Certificate, Client, CompactionOptions, ConnectOptions, DeleteOptions, GetOptions, Identity, KeyValue,
    Permission, TlsOptions, Txn, TxnOp,
};

use super::etcd::{Etcd, Login};
use crate::cluster::Cluster;
use crate::runtime::block_on;

/// etcd's administrator, who must exist before authentication is turned on.
const ROOT: &str = "root";

/// A divisor of the length of a snapshot without its checksum. All page sizes are multiples of it.
const SNAPSHOT_UNIT: u64 = 512;

/// Length of the SHA-256 sum at the end of a snapshot.
const CHECKSUM: u64 = 32;

/// Keys, each with its value and revision. Bytes that are not text are escaped.
pub type Entries = BTreeMap<String, (Vec<u8>, i64)>;

/// Time limit of a connection attempt.
const CONNECT: Duration = Duration::from_secs(20);

impl Etcd {
    /// Connects with the authority, client certificate and user of the server, if it has them.
    ///
    /// For tests with an async runtime. Other tests use [`with_client`](Self::with_client).
    pub async fn client(&self) -> Result<Client> {
        Ok(self.connect(self.options.login.as_ref()).await?)
    }

    /// Runs `work` with a client on a separate runtime. Can be called from inside or outside an async runtime.
    pub fn with_client<T: Send>(
        &self,
        work: impl AsyncFnOnce(Client) -> Result<T, etcd_client::Error> + Send,
    ) -> Result<T> {
        block_on(async || Ok(work(self.connect(self.options.login.as_ref()).await?).await?))
    }

    /// Starts an etcd with the data of a cluster.
    pub fn of(cluster: &Cluster) -> Result<Self> {
        let etcd = Self::start()?;
        cluster.write_to_etcd(&etcd.endpoint())?;
        Ok(etcd)
    }

    /// Stores a value, and returns its revision.
    pub fn put(&self, key: &str, value: impl Into<Vec<u8>>) -> Result<i64> {
        let value = value.into();
        let answer = self.with_client(async |mut client| client.put(key, value, None).await)?;
        Ok(answer.header().expect("answers have headers").revision())
    }

    /// Stores many values.
    pub fn put_all(&self, entries: &[(String, Vec<u8>)]) -> Result<()> {
        let put = |(key, value): &(String, Vec<u8>)| TxnOp::put(key.as_str(), value.clone(), None);
        self.write(&entries.iter().map(put).collect::<Vec<_>>())
    }

    /// Executes many operations, 100 in each transaction; etcd allows 128.
    pub fn write(&self, operations: &[TxnOp]) -> Result<()> {
        self.with_client(async |mut client| {
            for part in operations.chunks(100) {
                client.txn(Txn::new().and_then(part)).await?;
            }
            Ok(())
        })
    }

    /// Deletes a key, and returns the number of deleted ones.
    pub fn delete(&self, key: &str) -> Result<i64> {
        Ok(self
            .with_client(async |mut client| client.delete(key, None).await)?
            .deleted())
    }

    /// Deletes all keys below a prefix.
    pub fn delete_below(&self, prefix: &str) -> Result<()> {
        let options = DeleteOptions::new().with_prefix();
        self.with_client(async |mut client| client.delete(prefix, Some(options)).await.map(drop))
    }

    /// Forgets all revisions before this one.
    pub fn compact(&self, revision: i64) -> Result<()> {
        let options = CompactionOptions::new().with_physical();
        self.with_client(async |mut client| client.compact(revision, Some(options)).await.map(drop))
    }

    /// All entries under `/calico/`.
    pub fn entries(&self) -> Result<Entries> {
        self.entries_below("/calico/")
    }

    /// All entries below a prefix.
    pub fn entries_below(&self, prefix: &str) -> Result<Entries> {
        let answer = self.with_client(async |client| {
            let mut client = client.kv_client().max_decoding_message_size(usize::MAX);
            client.get(prefix, Some(GetOptions::new().with_prefix())).await
        })?;
        let entry = |kv: &KeyValue| {
            let key = kv
                .key_str()
                .map_or_else(|_| kv.key().escape_ascii().to_string(), str::to_owned);
            (key, (kv.value().to_vec(), kv.mod_revision()))
        };
        Ok(answer.kvs().iter().map(entry).collect())
    }

    /// Saves a snapshot to `path`, as `etcdctl snapshot save` does: the database file, then its SHA-256 sum.
    pub fn save_snapshot(&self, path: &Path) -> Result<()> {
        let mut file = fs::File::create(path).with_context(|| format!("cannot write {}", path.display()))?;
        self.with_client(async |mut client| {
            let mut stream = client.snapshot().await?;
            while let Some(part) = stream.message().await? {
                file.write_all(part.blob())?;
            }
            Ok(())
        })?;
        let length = fs::metadata(path)?.len();
        ensure!(
            length % SNAPSHOT_UNIT == CHECKSUM,
            "{length} bytes are not whole pages and a checksum"
        );
        Ok(())
    }

    /// Creates the users that the options name, with a role of the same name for each reader, and turns authentication
    /// on.
    pub(super) fn set_up_login(&self) -> Result<()> {
        let Some(user) = self.options.login.as_ref() else {
            return Ok(());
        };
        block_on(async || {
            let mut client = self.connect(None).await?;
            client.role_add(ROOT).await?;
            add_user(
                &mut client,
                &Login {
                    name: ROOT.to_owned(),
                    ..user.clone()
                },
                ROOT,
            )
            .await?;
            if user.name != ROOT {
                add_user(&mut client, user, ROOT).await?;
            }
            for (reader, prefix) in &self.options.readers {
                client.role_add(reader.name.as_str()).await?;
                let permission = Permission::read(prefix.as_str()).with_prefix();
                client
                    .role_grant_permission(reader.name.as_str(), permission)
                    .await?;
                add_user(&mut client, reader, &reader.name).await?;
            }
            client.auth_enable().await?;
            Ok(())
        })
    }

    async fn connect(&self, user: Option<&Login>) -> Result<Client, etcd_client::Error> {
        let mut options = ConnectOptions::new().with_connect_timeout(CONNECT);
        if let Some(pki) = &self.pki {
            let authority = Certificate::from_pem(fs::read(&pki.ca)?);
            let own = Identity::from_pem(fs::read(&pki.client.certificate)?, fs::read(&pki.client.key)?);
            options = options.with_tls(TlsOptions::new().ca_certificate(authority).identity(own));
        }
        if let Some(user) = user {
            options = options.with_user(user.name.as_str(), user.password.as_str());
        }
        Client::connect([self.endpoint()], Some(options)).await
    }
}

async fn add_user(client: &mut Client, login: &Login, role: &str) -> Result<(), etcd_client::Error> {
    client
        .user_add(login.name.as_str(), login.password.as_str(), None)
        .await?;
    client.user_grant_role(login.name.as_str(), role).await?;
    Ok(())
}
