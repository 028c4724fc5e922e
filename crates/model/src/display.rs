//! Helpers for types and fields whose serialized form is their display text.

use std::fmt::Display;

use serde::Serializer;

/// Serializes a field as its display text.
pub fn text<S: Serializer>(value: &impl Display, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_str(value)
}

/// Serializes an optional field as its display text, or as null.
pub fn text_or_null<S: Serializer>(value: &Option<impl Display>, serializer: S) -> Result<S::Ok, S::Error> {
    if let Some(value) = value {
        serializer.collect_str(value)
    } else {
        serializer.serialize_none()
    }
}

/// Implements `Display` for types, with the text that they serialize to.
#[macro_export]
macro_rules! display_serialized {
    ($($type:ty),*) => {$(
        impl ::std::fmt::Display for $type {
            fn fmt(&self, f: &mut ::std::fmt::Formatter<'_>) -> ::std::fmt::Result {
                ::serde::Serialize::serialize(self, f)
            }
        }
    )*};
}

/// Implements `Serialize` for types, with their display text.
#[macro_export]
macro_rules! serialize_displayed {
    ($($type:ty),*) => {$(
        impl ::serde::Serialize for $type {
            fn serialize<S: ::serde::Serializer>(&self, serializer: S) -> ::std::result::Result<S::Ok, S::Error> {
                serializer.collect_str(self)
            }
        }
    )*};
}
