//! The plugin under libcni, the CNI client of container runtimes, with a main plugin that only calls it.

use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::PathBuf;
use std::process::Command;

use calipam_testkit::servers::{Tool, find};
use serde_json::{Value, json};
use tempfile::TempDir;

use crate::runtime::{PLUGIN, addresses};
use crate::world::World;

/// A main plugin that only calls its IPAM plugin. The real one, `calico`, also sets addresses and routes.
const MAIN: &str = "#!/bin/sh\nexec \"${0%/*}/calico-ipam\"\n";

/// libcni with one network on node `a`, and a folder for plugins and cache.
struct Client {
    program: PathBuf,
    folder: TempDir,
}

impl Client {
    fn new(world: &World, version: &str) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let plugins = folder.path().join("plugins");
        fs::create_dir(&plugins).unwrap();
        fs::write(plugins.join("main"), MAIN).unwrap();
        fs::set_permissions(plugins.join("main"), fs::Permissions::from_mode(0o755)).unwrap();
        symlink(PLUGIN, plugins.join("calico-ipam")).unwrap();

        let mut network = world.runtime().with("type", "main").configuration;
        network["ipam_lock_file"] = folder.path().join("ipam.lock").display().to_string().into();
        let fields = network.as_object_mut().unwrap();
        fields.retain(|field, _| !["cniVersion", "name"].contains(&field.as_str()));
        let list = json!({"cniVersion": version, "name": "net", "plugins": [network]});
        fs::write(folder.path().join("net.conflist"), list.to_string()).unwrap();
        Self {
            program: find(Tool::CniClient).unwrap(),
            folder,
        }
    }

    /// The output of the client; `None` if it failed.
    fn call(&self, command: &str, container: &str) -> Option<Value> {
        let folder = self.folder.path();
        let mut client = Command::new(&self.program);
        client
            .arg(command)
            .arg(folder.join("net.conflist"))
            .arg(folder.join("plugins"));
        client.arg(folder.join("cache")).arg(container).env_clear();
        client.env(
            "CNI_ARGS",
            "IgnoreUnknown=1;K8S_POD_NAMESPACE=ns;K8S_POD_NAME=web-0",
        );
        let output = client.output().unwrap();
        let error = String::from_utf8_lossy(&output.stderr);
        // Exit code 2 would mean that the arguments of the client are wrong.
        assert!(
            [Some(0), Some(1)].contains(&output.status.code()),
            "{command}: {error}"
        );
        let printed = serde_json::from_slice(&output.stdout).unwrap_or_default();
        output.status.success().then_some(printed)
    }

    #[track_caller]
    fn succeed(&self, command: &str, container: &str) -> Value {
        self.call(command, container)
            .unwrap_or_else(|| panic!("{command} of {container} failed"))
    }
}

#[test]
fn containers_live_under_libcni() {
    let world = World::etcd();
    for version in ["0.4.0", "1.0.0", "1.1.0"] {
        let client = Client::new(&world, version);
        let result = client.succeed("add", "c1");
        assert_eq!(result["cniVersion"], version, "{result}");
        let held = world.allocated();
        assert_eq!(held, [(addresses(&result)[0].clone(), "net.c1".to_owned())]);
        client.succeed("check", "c1");

        // The client itself deletes `c2`, which is in its cache. It does not know `lost`, which only GC of version 1.1
        // releases.
        client.succeed("add", "c2");
        let lost = world.runtime().with("cniVersion", version);
        lost.call("ADD", "lost", "").success();
        client.succeed("gc", "c1");
        let mut left: Vec<String> = world.allocated().into_iter().map(|(_, handle)| handle).collect();
        left.sort();
        match version {
            "1.1.0" => assert_eq!(left, ["net.c1"]),
            _ => assert_eq!(left, ["net.c1", "net.lost"], "{version} has no GC"),
        }
        client.succeed("status", "c1");

        lost.call("DEL", "lost", "").success();
        client.succeed("del", "c1");
        assert_eq!(client.call("check", "c1"), None, "nothing is left to check");
        client.succeed("del", "c1");
        world.assert_empty();
    }
}
