//! What goes wrong between this program and an etcd server.

/// Why an etcd server could not be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Failure {
    /// Nothing listens there.
    #[error("connection refused")]
    Refused,
    /// No answer within the time-out.
    #[error("no answer within {0} s")]
    TimedOut(u64),
    /// The network does not reach it.
    #[error("not reachable: {0}")]
    Network(String),
    /// The name has no address.
    #[error("the name cannot be resolved")]
    NameNotResolved,
    /// The connection is not encrypted, but the server wants TLS.
    #[error("the server wants TLS")]
    ServerWantsTls,
    /// The connection is to be encrypted, but the server speaks no TLS.
    #[error("the server speaks no TLS")]
    ServerIsPlain,
    /// No trusted authority has signed the server's certificate.
    #[error("the server's certificate is not trusted")]
    CertificateNotTrusted,
    /// The server's certificate has expired or is not valid yet.
    #[error("the server's certificate has expired or is not valid yet")]
    CertificateExpired,
    /// The server's certificate names other hosts.
    #[error("the server's certificate is for another name")]
    CertificateWrongName,
    /// The server's certificate is faulty in another way.
    #[error("the server's certificate is not acceptable: {0}")]
    CertificateBad(String),
    /// The server wants a certificate of the client, and none was given.
    #[error("the server wants a client certificate")]
    ClientCertificateRequired,
    /// The server does not accept the client's certificate.
    #[error("the server does not accept the client certificate")]
    ClientCertificateRefused,
    /// TLS failed in another way.
    #[error("TLS failed: {0}")]
    Tls(String),
    /// Authentication is on, and no user was given.
    #[error("the server wants a user and password")]
    AuthNeeded,
    /// User or password are wrong.
    #[error("user or password are wrong")]
    WrongPassword,
    /// The user may not read the keys.
    #[error("permission denied")]
    PermissionDenied,
    /// The cluster has no leader, or too little of it is alive.
    #[error("the etcd cluster cannot answer: {0}")]
    NoQuorum(String),
    /// The revision asked for has been compacted.
    #[error("the revision has been compacted")]
    Compacted,
    /// The connection was lost.
    #[error("the connection broke: {0}")]
    Broken(String),
    /// What answers is no etcd v3 server.
    #[error("what answers there is no etcd v3 server: {0}")]
    NotEtcd(String),
    /// Anything else that the server says.
    #[error("{0}")]
    Other(String),
}

impl Failure {
    /// Of several failures the one with the highest weight says most about what to do.
    pub(crate) fn weight(&self) -> u8 {
        match self {
            Self::NameNotResolved | Self::Network(_) | Self::TimedOut(_) | Self::Refused => 0,
            Self::Broken(_) | Self::NoQuorum(_) | Self::Other(_) | Self::NotEtcd(_) | Self::Compacted => 1,
            Self::ServerWantsTls | Self::ServerIsPlain | Self::Tls(_) => 2,
            Self::CertificateNotTrusted
            | Self::CertificateExpired
            | Self::CertificateWrongName
            | Self::CertificateBad(_)
            | Self::ClientCertificateRequired
            | Self::ClientCertificateRefused => 3,
            Self::AuthNeeded | Self::WrongPassword | Self::PermissionDenied => 4,
        }
    }

    /// True where another attempt, at another endpoint perhaps, may succeed.
    pub(crate) fn is_transient(&self) -> bool {
        matches!(
            self,
            Self::Refused | Self::TimedOut(_) | Self::Network(_) | Self::NoQuorum(_) | Self::Broken(_)
        )
    }

    /// What to do next, where there is something to say.
    pub fn hint(&self) -> Option<String> {
        let text = match self {
            Self::Refused | Self::TimedOut(_) | Self::Network(_) => {
                "is etcd running there, and is the port right (usually 2379)? \
                 Set the endpoints by `--etcd-endpoints` or ETCD_ENDPOINTS"
            }
            Self::NameNotResolved => "check the host names in `--etcd-endpoints` or ETCD_ENDPOINTS",
            Self::ServerWantsTls => {
                "write the endpoint as https://…, and give the CA certificate by ETCD_CA_CERT_FILE \
                 (field etcdCACertFile)"
            }
            Self::ServerIsPlain => "write the endpoint as http://…",
            Self::CertificateNotTrusted => {
                "give the CA certificate that signed it by ETCD_CA_CERT_FILE (field etcdCACertFile)"
            }
            Self::CertificateExpired => "renew the server's certificate, or set this machine's clock right",
            Self::CertificateWrongName => {
                "write the endpoint with a name or address that the certificate lists"
            }
            Self::ClientCertificateRequired => {
                "give certificate and key by ETCD_CERT_FILE and ETCD_KEY_FILE (fields etcdCertFile, etcdKeyFile)"
            }
            Self::ClientCertificateRefused => {
                "check that the certificate in ETCD_CERT_FILE is signed by the CA that this etcd trusts, and has \
                 not expired"
            }
            Self::AuthNeeded => {
                "give them by ETCD_USERNAME and ETCD_PASSWORD (fields etcdUsername, etcdPassword)"
            }
            Self::WrongPassword => {
                "check ETCD_USERNAME and ETCD_PASSWORD (fields etcdUsername, etcdPassword)"
            }
            Self::PermissionDenied => {
                "the user needs to read /calico/: `etcdctl role grant-permission ROLE --prefix=true read /calico/`"
            }
            Self::NoQuorum(_) => {
                "look at `etcdctl endpoint status --cluster`; a check also runs on a snapshot of one member \
                 (`etcdctl snapshot save FILE`, then `--datastore FILE`)"
            }
            Self::NotEtcd(_) => "etcd listens for clients at port 2379, for its peers at 2380",
            Self::Broken(_) => "run it again; if it stays, look at the log of etcd",
            Self::CertificateBad(_) | Self::Tls(_) | Self::Compacted | Self::Other(_) => return None,
        };
        Some(text.to_owned())
    }
}
