//! Which faults a cluster can have in which form.

use super::Fault;
use crate::cluster::Form;

impl Fault {
    /// True if a cluster in this form can have the fault. In etcd it always can. In Kubernetes it cannot where
    ///
    /// * the value is not JSON, or JSON that the schema refuses: the API server takes neither;
    /// * the key is broken: the name of an object says less than a key of etcd, no family, no type and no slash, so that
    ///   there is less to be wrong, and it holds small letters only, so that there is no carriage return in it;
    /// * two objects would need one name: the type of an affinity is not part of it;
    /// * it is about something that etcd holds twice and Kubernetes once.
    ///
    /// A text that should be a CIDR and is none is possible in the classic group only, where the schema of pools and
    /// reservations had no format before 3.32 and that of blocks has none to this day.
    pub fn exists_in(self, form: Form) -> bool {
        if Form::IN_ETCD.contains(&form) {
            return true;
        }
        match self {
            // No JSON, or no object.
            Self::UndecodableBlock
            | Self::UndecodableAffinity
            | Self::UndecodableNode
            | Self::UndecodableEndpoint
            | Self::UndecodableInformation
            | Self::UndecodableReservation
            | Self::UndecodableConfiguration => false,
            // The schema wants a list, numbers, a map of numbers, an object, true or false.
            Self::CorruptNull
            | Self::UndecodableBlockType
            | Self::UndecodableHandle
            | Self::UndecodableControllers
            | Self::UndecodableConfig => false,
            // Keys that are no names.
            Self::CarriageReturn
            | Self::CarriageReturnKey
            | Self::UndecodableBlockKey
            | Self::UndecodableFamily
            | Self::UppercaseBlockKey
            | Self::UndecodableHandleKey
            | Self::UndecodableKey
            | Self::UndecodableBytes => false,
            // Affinities of another type under the name of the node's own.
            Self::AffinityUnexpected | Self::UndecodableAffinityType => false,
            // Two keys in etcd.
            Self::ConfigurationMismatch => false,
            // The schema takes no other owner.
            Self::BlockUnexpectedOwner => form == Form::Classic,
            Self::UndecodableBlockCidr | Self::UndecodablePool | Self::UndecodableReservationField => {
                form == Form::Classic
            }
            // A text in the classic group, true or false in the native one.
            Self::AffinityDeletedText => form == Form::Classic,
            _ => true,
        }
    }
}
