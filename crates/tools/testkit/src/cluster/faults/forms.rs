//! The faults that a cluster can have in each form.

use super::Fault;
use crate::cluster::Form;

impl Fault {
    /// True if a cluster in this form can have the fault. In etcd it always can. In Kubernetes it cannot if
    ///
    /// * the value is not JSON, or JSON that the schema refuses: the API server accepts neither;
    /// * the key is broken: the name of an object has no family, no type and no slash that could be wrong, and only
    ///   small letters, so no carriage return;
    /// * two objects would need one name: the type of an affinity is not part of it;
    /// * it is a difference between two keys of etcd that are one object in Kubernetes.
    ///
    /// A text that is not a CIDR is possible in the classic group only. There the schema of pools and reservations had
    /// no format before 3.32, and the schema of blocks still has none.
    pub fn exists_in(self, form: Form) -> bool {
        if Form::IN_ETCD.contains(&form) {
            return true;
        }
        match self {
            // Not JSON, or not an object.
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
            // Keys that cannot be names.
            Self::CarriageReturn
            | Self::CarriageReturnKey
            | Self::UndecodableBlockKey
            | Self::UndecodableFamily
            | Self::UppercaseBlockKey
            | Self::UndecodableHandleKey
            | Self::UndecodableKey
            | Self::UndecodableBytes => false,
            // Affinities of another type, which would have the name of the node's own.
            Self::AffinityUnexpected | Self::UndecodableAffinityType => false,
            // Two keys in etcd.
            Self::ConfigurationMismatch => false,
            // The schema allows no other owner.
            Self::BlockUnexpectedOwner => form == Form::Classic,
            Self::UndecodableBlockCidr | Self::UndecodablePool | Self::UndecodableReservationField => {
                form == Form::Classic
            }
            // Text in the classic group, a boolean in the native one.
            Self::AffinityDeletedText => form == Form::Classic,
            _ => true,
        }
    }
}
