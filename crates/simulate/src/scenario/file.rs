//! Scenarios in files.

use super::Scenario;

/// A file that is not a scenario.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub struct FileError(#[from] serde_yaml::Error);

impl Scenario {
    /// Reads a scenario in YAML, of which JSON is a part.
    ///
    /// # Errors
    /// If it is not YAML, a name is not known, or a value is none of its kind: the error says where.
    pub fn read(text: &str) -> Result<Self, FileError> {
        Ok(serde_yaml::from_str(text)?)
    }

    /// The same with another value of one field, by its name in a file; the value is YAML.
    ///
    /// # Errors
    /// If there is no such field, or it takes no such value.
    pub fn with_field(&self, name: &str, value: &str) -> Result<Self, FileError> {
        let mut fields: serde_yaml::Mapping = serde_yaml::from_value(serde_yaml::to_value(self)?)?;
        fields.insert(name.into(), serde_yaml::from_str(value)?);
        let changed: Self = serde_yaml::from_value(fields.into())?;
        Ok(Self { start: self.start.clone(), ..changed })
    }

    /// The scenario in YAML.
    pub fn to_yaml(&self) -> String {
        serde_yaml::to_string(self).unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::scenario::{Event, Planned, PoolSpec};
    use crate::time::Micros;

    #[test]
    fn a_file_says_what_differs_and_reads_back() {
        let text = "
            nodes: 12
            datastore: kubernetes
            pools: [{cidr: 10.0.0.0/16, blockSize: 28}, {cidr: 10.1.0.0/16}]
            arrival: 4/s
            collector: null
            events:
              - {at: 10m, what: {failNode: node-3}}
              - at: 0
                what: {restart: {batch: 25}}
        ";
        let scenario = Scenario::read(text).unwrap();
        let pool = |cidr: &str, block_size| PoolSpec { block_size, ..PoolSpec::new(cidr.parse().unwrap()) };
        let expected = Scenario {
            nodes: 12,
            datastore: calipam_model::snapshot::DatastoreKind::Kubernetes,
            pools: vec![pool("10.0.0.0/16", Some(28)), pool("10.1.0.0/16", None)],
            arrival: Some("4".parse().unwrap()),
            collector: None,
            events: vec![
                Planned { at: Micros::from_mins(10), what: Event::FailNode("node-3".into()) },
                Planned { at: Micros::ZERO, what: Event::Restart { batch: 25 } },
            ],
            ..Scenario::default()
        };
        assert_eq!(scenario, expected);
        assert_eq!(Scenario::read(&scenario.to_yaml()).unwrap(), scenario, "{}", scenario.to_yaml());
    }

    #[test]
    fn one_field_changes_by_its_name() {
        let scenario = Scenario { nodes: 7, ..Scenario::default() };
        let changed = scenario.with_field("cooldown", "30s").unwrap();
        assert_eq!(changed, Scenario { cooldown: Micros::from_secs(30), ..scenario.clone() });
        let changed = scenario.with_field("collector", "{grace: 5m}").unwrap();
        assert_eq!(changed.collector.unwrap().grace, Micros::from_mins(5));
        assert!(scenario.with_field("nodez", "1").unwrap_err().to_string().contains("nodez"));
        assert!(scenario.with_field("nodes", "many").is_err());
    }

    #[test]
    fn errors_say_what_and_where() {
        for (text, says) in [
            ("nodes: -1", "nodes"),
            ("arrival: -3/s", "negative"),
            ("nodez: 1", "nodez"),
            ("pools: [{cidr: 10.0.0.0/99}]", "line 1"),
            ("events: [{at: 1s, what: {explode: a}}]", "explode"),
        ] {
            let error = Scenario::read(text).unwrap_err().to_string();
            assert!(error.contains(says), "{text}: {error}");
        }
    }
}
