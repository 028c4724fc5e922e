//! The step that adds a pool: Calico has no command that chooses a range, so a person fills in name and CIDR.

use super::calicoctl;
use crate::render::text::shell_word;

/// Returns the step that adds a pool with the fields of an existing one, such as its encapsulation and selectors.
pub(super) fn like(pool: &str) -> String {
    let copy = calicoctl(&format!(
        "get ippool {} --export -o yaml > POOL.yaml",
        shell_word(pool)
    ));
    let create = calicoctl("create -f POOL.yaml");
    format!(
        "add a pool: copy {pool} ({copy}), give it another name and a CIDR that nothing uses, and create it: {create}"
    )
}

/// Returns the step that adds a pool with Calico's defaults.
pub(super) fn with_defaults() -> String {
    with_fields("")
}

/// Returns the step that adds a pool for LoadBalancer services.
pub(super) fn for_services() -> String {
    with_fields(r#","allowedUses":["LoadBalancer"]"#)
}

/// Returns the step that adds a pool with these fields of `spec` besides the CIDR, as JSON after a comma.
fn with_fields(fields: &str) -> String {
    let pool = format!(
        r#"{{"apiVersion":"projectcalico.org/v3","kind":"IPPool","metadata":{{"name":"NAME"}},"spec":{{"cidr":"CIDR"{fields}}}}}"#
    );
    let create = calicoctl(&format!("create -f - <<< '{pool}'"));
    format!("add a pool with a CIDR that nothing uses: {create}")
}
