//! `cargo xtask dist` and `cargo xtask image`: build the programs, and package them or make images.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use clap::Args;

use crate::failure::Failure;
use crate::publisher::Publisher;
use crate::{protoc, servers, step, tools, workspace, zig};

/// Make archives, .deb, .rpm, SBOMs, sums and the manifest for krew
///
/// Builds calipam and its CNI plugin as releases: static programs for this machine
/// (x86_64-unknown-linux-musl; --target TRIPLE: for another one), unless --programs
/// DIR names a folder in which they are, and writes into dist/ (--output DIR), for
/// calipam and for calipam-cni:
///
///   NAME-VERSION-TRIPLE.tar.gz    programs, completions, man pages, units, licence
///   NAME_VERSION_ARCH.deb         for Linux
///   NAME-VERSION-1.ARCH.rpm       for Linux
///   NAME-VERSION-TRIPLE.cdx.json  what it is built of (CycloneDX)
///   SHA256SUMS                    of all files in the folder
///
/// and docs/krew.yaml (--manifest FILE), by which krew installs `kubectl ipam` from
/// the archives in the folder, to be downloaded below the URL in Cargo.toml
/// (workspace.metadata.publisher). Run it once for each target with the same
/// --output, then upload the folder. The same programs give the same packages, byte
/// for byte.
///
/// With --check it then tries the programs: they need no library, run in a folder
/// with nothing else, find names by /etc/hosts there, and pass the tests of the
/// plugin, and those of checks, views, a release and its undo on an etcd. Needs
/// root or user namespaces, and what tests need. Programs for arm64 are run by
/// QEMU, which is unpacked from the package qemu-user-static; that takes Linux 6.7
/// or newer.
/// With --twice it first builds the commit that is checked out once more, in
/// another folder, and compares the programs byte for byte.
///
/// Needs Rust; rustup installs the standard library of a target. These were tried:
///
///   x86_64-unknown-linux-musl, aarch64-unknown-linux-musl
///       on any machine. pip installs Zig, which compiles the C code of crates;
///       CC_TRIPLE names another compiler
///   x86_64-pc-windows-gnu
///       apt-get install gcc-mingw-w64-x86-64
///       calipam alone; checked, released and undid on an etcd under Wine
///   aarch64-apple-darwin, x86_64-apple-darwin
///       calipam alone, linked on any machine by Rust's linker with the names of
///       macOS's libraries; it was never run
#[derive(Args)]
#[command(verbatim_doc_comment)]
pub(crate) struct Dist {
    #[command(flatten)]
    made_of: Programs,
    /// The folder of the packages
    #[arg(long, value_name = "DIR", default_value = "dist")]
    output: PathBuf,
    /// The manifest for krew
    #[arg(long, value_name = "FILE", default_value = "docs/krew.yaml")]
    manifest: PathBuf,
    /// Build twice, and compare
    #[arg(long)]
    twice: bool,
}

/// Make OCI images of calipam and of the plugin's installer
///
/// Builds the programs as `cargo xtask dist` does (--target, --programs) and writes
/// two OCI layouts below dist/images (--output DIR): calipam, and
/// calipam-cni-installer for docs/kubernetes/cni. They hold one static program each
/// and nothing else. Run it once for each target: a layout holds images for several
/// machines. The same programs give the same images.
///
/// To a registry, or to a node without one:
///
///   skopeo copy --all oci:dist/images/calipam docker://REGISTRY/calipam:VERSION
///   tar -C dist/images/calipam -c . | ctr -n k8s.io images import -
///
/// With --check it then unpacks the images and runs what is in them: one checks an
/// export, the other installs the plugin, stays next to it, and removes it again.
/// Needs root or user namespaces.
///
/// Needs what `cargo xtask dist` needs.
#[derive(Args, Debug, PartialEq, Eq)]
#[command(verbatim_doc_comment)]
pub(crate) struct Image {
    #[command(flatten)]
    made_of: Programs,
    /// The folder of the images
    #[arg(long, value_name = "DIR", default_value = "dist/images")]
    output: PathBuf,
}

/// Filters for the tests that also run with the packaged program. They check exports, an etcd and its snapshot, show
/// views, and undo releases.
const TESTS: [&str; 4] = [
    "cli::check::",
    "cli::etcd::",
    "cli::show::",
    "cli::repair::undo::",
];

/// A script that registers `$0` as the emulator for arm64 programs, and runs its arguments. The flag `F` makes Linux
/// keep the emulator open, so that programs also run if their root folder does not contain the emulator.
const BY_QEMU: &str = r#"at=/proc/sys/fs/binfmt_misc
mount -t binfmt_misc none $at && printf %s ':aarch64:M::\x7fELF\x02\x01\x01\x00\x00\x00\x00\x00\x00\x00\x00\x00\x02\x00\xb7\x00:\xff\xff\xff\xff\xff\xff\xff\x00\xff\xff\xff\xff\xff\xff\xff\xff\xfe\xff\xff\xff:'"$0:F" > $at/register && exec "$@""#;

// The options of `dist` and `image`. A doc comment would replace their help.
#[derive(Args, Debug, PartialEq, Eq)]
struct Programs {
    /// The target of the programs, unless they are for this machine
    #[arg(long, value_name = "TRIPLE")]
    target: Option<String>,
    /// The folder with the programs, which are built unless it is named
    #[arg(long, value_name = "DIR")]
    programs: Option<PathBuf>,
    /// Try out the result
    #[arg(long)]
    check: bool,
}

pub(crate) fn run(
    Dist {
        made_of,
        output,
        manifest,
        twice,
    }: &Dist,
) -> Result<(), Failure> {
    let publisher = Publisher::read()?;
    publisher.require_published()?;
    let (target, programs) = programs(made_of)?;
    if *twice {
        build_again(&target, &programs)?;
    }
    let mut package = packager("packages", &programs, &target, output)?;
    step::run("Packaging", package.arg(publisher.downloads).arg(manifest))?;
    if !made_of.check {
        return Ok(());
    }
    let machine = Machine::of(&target, &programs)?;
    let trial = packager("try-programs", &programs, &target, output)?;
    step::run("Running the programs in an empty folder", &mut machine.on(trial))?;
    test(&programs, &machine)
}

pub(crate) fn run_image(Image { made_of, output }: &Image) -> Result<(), Failure> {
    let (target, programs) = programs(made_of)?;
    step::run(
        "Writing images",
        &mut packager("image", &programs, &target, output)?,
    )?;
    if !made_of.check {
        return Ok(());
    }
    let trial = packager("try-images", &programs, &target, output)?;
    step::run(
        "Running the images",
        &mut Machine::of(&target, &programs)?.on(trial),
    )
}

/// Returns a command that runs the packager. The packager is a separate program, so that building xtask does not build
/// its dependencies.
fn packager(order: &str, programs: &Path, target: &str, output: &Path) -> Result<Command, Failure> {
    let mut packager = protoc::cargo(&["run", "--package", "calipam-dist", "--", order])?;
    packager.arg(programs).arg(target).arg(output);
    Ok(packager)
}

/// Returns the target and the folder with its programs. Builds the programs unless the command line names a folder.
fn programs(made_of: &Programs) -> Result<(String, PathBuf), Failure> {
    let target = match &made_of.target {
        Some(target) => target.clone(),
        None => host()?.replace("-linux-gnu", "-linux-musl"),
    };
    let programs = match &made_of.programs {
        Some(programs) => programs.clone(),
        None => build(&target, &workspace::root(), &workspace::target()?)?,
    };
    Ok((target, programs))
}

/// Builds the programs of a checkout as releases. `folder` is cargo's target folder. Returns the folder with the
/// programs.
fn build(target: &str, checkout: &Path, folder: &Path) -> Result<PathBuf, Failure> {
    tools::install_target(target)?;
    let mut programs = vec![("calipam", "calipam")];
    // The plugin is for Linux.
    if target.contains("-linux-") {
        programs.push(("calipam-cni", "calico-ipam"));
    }
    let memory = zig::memory_functions(target)?;
    for (package, program) in programs {
        let mut build = build_command(target, checkout, folder)?;
        build.args(["--package", package, "--bin", program]);
        // Arguments for the program alone, not for its libraries.
        build.arg("--").args(&memory);
        step::run(&format!("Building {program} for packages"), &mut build)?;
    }
    Ok(folder.join(target).join("release"))
}

/// Returns the command that builds a program for packages; it lacks the name of the program.
fn build_command(target: &str, checkout: &Path, folder: &Path) -> Result<Command, Failure> {
    let mut build = protoc::cargo(&["rustc", "--release", "--target", target])?;
    // Without the paths of this machine, other machines build the same bytes.
    let home = std::env::var_os("CARGO_HOME").map(PathBuf::from);
    let home = home
        .or_else(|| std::env::home_dir().map(|home| home.join(".cargo")))
        .unwrap_or_default();
    let map = |from: &Path, to: &str| format!("\"--remap-path-prefix={}={to}\"", from.display());
    let maps = [map(&home, "/cargo"), map(checkout, "/calipam")].join(",");
    build.args(["--config", &format!("target.{target}.rustflags=[{maps}]")]);
    build
        .current_dir(checkout)
        .env("CARGO_TARGET_DIR", folder)
        .envs(zig::variables(target)?);
    // The C code of mimalloc embeds the time of its compilation. The C compiler reads this time from the variable.
    build.env("SOURCE_DATE_EPOCH", "0");
    Ok(build)
}

/// Builds the checked-out commit from scratch in another folder, and compares the result with `programs`.
fn build_again(target: &str, programs: &Path) -> Result<(), Failure> {
    let unchanged = Command::new("git").args(["diff", "--quiet", "HEAD"]).status();
    if !unchanged.is_ok_and(|status| status.success()) {
        return Err(Failure::new("--twice builds a commit, and files differ from it")
            .hint("commit or stash what has changed"));
    }
    let copy = workspace::root().join("target/tmp/dist-again");
    fs::remove_dir_all(&copy).ok();
    let mut clone = Command::new("git");
    clone.args(["clone", "--quiet"]).arg(workspace::root()).arg(&copy);
    step::run("Copying the commit to another folder", &mut clone)?;
    let again = build(target, &copy, &copy.join("target"))?;
    for name in ["calipam", "calico-ipam"]
        .into_iter()
        .filter(|name| programs.join(name).is_file())
    {
        let read = |path: PathBuf| fs::read(&path).map_err(|error| Failure::io("read", &path, &error));
        if read(programs.join(name))? != read(again.join(name))? {
            let what = format!(
                "{} and {} differ",
                programs.join(name).display(),
                again.join(name).display()
            );
            return Err(Failure::new(what).hint("`diffoscope` shows where"));
        }
        step::announce(&format!("{name}: both builds are the same"));
    }
    fs::remove_dir_all(&copy).map_err(|error| Failure::io("remove", &copy, &error))
}

/// Runs the plugin's tests, and some of calipam's, with the packaged programs.
fn test(programs: &Path, machine: &Machine) -> Result<(), Failure> {
    let servers = servers::prepare()?.build()?;
    let programs = programs
        .canonicalize()
        .map_err(|error| Failure::io("find", programs, &error))?;
    let test = |title: &str, variable: &str, program: &str, words: &[&str]| {
        let mut tests = protoc::cargo(&[&["test"], words].concat())?;
        tests.env(variable, programs.join(program)).envs(servers.clone());
        step::run(title, &mut machine.on(tests))
    };
    let plugin = ["--package", "calipam-cni", "--test", "integration"];
    test(
        "Testing the packaged plugin",
        "CALIPAM_TEST_PLUGIN",
        "calico-ipam",
        &plugin,
    )?;
    let program = [&["--workspace", "--test", "tests", "--"][..], &TESTS].concat();
    test(
        "Testing the packaged program",
        "CALIPAM_TEST_PROGRAM",
        "calipam",
        &program,
    )
}

/// The means to run programs for a target: directly, or with QEMU.
struct Machine {
    qemu: Option<PathBuf>,
}

impl Machine {
    /// Prepares to run programs for a target. Unpacks QEMU if this machine cannot run them itself.
    fn of(target: &str, programs: &Path) -> Result<Self, Failure> {
        if Command::new(programs.join("calipam"))
            .arg("version")
            .output()
            .is_ok()
        {
            return Ok(Self { qemu: None });
        }
        if !target.starts_with("aarch64-unknown-linux-") {
            return Err(Failure::new(format!(
                "this machine does not run programs for {target}"
            )));
        }
        Ok(Self {
            qemu: Some(servers::unpack_qemu()?),
        })
    }

    /// Wraps a command so that it runs programs for the target.
    fn on(&self, command: Command) -> Command {
        let Some(qemu) = &self.qemu else { return command };
        let mut outer = Command::new("unshare");
        outer
            .args(["--map-root-user", "--mount", "sh", "-c", BY_QEMU])
            .arg(qemu);
        workspace::run_by(outer, &command)
    }
}

/// Returns the target triple of this machine, as rustc reports it.
fn host() -> Result<String, Failure> {
    let printed = step::printed(Command::new("rustc").args(["--print", "host-tuple"]))?;
    Ok(printed.trim().to_owned())
}
