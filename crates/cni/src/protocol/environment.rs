//! The variables that a runtime sets.

use std::collections::BTreeMap;

use super::{CniError, Code, Version};

/// A command of a runtime.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Command {
    Add,
    Check,
    Del,
    Gc,
    Status,
    Version,
}

impl Command {
    const ALL: [Self; 6] = [
        Self::Add,
        Self::Check,
        Self::Del,
        Self::Gc,
        Self::Status,
        Self::Version,
    ];

    /// The name of the command, as in `CNI_COMMAND`.
    pub fn text(self) -> &'static str {
        match self {
            Self::Add => "ADD",
            Self::Check => "CHECK",
            Self::Del => "DEL",
            Self::Gc => "GC",
            Self::Status => "STATUS",
            Self::Version => "VERSION",
        }
    }

    /// The command with a name; `None` if it is not in the specification.
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|command| command.text() == name)
    }

    /// The first version of the specification with this command.
    pub fn since(self) -> Version {
        match self {
            Self::Add | Self::Del | Self::Version => Version::V0_1_0,
            Self::Check => Version::V0_4_0,
            Self::Gc | Self::Status => Version::V1_1_0,
        }
    }

    /// Refuses a command that a later version of the specification added.
    pub fn check_version(self, version: Version) -> Result<(), CniError> {
        if version >= self.since() {
            return Ok(());
        }
        let text = format!("config version does not allow {}", self.text());
        Err(CniError::new(Code::IncompatibleVersion, text))
    }

    /// The variables that must not be empty, in the order in which errors list them.
    fn needs(self) -> &'static [&'static str] {
        match self {
            Self::Add | Self::Check => &[CONTAINER_ID, NAMESPACE, INTERFACE, PATH],
            Self::Del => &[CONTAINER_ID, INTERFACE, PATH],
            Self::Gc | Self::Status => &[PATH],
            Self::Version => &[],
        }
    }
}

const COMMAND: &str = "CNI_COMMAND";
const CONTAINER_ID: &str = "CNI_CONTAINERID";
const NAMESPACE: &str = "CNI_NETNS";
const INTERFACE: &str = "CNI_IFNAME";
const PATH: &str = "CNI_PATH";
const ARGS: &str = "CNI_ARGS";
const NAMESPACE_OVERRIDE: &str = "CNI_NETNS_OVERRIDE";
/// The largest number of characters in a Linux interface's name.
const INTERFACE_LENGTH: usize = 15;

/// The parsed variables.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Environment {
    pub container: String,
    /// The path of the container's network namespace; empty if the namespace no longer exists.
    pub namespace: String,
    pub interface: String,
    /// The text of `CNI_ARGS`.
    pub args: String,
    /// True if the container's network namespace may be the plugin's own.
    pub any_namespace: bool,
}

impl Environment {
    /// Reads the variables for a command.
    ///
    /// # Errors
    /// If a variable that the command needs is malformed. Otherwise, if any are missing; the error lists them.
    pub fn read(command: Command, variables: &BTreeMap<String, String>) -> Result<Self, CniError> {
        let value = |name: &str| variables.get(name).cloned().unwrap_or_default();
        // As in Go's CNI library, a malformed value is an error before all missing ones together.
        let mut missing: Vec<&str> = Vec::new();
        for name in command.needs().iter().copied() {
            let value = value(name);
            if value.is_empty() {
                missing.push(name);
            } else {
                check_form(name, &value)?;
            }
        }
        if !missing.is_empty() {
            return Err(invalid(format!(
                "required env variables [{}] missing",
                missing.join(",")
            )));
        }

        let override_text = value(NAMESPACE_OVERRIDE).to_lowercase();
        Ok(Self {
            container: value(CONTAINER_ID),
            namespace: value(NAMESPACE),
            interface: value(INTERFACE),
            args: value(ARGS),
            any_namespace: matches!(override_text.as_str(), "1" | "true"),
        })
    }
}

/// The name of the command that the runtime gives; `None` if the variable is not set, as when a person runs the
/// program.
pub fn command_name(variables: &BTreeMap<String, String>) -> Option<&str> {
    let name = variables.get(COMMAND)?;
    if name.is_empty() { None } else { Some(name) }
}

pub fn invalid(msg: impl Into<String>) -> CniError {
    CniError::new(Code::InvalidEnvironment, msg)
}

/// True for a letter or digit followed by letters, digits, `_`, `.` and `-`, as in container IDs and network names.
pub fn is_name(text: &str) -> bool {
    let may_follow = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '.' | '-');
    text.starts_with(|c: char| c.is_ascii_alphanumeric()) && text.chars().all(may_follow)
}

/// Checks the form of a variable that is set.
fn check_form(name: &str, value: &str) -> Result<(), CniError> {
    match name {
        CONTAINER_ID if !is_name(value) => {
            Err(invalid("invalid characters in containerID").with_details(value))
        }
        INTERFACE => check_interface(value),
        _ => Ok(()),
    }
}

/// Refuses a name that cannot be that of a network interface, as Go's CNI library does.
fn check_interface(name: &str) -> Result<(), CniError> {
    if name.len() > INTERFACE_LENGTH {
        let details = format!(
            "interface name should be less than {} characters",
            INTERFACE_LENGTH + 1
        );
        return Err(invalid("interface name is too long").with_details(details));
    }
    if name == "." || name == ".." {
        return Err(invalid("interface name is . or .."));
    }
    let is_bad = |c: char| c == '/' || c == ':' || c.is_whitespace();
    if name.contains(is_bad) {
        return Err(invalid("interface name contains / or : or whitespace characters"));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn variables(entries: &[(&str, &str)]) -> BTreeMap<String, String> {
        entries
            .iter()
            .map(|(name, value)| ((*name).to_owned(), (*value).to_owned()))
            .collect()
    }

    #[test]
    fn all_missing_variables_are_named_in_order() {
        let read = |command, entries: &[(&str, &str)]| Environment::read(command, &variables(entries));
        let error = read(Command::Add, &[(NAMESPACE, "x")]).unwrap_err();
        assert_eq!(
            error.msg,
            "required env variables [CNI_CONTAINERID,CNI_IFNAME,CNI_PATH] missing"
        );
        assert_eq!(error.code.number(), 4);
        let error = read(Command::Del, &[(CONTAINER_ID, "x"), (INTERFACE, "y")]).unwrap_err();
        assert_eq!(error.msg, "required env variables [CNI_PATH] missing");
        assert!(read(Command::Version, &[]).is_ok() && read(Command::Gc, &[]).is_err());
        let found = read(Command::Status, &[(PATH, "x"), (NAMESPACE_OVERRIDE, "TRUE")]).unwrap();
        assert!(found.any_namespace);
    }

    #[test]
    fn names_of_containers_and_interfaces() {
        let check = |container: &str, interface: &str| {
            let set = [(CONTAINER_ID, container), (INTERFACE, interface), (PATH, "x")];
            Environment::read(Command::Del, &variables(&set))
        };
        assert!(check("a1_b.c-d", "eth0").is_ok() && check("0", "a23456789012345").is_ok());
        for container in ["-a", "a/b", "a b", "ü", ".a", "a\n"] {
            let error = check(container, "eth0").unwrap_err();
            assert_eq!(
                (error.code, error.details.as_str()),
                (Code::InvalidEnvironment, container)
            );
        }
        for interface in ["a234567890123456", ".", "..", "a/b", "a:b", "a b", "a\t"] {
            assert!(check("a", interface).is_err(), "{interface:?}");
        }
        let both = check("-a", "").unwrap_err();
        assert_eq!(
            both.msg, "invalid characters in containerID",
            "malformed ones come before missing ones"
        );
        let unused = [(CONTAINER_ID, "-a"), (PATH, "x")];
        assert!(Environment::read(Command::Gc, &variables(&unused)).is_ok());
    }

    #[test]
    fn commands() {
        assert_eq!(command_name(&variables(&[])), None);
        assert_eq!(command_name(&variables(&[(COMMAND, "")])), None);
        assert_eq!(command_name(&variables(&[(COMMAND, "GC")])), Some("GC"));
        assert_eq!(Command::from_name("GC"), Some(Command::Gc));
        assert_eq!(Command::from_name("add"), None);
    }

    #[test]
    fn commands_need_their_version() {
        assert!(
            Command::Add.check_version(Version::V0_1_0).is_ok()
                && Command::Check.check_version(Version::V0_4_0).is_ok()
        );
        assert!(
            Command::Gc.check_version(Version::V1_1_0).is_ok()
                && Command::Status.check_version(Version::V1_1_0).is_ok()
        );
        let error = Command::Check.check_version(Version::V0_3_1).unwrap_err();
        assert_eq!(
            error,
            CniError::new(Code::IncompatibleVersion, "config version does not allow CHECK")
        );
        assert!(Command::Gc.check_version(Version::V1_0_0).is_err());
    }
}
