//! Versions of the CNI specification.

use std::fmt;

use super::{CniError, Code};

/// A supported version.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Version {
    V0_1_0,
    V0_2_0,
    V0_3_0,
    V0_3_1,
    V0_4_0,
    V1_0_0,
    V1_1_0,
}

impl Version {
    pub const ALL: [Self; 7] = [
        Self::V0_1_0,
        Self::V0_2_0,
        Self::V0_3_0,
        Self::V0_3_1,
        Self::V0_4_0,
        Self::V1_0_0,
        Self::V1_1_0,
    ];
    pub const NEWEST: Self = Self::V1_1_0;

    /// The version as configurations state it.
    pub fn text(self) -> &'static str {
        match self {
            Self::V0_1_0 => "0.1.0",
            Self::V0_2_0 => "0.2.0",
            Self::V0_3_0 => "0.3.0",
            Self::V0_3_1 => "0.3.1",
            Self::V0_4_0 => "0.4.0",
            Self::V1_0_0 => "1.0.0",
            Self::V1_1_0 => "1.1.0",
        }
    }

    /// Parses a configuration's version. An empty string means the oldest version.
    pub fn parse_configuration(text: &str) -> Result<Self, CniError> {
        if text.is_empty() {
            return Ok(Self::V0_1_0);
        }
        let found = Self::ALL.into_iter().find(|version| version.text() == text);
        found.ok_or_else(|| {
            let supported = Self::ALL.map(|version| format!("{:?}", version.text())).join(" ");
            let details = format!("config is {text:?}, plugin supports [{supported}]");
            CniError::new(Code::IncompatibleVersion, "incompatible CNI versions").with_details(details)
        })
    }
}

impl fmt::Display for Version {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.text())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_version_must_match_exactly() {
        assert_eq!(Version::parse_configuration(""), Ok(Version::V0_1_0));
        for version in Version::ALL {
            assert_eq!(Version::parse_configuration(version.text()), Ok(version));
        }
        for text in ["1.2.0", "0.3", "1", "v1.0.0", " 1.0.0", "latest"] {
            let error = Version::parse_configuration(text).unwrap_err();
            let expected = (Code::IncompatibleVersion, "incompatible CNI versions");
            assert_eq!((error.code, error.msg.as_str()), expected);
            assert!(
                error.details.contains(text) && error.details.contains("0.4.0"),
                "{}",
                error.details
            );
        }
    }
}
