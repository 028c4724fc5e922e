//! Refusals of scenarios, made where the reason is found.

/// The result of a simulation.
pub(crate) type Result<T, E = ScenarioError> = std::result::Result<T, E>;

/// The reason why a scenario cannot be simulated, and what helps.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct ScenarioError {
    message: String,
    pub hint: Option<&'static str>,
}

impl ScenarioError {
    pub(crate) fn new(message: impl Into<String>) -> Self {
        Self {
            message: message.into(),
            hint: None,
        }
    }

    pub(crate) fn hint(self, hint: &'static str) -> Self {
        Self {
            hint: Some(hint),
            ..self
        }
    }

    /// Refuses costs of requests.
    pub(crate) fn of_costs(message: impl Into<String>) -> Self {
        Self::new(message).hint("for example `--latency read=2ms,write=5ms`")
    }
}
