//! The check that the container has its own network namespace.

use std::fs;
use std::os::unix::fs::MetadataExt;

use crate::protocol::{CniError, Code, Environment};

/// The plugin's own network namespace.
const OWN: &str = "/proc/self/ns/net";

/// Compares the container's namespace with the plugin's own. Calico's plugin does this after allocating and printing
/// the addresses. This plugin does it first, so that nothing stays allocated.
///
/// # Errors
/// If both namespaces are the same. A path that cannot be opened is not an error: the namespace need not exist.
pub(crate) fn check(environment: &Environment) -> Result<(), CniError> {
    if environment.any_namespace || environment.namespace.is_empty() {
        return Ok(());
    }
    let (Ok(of_container), Ok(own)) = (fs::metadata(&environment.namespace), fs::metadata(OWN)) else {
        return Ok(());
    };
    let is_same = of_container.dev() == own.dev() && of_container.ino() == own.ino();
    if !is_same {
        return Ok(());
    }
    let text = format!(
        "plugin's netns and netns from CNI_NETNS={} should not be the same",
        environment.namespace
    );
    Err(CniError::new(Code::InvalidNamespace, text))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_own_namespace_is_refused() {
        let with = |namespace: &str| Environment {
            namespace: namespace.into(),
            ..Default::default()
        };
        assert_eq!(check(&with(OWN)).unwrap_err().code.number(), 8);
        assert!(
            check(&Environment {
                any_namespace: true,
                ..with(OWN)
            })
            .is_ok()
        );
        for namespace in ["", "/run/netns/none", "/proc/self/ns/uts"] {
            assert!(check(&with(namespace)).is_ok(), "{namespace}");
        }
    }
}
