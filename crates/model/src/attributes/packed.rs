//! Owner records outside their blocks.

use std::fmt;
use std::sync::Arc;

use super::{Attribute, AttributeRef};

/// A packed owner record outside its block. Plans and reports hold a hundred thousand of them. Clones share the bytes.
#[derive(Clone)]
pub struct PackedAttribute(Arc<[u8]>);

impl PackedAttribute {
    /// Copies a record from its packed form.
    pub(super) fn of_bytes(bytes: &[u8]) -> Self {
        Self(bytes.into())
    }

    /// Borrows the record like one in a block.
    pub fn as_ref(&self) -> AttributeRef<'_> {
        AttributeRef::read(&self.0)
    }
}

impl From<&Attribute> for PackedAttribute {
    fn from(attribute: &Attribute) -> Self {
        attribute.with_ref(|record| record.to_packed())
    }
}

impl From<Attribute> for PackedAttribute {
    fn from(attribute: Attribute) -> Self {
        Self::from(&attribute)
    }
}

impl PartialEq for PackedAttribute {
    fn eq(&self, other: &Self) -> bool {
        self.as_ref().is_same(other.as_ref())
    }
}

impl Eq for PackedAttribute {}

impl fmt::Debug for PackedAttribute {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.as_ref().to_attribute().fmt(f)
    }
}

#[cfg(test)]
mod tests {
    use super::super::AttributeTable;
    use super::*;
    use crate::json::Unknown;

    #[test]
    fn a_record_apart_says_the_same_whatever_the_order_of_its_entries() {
        let record =
            Attribute::new(Some("k8s-pod-network.3f9a"), [("pod", "web-0"), ("namespace", "default")]);
        let apart = PackedAttribute::from(&record);
        assert_eq!(apart.as_ref().to_attribute(), record);
        let mut table = AttributeTable::default();
        let owner = record.owner.as_ref().unwrap();
        let backwards = owner.iter().rev().map(|(key, value)| (key.as_str().into(), value.as_str()));
        table.push_parts(record.handle.as_deref(), Some(backwards), None, None, &Unknown::new());
        table.push(&Attribute { handle: None, ..record.clone() });
        let [turned, other] = [0, 1].map(|index| table.get(index).unwrap().to_packed());
        assert!(turned.0 != apart.0 && turned == apart && other != apart);
        assert_eq!(AttributeRef::default().to_packed(), PackedAttribute::from(Attribute::default()));
    }
}
