//! Helpers for Kubernetes protobuf messages.

use std::borrow::Cow;

use super::{ObjectError, Result};
use crate::protobuf::{Fields, Value};

/// Iterates over the fields of a message.
pub(crate) fn each<'a>(message: &'a [u8], mut take: impl FnMut(u32, Value<'a>) -> Result<()>) -> Result<()> {
    let mut fields = Fields::new(message);
    while let Some((field, value)) = fields.next_field().ok_or(ObjectError::Message)? {
        take(field, value)?;
    }
    Ok(())
}

/// Decodes a message: `decode!(bytes, pod: Pod, value, { 1 => pod.name = text(value)? })` runs an expression for each
/// wanted field, and returns the message from the function.
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

/// Reads a string field.
pub(crate) fn text(value: Value<'_>) -> Result<Cow<'_, str>> {
    let text = std::str::from_utf8(value.bytes()).map_err(|_| ObjectError::Text)?;
    Ok(Cow::Borrowed(text))
}

/// Reads a map entry: key and value.
pub(crate) fn entry(message: &[u8]) -> Result<(&[u8], &[u8])> {
    decode!(message, entry: (&[u8], &[u8]), value, { 1 => entry.0 = value.bytes(), 2 => entry.1 = value.bytes() })
}
