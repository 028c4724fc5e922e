//! The faults that a cluster can have in each form.

use super::Fault;
use crate::cluster::Form;

impl Fault {
    /// True if a cluster in this form can have the fault. A cluster in etcd always can. A cluster in Kubernetes cannot
    /// in these cases:
    ///
    /// * The value is not JSON, or the schema refuses it. The API server accepts neither.
    /// * The key is broken. The name of an object has no family, type or slash that could be wrong. It is in lower
    ///   case, and has no carriage return.
    /// * Two objects would need the same name, since the name of an affinity does not contain its type.
    /// * The fault is a difference between two etcd keys that are a single object in Kubernetes.
    ///
    /// A string that is not a CIDR is possible only in the classic group. Its schema for pools and reservations did not
    /// require the format of a CIDR before 3.32, and its schema for blocks still does not.
    pub fn exists_in(self, form: Form) -> bool {
        if Form::IN_ETCD.contains(&form) {
            return true;
        }
        match self {
            // The value is not JSON, or not an object.
            Self::UndecodableBlock
            | Self::UndecodableAffinity
            | Self::UndecodableNode
            | Self::UndecodableEndpoint
            | Self::UndecodableInformation
            | Self::UndecodableReservation
            | Self::UndecodableConfiguration => false,
            // The schema requires a list, numbers, a map of numbers, an object, or a boolean.
            Self::CorruptNull
            | Self::UndecodableBlockType
            | Self::UndecodableHandle
            | Self::UndecodableControllers
            | Self::UndecodableConfig => false,
            // The key cannot be a name.
            Self::CarriageReturn
            | Self::CarriageReturnKey
            | Self::UndecodableBlockKey
            | Self::UndecodableFamily
            | Self::UppercaseBlockKey
            | Self::UndecodableHandleKey
            | Self::UndecodableKey
            | Self::UndecodableBytes => false,
            // The affinity has another type, but would have the same name as the node's own affinity.
            Self::AffinityUnexpected | Self::UndecodableAffinityType => false,
            // Two keys in etcd are one object in Kubernetes.
            Self::ConfigurationMismatch => false,
            // The schema allows no other owner.
            Self::BlockUnexpectedOwner => form == Form::Classic,
            Self::UndecodableBlockCidr | Self::UndecodablePool | Self::UndecodableReservationField => {
                form == Form::Classic
            }
            // The field is a string in the classic group, and a boolean in the native one.
            Self::AffinityDeletedText => form == Form::Classic,
            _ => true,
        }
    }
}
