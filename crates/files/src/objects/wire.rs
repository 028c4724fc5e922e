//! Small helpers over protobuf messages of Kubernetes.

use std::borrow::Cow;

use super::ObjectError;
use crate::protobuf::{Fields, Value};

/// Walks the fields of a message.
pub(crate) fn each<'a>(
    message: &'a [u8],
    mut take: impl FnMut(u32, Value<'a>) -> Result<(), ObjectError>,
) -> Result<(), ObjectError> {
    let mut fields = Fields::new(message);
    while let Some((field, value)) = fields.next_field().ok_or(ObjectError::Message)? {
        take(field, value)?;
    }
    Ok(())
}

/// A text field.
pub(crate) fn text(value: Value<'_>) -> Result<Cow<'_, str>, ObjectError> {
    let text = std::str::from_utf8(value.bytes()).map_err(|_| ObjectError::Text)?;
    Ok(Cow::Borrowed(text))
}

/// An entry of a map: key and value.
pub(crate) fn entry(message: &[u8]) -> Result<(&[u8], &[u8]), ObjectError> {
    let (mut key, mut content): (&[u8], &[u8]) = (&[], &[]);
    each(message, |field, value| {
        match field {
            1 => key = value.bytes(),
            2 => content = value.bytes(),
            _ => {}
        }
        Ok(())
    })?;
    Ok((key, content))
}
