//! Zig as the C compiler for targets that the machine's own compiler does not support.

use std::env;
use std::path::PathBuf;
use std::process::Command;

use crate::failure::Failure;
use crate::{step, workspace};

/// The version of the Python wheel that contains Zig. It is pinned, since the programs contain code that Zig compiles.
const VERSION: &str = "0.17.1";

/// The symbols of macOS frameworks that calipam uses, through the crates that read the system's certificates.
const FRAMEWORKS: [(&str, &str); 2] = [
    (
        "CoreFoundation",
        "CFArrayCreate CFArrayGetCount CFArrayGetValueAtIndex CFDataCreate CFDataGetBytePtr CFDataGetLength \
         CFDateCreate CFDictionaryGetValueIfPresent CFEqual CFErrorCopyDescription CFErrorGetCode CFNumberGetValue \
         CFRelease CFRetain CFStringCreateWithBytes CFStringCreateWithBytesNoCopy CFStringGetBytes \
         CFStringGetCStringPtr CFStringGetLength kCFAbsoluteTimeIntervalSince1970 kCFAllocatorDefault \
         kCFAllocatorNull kCFTypeArrayCallBacks",
    ),
    (
        "Security",
        "SecCertificateCopyData SecCertificateCopySubjectSummary SecCertificateCreateWithData \
         SecCopyErrorMessageString SecPolicyCreateSSL SecTrustCreateWithCertificates SecTrustEvaluateWithError \
         SecTrustSetAnchorCertificates SecTrustSetAnchorCertificatesOnly SecTrustSetOCSPResponse \
         SecTrustSetVerifyDate SecTrustSettingsCopyCertificates SecTrustSettingsCopyTrustSettings",
    ),
];

/// Environment variables of a build.
pub(crate) type Variables = Vec<(String, String)>;

/// The name of the library of [`memory_functions`].
const MEMORY: &str = "memory";

/// Builds Zig's functions for copying and comparing memory as a static library, and returns the arguments with which
/// rustc links it. musl copies memory on x86-64 with an instruction that takes long to begin, so that a check takes a
/// quarter more processor time. Returns no arguments for other targets.
pub(crate) fn memory_functions(target: &str) -> Result<Vec<String>, Failure> {
    let Some(name) = name_of(target).filter(|_| target == "x86_64-unknown-linux-musl") else {
        return Ok(Vec::new());
    };
    let folder = folder().join(format!("{MEMORY}-{target}"));
    let source = folder.join("empty.zig");
    workspace::write(source.clone(), "")?;
    let mut build = Command::new(program()?);
    build
        .current_dir(&folder)
        .args(["build-lib", "empty.zig", "-fcompiler-rt", "-O", "ReleaseFast"])
        .args(["-target", &name, "--name", MEMORY]);
    step::run("Compiling functions for memory", &mut build)?;
    Ok(vec![
        "-L".to_owned(),
        format!("native={}", folder.display()),
        "-l".to_owned(),
        format!("static={MEMORY}"),
    ])
}

/// Returns the environment variables for compiling the C code of crates for a target, and for linking programs for
/// macOS on another system. Installs Zig if it is missing.
/// Returns no variables if Zig does not compile for the target, or if the environment already names a compiler.
pub(crate) fn variables(target: &str) -> Result<Variables, Failure> {
    let suffix = target.replace('-', "_");
    let compiler = format!("CC_{suffix}");
    let Some(name) = name_of(target).filter(|_| env::var_os(&compiler).is_none()) else {
        return Ok(Vec::new());
    };
    let zig = program()?;
    let zig = zig.display();
    let mut variables = vec![
        (compiler, format!("{zig} cc -target {name}")),
        (format!("AR_{suffix}"), format!("{zig} ar")),
        (
            format!("CFLAGS_{suffix}"),
            "-O3 -ffunction-sections -fdata-sections".to_owned(),
        ),
        // One of the compiler flags that the crate cc sets by default is Rust's name of the target, which Zig does not
        // know.
        ("CRATE_CC_NO_DEFAULTS".to_owned(), "1".to_owned()),
    ];
    if target.ends_with("-apple-darwin") {
        variables.push((
            format!("CARGO_TARGET_{}_LINKER", suffix.to_uppercase()),
            "rust-lld".to_owned(),
        ));
        variables.push(("SDKROOT".to_owned(), libraries()?.display().to_string()));
    }
    Ok(variables)
}

/// Returns the path of Zig. Installs it if it is missing.
fn program() -> Result<PathBuf, Failure> {
    let folder = folder();
    let zig = folder.join("ziglang/zig");
    if !zig.is_file() {
        let mut install = Command::new("python3");
        install
            .args(["-m", "pip", "install", "--quiet"])
            .args([&format!("ziglang=={VERSION}"), "--target"])
            .arg(&folder);
        // pip warns if it runs as root. The warning does not apply here, since this installs into a separate folder.
        install.env("PIP_ROOT_USER_ACTION", "ignore");
        let installed = step::run("Installing Zig, a C compiler for other machines", &mut install);
        let hint =
            "`apt-get install -y python3-pip` installs pip; or name a C compiler for the target in CC_TRIPLE";
        installed.map_err(|failure| failure.hint(hint))?;
    }
    Ok(zig)
}

/// Writes stubs of macOS's libraries for a linker. They contain only names and symbols. Returns the folder.
fn libraries() -> Result<PathBuf, Failure> {
    let system = workspace::read(folder().join("ziglang/lib/libc/darwin/libSystem.tbd"))?;
    // Rust's linker does not know the architecture `arm64e.x1`, and needs `arm64`.
    let system = system.replace("arm64e.x1-", "arm64-");
    let sdk = folder().join("macos");
    // The programs use no symbol of iconv, so its stub can list any.
    for name in ["System", "c", "m", "iconv"] {
        workspace::write(sdk.join(format!("usr/lib/lib{name}.tbd")), &system)?;
    }
    for (name, symbols) in FRAMEWORKS {
        let place = format!("System/Library/Frameworks/{name}.framework");
        let symbols: Vec<String> = symbols
            .split_whitespace()
            .map(|symbol| format!("_{symbol}"))
            .collect();
        let text = format!(
            "--- !tapi-tbd\ntbd-version: 4\ntargets: [ x86_64-macos, arm64-macos ]\n\
             install-name: '/{place}/Versions/A/{name}'\nexports:\n  - targets: [ x86_64-macos, arm64-macos ]\n    \
             symbols: [ {} ]\n...\n",
            symbols.join(", ")
        );
        workspace::write(sdk.join(format!("{place}/{name}.tbd")), &text)?;
    }
    Ok(sdk)
}

fn folder() -> PathBuf {
    workspace::root().join(format!("target/servers/zig-{VERSION}"))
}

/// Zig's name for a target; `None` if Zig does not compile for it. A Mac compiles for macOS without Zig.
fn name_of(target: &str) -> Option<String> {
    let (machine, system) = target.split_once('-')?;
    match system {
        "unknown-linux-musl" => Some(format!("{machine}-linux-musl")),
        "apple-darwin" if !cfg!(target_os = "macos") => Some(format!("{machine}-macos.11.0")),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn targets_have_names_in_zig() {
        assert_eq!(
            name_of("aarch64-unknown-linux-musl").as_deref(),
            Some("aarch64-linux-musl")
        );
        assert_eq!(
            name_of("x86_64-apple-darwin").as_deref(),
            Some("x86_64-macos.11.0")
        );
        assert_eq!(name_of("x86_64-unknown-linux-gnu"), None);
    }
}
