//! Blocks that an allocator can work with although something about them is not as it should be.

use serde_json::Value;

use super::{Block, BlockContent, BlockProblem};
use crate::DecodeError;

impl BlockContent {
    /// The block as an allocator takes it: sound, or with nothing wrong but records that no ordinal refers to, which are
    /// left out. Calico drops them with its next write (3.33 and later), and a release must not fail for them.
    pub fn usable(&self) -> Option<&Block> {
        match self {
            Self::Sound(block) => Some(block),
            Self::Corrupt(block) => block.usable.as_deref(),
        }
    }

    /// As [`Self::usable`].
    pub fn into_usable(self) -> Result<Box<Block>, DecodeError> {
        match self {
            Self::Sound(block) => Ok(block),
            Self::Corrupt(block) => block.usable.ok_or(DecodeError::Corrupt(block.problems)),
        }
    }
}

/// The block without the records that no ordinal refers to; `None` if anything else is wrong with it.
pub(super) fn without_unreferenced(json: &str, problems: &[BlockProblem]) -> Option<Block> {
    let index = |problem: &BlockProblem| match problem {
        BlockProblem::UnreferencedAttribute { index } => Some(u64::from(*index)),
        _ => None,
    };
    let unused: Vec<u64> = problems.iter().map(index).collect::<Option<_>>()?;

    let mut value: Value = serde_json::from_str(json).ok()?;
    let mut indices = 0u64..;
    let records = value.get_mut("attributes")?.as_array_mut()?;
    records.retain(|_| indices.next().is_some_and(|index| unused.binary_search(&index).is_err()));
    for allocation in value.get_mut("allocations")?.as_array_mut()? {
        let Some(index) = allocation.as_u64() else { continue };
        let before = unused.partition_point(|unused| *unused < index) as u64;
        *allocation = (index - before).into();
    }
    match BlockContent::parse(value.to_string().as_bytes()).ok()? {
        BlockContent::Sound(block) => Some(*block),
        BlockContent::Corrupt(_) => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A block of four addresses, the first two allocated.
    fn block(allocations: &str, attributes: &str) -> BlockContent {
        let json = format!(
            r#"{{"cidr":"10.0.0.0/30","affinity":"host:a","allocations":{allocations},"unallocated":[2,3],
            "attributes":[{attributes}],"sequenceNumber":18446744073709551615,"sequenceNumberForAllocation":{{}},"deleted":false}}"#
        );
        BlockContent::parse(json.as_bytes()).unwrap()
    }

    #[test]
    fn records_that_no_ordinal_refers_to_are_left_out() {
        let (one, two) = (r#"{"handle_id":"h1"}"#, r#"{"handle_id":"h2","secondary":{"node":"a"}}"#);
        let stray = r#"{"handle_id":"stray"}"#;
        let sound = block("[0,1,null,null]", &format!("{one},{two}")).into_usable().unwrap();
        for (allocations, attributes) in [
            ("[1,2,null,null]", format!("{stray},{one},{two}")),
            ("[0,2,null,null]", format!("{one},{stray},{two}")),
            ("[1,3,null,null]", format!("{stray},{one},{stray},{two},{stray}")),
        ] {
            let content = block(allocations, &attributes);
            assert!(content.sound().is_none(), "a check still tells it");
            assert_eq!(content.into_usable().unwrap(), sound);
        }
        let broken =
            block("[0,7,null,null]", &format!("{one},{stray}")).into_usable().unwrap_err().to_string();
        assert!(broken.contains("attribute 7") && broken.contains("attribute 1"), "{broken}");
    }
}
