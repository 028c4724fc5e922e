//! Files of data that cannot be read.

use calipam_files::FileError;

use crate::hints::command_elsewhere;

/// What to do about a file of data; `None` if there is nothing to say.
pub(super) fn file(error: &FileError) -> Option<String> {
    let text = match error {
        FileError::Empty | FileError::UnknownKind(_) => {
            return Some(format!(
                "a file is what {}, `etcdctl snapshot save FILE` or `kubectl get … -o json` has written",
                command_elsewhere(&["export", "FILE"])
            ));
        }
        FileError::EtcdFolder => {
            "serve a copy of it: `etcd --data-dir COPY --force-new-cluster --enable-v2 --listen-client-urls \
             http://127.0.0.1:2399 --advertise-client-urls http://127.0.0.1:2399` (etcd 3.4 or older), and read that with \
             DATASTORE_TYPE=etcdv2. The data of Calico 3 lies in its file member/snap/db"
        }
        FileError::NoCalico => {
            "is this the etcd that Calico uses? A cluster often has another one for the Kubernetes API; \
             with the Kubernetes datastore, Calico uses no etcd of its own. Data of Calico 2.x is read with \
             DATASTORE_TYPE=etcdv2"
        }
        FileError::ObjectsMissing { .. } => {
            "write it again with all pages: `kubectl get … -o json` follows them, `kubectl get --raw` with a limit does not"
        }
        FileError::Objects(_) | FileError::NoObjects => {
            "write it again: `kubectl get ipamblocks,ipamhandles,blockaffinities,ipamconfigs,ippools,\
             ipreservations,clusterinformations,kubecontrollersconfigurations,nodes,pods,services -A -o json`"
        }
        FileError::ExportVersion(_) | FileError::ChangesVersion(_) => {
            "use the version of calipam that wrote it"
        }
        FileError::ExportLine { .. } | FileError::ExportCut { .. } | FileError::Unpack(_) => {
            let export = command_elsewhere(&["export", "FILE"]);
            return Some(format!("write it again with {export}, or copy it again"));
        }
        FileError::SnapshotCut(_) | FileError::SnapshotChecksum | FileError::SnapshotDamaged(_) => {
            "take it again with `etcdctl snapshot save FILE`; a copy of the file `member/snap/db` of an etcd that \
             runs is not consistent"
        }
        FileError::OtherCluster { .. } => "each cluster has an archive of its own: name another folder",
        FileError::ArchiveBusy => "wait until it has ended; files left by a killed run do no harm",
        FileError::ChangesDamaged { .. } | FileError::Archived(_) | FileError::NoTime(_) => {
            "move the file out of the archive: the time that it covered becomes a gap, which the output shows"
        }
        FileError::Io(error) if error.kind() == std::io::ErrorKind::NotFound => {
            "is the path right, and does its folder exist?"
        }
        FileError::Io(_) => return None,
    };
    Some(text.to_owned())
}
