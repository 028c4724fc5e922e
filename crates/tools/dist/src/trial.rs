//! Tries out programs in an empty folder, and images in their own root folders.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::thread::sleep;
use std::time::{Duration, Instant};

use tempfile::TempDir;

use crate::image;
use crate::{Request, Result, VERSION, cannot, read, write};

/// Calico's plugin, which is present before the installer runs.
const CALICO_PLUGIN: &[u8] = b"#!/bin/sh\necho v3.32.0\n";
/// The path at which the DaemonSet mounts the folder of CNI plugins.
const PLUGINS: &str = "host/opt/cni/bin";
/// Mounts /proc in a folder, as every runtime does in a container, and runs a program with that folder as its root.
const WITH_PROC: &str =
    r#"mkdir -p "$0/proc" && mount --rbind /proc "$0/proc" && exec unshare --root "$0" "$@""#;
/// The time that an installer may take on a busy machine.
const PATIENCE: Duration = Duration::from_secs(30);

/// A folder that becomes the root of the programs that run in it.
struct Root {
    folder: TempDir,
    /// The program's user and group.
    user: String,
    /// True if `/proc` is mounted, as in a container.
    has_proc: bool,
}

impl Root {
    fn new(user: &str) -> Result<Self> {
        Ok(Self {
            folder: TempDir::with_prefix("calipam-trial")?,
            user: user.to_owned(),
            has_proc: false,
        })
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn put(&self, name: &str, content: &[u8], mode: u32) -> Result<()> {
        let path = write(self.path(name), content)?;
        fs::set_permissions(&path, fs::Permissions::from_mode(mode)).map_err(cannot("write", &path))
    }

    /// Returns a command that runs with the folder as its root. It needs root rights or user namespaces.
    fn call(&self, words: &[&str]) -> Command {
        let (user, group) = self.user.split_once(':').unwrap_or((&self.user, &self.user));
        let as_user = [format!("--map-user={user}"), format!("--map-group={group}")];
        let mut call = Command::new("unshare");
        call.env_clear().env("PATH", "/usr/bin:/usr/sbin:/bin:/sbin");
        if self.has_proc {
            call.args(["--map-root-user", "--mount", "sh", "-c", WITH_PROC])
                .arg(self.folder.path());
        } else {
            call.arg("--root").arg(self.folder.path());
        }
        call.args(as_user).args(words);
        call
    }

    /// Runs a program. Fails unless the program exits with `code` and prints `said`.
    fn expect(&self, words: &[&str], code: i32, said: &str) -> Result<()> {
        let Output {
            status,
            stdout,
            stderr,
        } = self
            .call(words)
            .output()
            .map_err(|error| format!("cannot run `unshare`: {error}"))?;
        let text = String::from_utf8_lossy(&[stdout, stderr].concat()).into_owned();
        if status.code() == Some(code) && text.contains(said) {
            println!("{}", words.join(" "));
            return Ok(());
        }
        let what = format!(
            "`{}` ended with {status} and did not say `{said}`",
            words.join(" ")
        );
        Err(format!("{what}:\n{text}").into())
    }
}

/// Checks that the programs run in a folder with nothing else, and so need no library, and resolve names with the
/// folder's /etc/hosts.
pub(crate) fn programs(request: &Request) -> Result<()> {
    let root = Root::new("0:0")?;
    for name in ["calipam", "calico-ipam"] {
        root.put(name, &request.program(name)?, 0o755)?;
    }
    root.put("etc/hosts", b"127.0.0.1 etcd.of.the.check\n", 0o644)?;
    root.put("etc/resolv.conf", b"nameserver 127.0.0.1\n", 0o644)?;
    root.expect(&["/calipam", "version"], 0, &format!("calipam {VERSION}"))?;
    root.expect(&["/calico-ipam", "-v"], 0, &format!("calipam {VERSION}"))?;
    // Nothing listens there. A refused connection means that the name was resolved.
    root.expect(
        &[
            "/calipam",
            "check",
            "--etcd-endpoints",
            "http://etcd.of.the.check:1",
        ],
        3,
        "refused",
    )
}

/// Checks the unpacked images. calipam's image checks an export, and the installer's image installs and removes the
/// plugin.
pub(crate) fn images(request: &Request) -> Result<()> {
    check_an_export(request)?;
    install_and_uninstall(request)
}

/// Unpacks the image `name` for the target's platform.
fn unpacked(request: &Request, name: &str) -> Result<(Root, Vec<String>)> {
    let folder = TempDir::with_prefix("calipam-trial")?;
    let layout = request.output.join(name);
    let (user, entry) = image::unpack(&layout, &request.machine, folder.path())?;
    Ok((
        Root {
            folder,
            user,
            has_proc: true,
        },
        entry,
    ))
}

fn check_an_export(request: &Request) -> Result<()> {
    let (root, entry) = unpacked(request, "calipam")?;
    root.put(
        "cluster.jsonl",
        &read(&request.root.join("docs/examples/cluster.jsonl"))?,
        0o644,
    )?;
    let entry: Vec<&str> = entry.iter().map(String::as_str).collect();
    let [program] = entry[..] else {
        return Err(format!("the entry point is {entry:?}").into());
    };
    root.expect(&[program, "version"], 0, &format!("calipam {VERSION}"))?;
    root.expect(
        &[program, "check", "--datastore", "/cluster.jsonl"],
        1,
        "critical  duplicate-address ",
    )
}

fn install_and_uninstall(request: &Request) -> Result<()> {
    let (root, entry) = unpacked(request, "calipam-cni-installer")?;
    let plugin = root.path(PLUGINS).join("calico-ipam");
    let ours = request.program("calico-ipam")?;
    root.put(&format!("{PLUGINS}/calico-ipam"), CALICO_PLUGIN, 0o755)?;
    let program = entry.first().ok_or("there is no entry point")?.as_str();
    let folder = format!("--bin-dir=/{PLUGINS}");
    let installed = format!("/{PLUGINS}/calico-ipam");

    root.expect(
        &[program, "install", "--no-check", &folder],
        0,
        "Calico's, which is kept",
    )?;
    holds(&plugin, &ours)?;
    root.expect(&[&installed, "-v"], 0, &format!("calipam {VERSION}"))?;
    root.expect(&[program, "uninstall", &folder], 0, "")?;
    holds(&plugin, CALICO_PLUGIN)?;

    // Started as in the image, the installer runs until it receives a signal.
    let words: Vec<&str> = entry
        .iter()
        .map(String::as_str)
        .chain(["--no-check", &folder])
        .collect();
    let mut staying = root
        .call(&words)
        .spawn()
        .map_err(|error| format!("cannot run `unshare`: {error}"))?;
    let end = Instant::now() + PATIENCE;
    while holds(&plugin, &ours).is_err() && Instant::now() < end {
        sleep(Duration::from_millis(100));
    }
    let installed = holds(&plugin, &ours);
    // The standard library sends no signal but SIGKILL.
    let asked = Command::new("kill").arg(staying.id().to_string()).status();
    let ended = staying.wait()?;
    installed?;
    if !asked?.success() || !ended.success() {
        return Err(format!("`{}` ended with {ended}", words.join(" ")).into());
    }
    println!("{}", words.join(" "));
    holds(&plugin, CALICO_PLUGIN)
}

fn holds(path: &Path, content: &[u8]) -> Result<()> {
    if read(path)? == content {
        return Ok(());
    }
    Err(format!("{} is another file than expected", path.display()).into())
}
