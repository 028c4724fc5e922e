//! Helpers for Kubernetes protobuf messages.

use std::borrow::Cow;
use std::ops::Deref;

use serde::{Deserialize, Serialize};

use super::Result;
use crate::protobuf::{Fields, Value};

/// Iterates over the fields of a message.
pub(crate) fn each<'a>(message: &'a [u8], mut take: impl FnMut(u32, Value<'a>) -> Result<()>) -> Result<()> {
    let mut fields = Fields::new(message);
    while let Some((field, value)) = fields.next_field().ok_or("the message is malformed")? {
        take(field, value)?;
    }
    Ok(())
}

/// Decodes a message: `decode!(bytes, pod: Pod, value, { 1 => pod.name = text(value)? })` runs an expression for each
/// wanted field. The macro evaluates to `Ok` with the message.
macro_rules! decode {
    ($bytes:expr, $message:ident: $type:ty, $value:ident, { $($field:pat $(if $wanted:expr)? => $take:expr),* $(,)? }) => {{
        let mut $message = <$type>::default();
        $crate::objects::wire::each($bytes, |field, $value| {
            match field {
                $($field $(if $wanted)? => $take,)*
                _ => {}
            }
            Ok(())
        })?;
        Ok($message)
    }};
}
pub(crate) use decode;

/// A string that borrows from the object if possible.
#[derive(Debug, Default, Deserialize, Serialize)]
#[serde(transparent)]
pub struct Text<'a>(#[serde(borrow)] pub Cow<'a, str>);

impl Deref for Text<'_> {
    type Target = str;

    fn deref(&self) -> &str {
        &self.0
    }
}

/// A type that can be read from a field of a message.
pub(crate) trait Take<'a>: Default {
    /// Reads one occurrence of the field. A repeated field occurs once for each item.
    fn take(&mut self, value: Value<'a>) -> Result<()>;
}

impl<'a> Take<'a> for Text<'a> {
    fn take(&mut self, value: Value<'a>) -> Result<()> {
        self.0 = text(value)?;
        Ok(())
    }
}

impl<'a> Take<'a> for bool {
    fn take(&mut self, value: Value<'a>) -> Result<()> {
        *self = value.number() != 0;
        Ok(())
    }
}

impl<'a, T: Take<'a>> Take<'a> for Option<T> {
    fn take(&mut self, value: Value<'a>) -> Result<()> {
        self.get_or_insert_default().take(value)
    }
}

impl<'a, T: Take<'a>> Take<'a> for Vec<T> {
    fn take(&mut self, value: Value<'a>) -> Result<()> {
        let mut item = T::default();
        item.take(value)?;
        self.push(item);
        Ok(())
    }
}

/// Declares a message: the number, name in JSON, and type of each wanted field.
macro_rules! message {
    ($vis:vis $message:ident { $($(#[$attribute:meta])* $number:literal $json:literal $field:ident: $type:ty),* $(,)? }) => {
        #[derive(Debug, Default, serde::Deserialize, serde::Serialize)]
        #[serde(default, bound(deserialize = "'de: 'a"))]
        $vis struct $message<'a> {
            $($(#[$attribute])* #[serde(rename = $json)] $vis $field: $type,)*
        }

        impl<'a> $crate::objects::wire::Take<'a> for $message<'a> {
            fn take(&mut self, message: $crate::protobuf::Value<'a>) -> $crate::objects::Result<()> {
                $crate::objects::wire::each(message.bytes(), |field, value| match field {
                    $($number => $crate::objects::wire::Take::take(&mut self.$field, value),)*
                    _ => Ok(()),
                })
            }
        }
    };
}
pub(crate) use message;

/// Reads a string field.
pub(crate) fn text(value: Value<'_>) -> Result<Cow<'_, str>> {
    let text = std::str::from_utf8(value.bytes()).map_err(|_| "a text field is not UTF-8")?;
    Ok(Cow::Borrowed(text))
}

/// Reads a map entry: key and value.
pub(crate) fn entry(message: &[u8]) -> Result<(&[u8], &[u8])> {
    decode!(message, entry: (&[u8], &[u8]), value, { 1 => entry.0 = value.bytes(), 2 => entry.1 = value.bytes() })
}
