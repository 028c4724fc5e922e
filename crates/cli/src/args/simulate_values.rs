//! Option values for `simulate`.

use std::str::FromStr;

use calipam_assign::Family;
use calipam_model::snapshot::DatastoreKind;
use calipam_simulate::answer::Cause;
use calipam_simulate::{Families, Micros};
use clap::builder::{PossibleValue, PossibleValuesParser, TypedValueParser};

/// Parses a datastore that can be simulated.
pub(super) fn model() -> impl TypedValueParser<Value = DatastoreKind> {
    PossibleValuesParser::new(["etcd", "kubernetes"]).map(|name| match name.as_str() {
        "kubernetes" => DatastoreKind::Kubernetes,
        _ => DatastoreKind::Etcd,
    })
}

/// Parses the families in which a pod gets addresses.
pub(super) fn families() -> impl TypedValueParser<Value = Families> {
    PossibleValuesParser::new(["ipv4", "ipv6", "dual"]).map(|name| match name.as_str() {
        "ipv4" => Families::Ipv4,
        "ipv6" => Families::Ipv6,
        _ => Families::Dual,
    })
}

/// Returns the parser of a cause of clashes. It yields `None` for the value `all`; the value `none` is a cause, too.
pub(super) fn cause() -> impl TypedValueParser<Value = Option<Cause>> {
    let mut possible_values = vec![PossibleValue::new("all").help("All of them")];
    for cause in Cause::ALL {
        possible_values.push(PossibleValue::new(cause.to_string()).help(help_of_cause(cause)));
    }
    PossibleValuesParser::new(possible_values).map(|name| {
        let mut causes = Cause::ALL.into_iter();
        // `all` is the only value that names none of them.
        causes.find(|cause| cause.to_string() == name)
    })
}

/// Returns the help of a cause of clashes.
fn help_of_cause(cause: Cause) -> &'static str {
    match cause {
        Cause::None => "No cause, for comparison",
        Cause::OldBackup => "etcd is restored from an old backup",
        Cause::SharedHandle => "A handle is shared by name, as in Calico 2",
        Cause::FreedByHand => "Addresses of running pods are released by hand",
        Cause::Partition => "A node is cut off and removed, and its pods keep running",
    }
}

/// One block size, or all block sizes of a range.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Sizes(pub Vec<u8>);

impl FromStr for Sizes {
    type Err = String;

    /// Parses a prefix length such as `26` or `/26`, or a range of them that includes its end, such as `24..29`.
    fn from_str(text: &str) -> Result<Self, String> {
        let refused = || "expected a prefix length such as `26`, or a range such as `24..29`".to_owned();
        let size = |text: &str| {
            let text = text.trim().trim_start_matches('/');
            text.parse::<u8>()
                .ok()
                .filter(|size| *size <= Family::V6.bits())
                .ok_or_else(refused)
        };
        let Some((first, last)) = text.split_once("..") else {
            return Ok(Self(vec![size(text)?]));
        };
        let first = size(first)?;
        // As in Rust, `24..=29` includes its end; here, `24..29` does, too.
        let last = size(last.trim_start_matches('='))?;
        if first > last {
            return Err(refused());
        }
        Ok(Self((first..=last).collect()))
    }
}

/// The time from the failure of a node to its removal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Removal {
    Never,
    After(Micros),
}

impl FromStr for Removal {
    type Err = String;

    /// Parses a duration, or `never`.
    fn from_str(text: &str) -> Result<Self, String> {
        if text == "never" {
            return Ok(Self::Never);
        }
        text.parse()
            .map(Self::After)
            .map_err(|error: calipam_simulate::NotADuration| format!("{error}, or `never`"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn block_sizes_are_one_or_a_range() {
        assert_eq!("26".parse(), Ok(Sizes(vec![26])));
        assert_eq!("/24../26".parse(), Ok(Sizes(vec![24, 25, 26])));
        assert_eq!("28..=29".parse(), Ok(Sizes(vec![28, 29])));
        for bad in ["", "29..24", "a", "24..", "129"] {
            assert!(bad.parse::<Sizes>().is_err(), "{bad}");
        }
    }
}
