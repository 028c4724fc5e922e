//! Lists and maps that are being written.

use serde::{Serialize, ser};

use super::{Emitter, Error, Place};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    List,
    Map,
}

/// A list or map that is being written.
pub struct Collection<'e, 'a> {
    pub(super) emitter: &'e mut Emitter<'a>,
    pub(super) kind: Kind,
    /// Where it stands.
    pub(super) place: Place,
    /// The indentation around it.
    pub(super) outer: usize,
    pub(super) is_empty: bool,
}

impl Collection<'_, '_> {
    /// Goes to where the next item or key stands. Only with the first one it is known that the collection is not empty.
    fn next(&mut self) {
        match self.place {
            _ if !self.is_empty => self.emitter.indent(),
            Place::Colon => {
                self.emitter.buffer.push(b'\n');
                self.emitter.indent();
            }
            Place::Dash => self.emitter.buffer.push(b' '),
            Place::Begin | Place::Key => {}
        }
        self.is_empty = false;
        self.emitter.place = match self.kind {
            Kind::Map => Place::Key,
            Kind::List => {
                self.emitter.buffer.push(b'-');
                Place::Dash
            }
        };
    }

    fn item<T: Serialize + ?Sized>(&mut self, value: &T) -> Result<(), Error> {
        self.next();
        value.serialize(&mut *self.emitter)
    }

    fn close(self) -> Result<(), Error> {
        self.emitter.indentation = self.outer;
        if !self.is_empty {
            return Ok(());
        }
        self.emitter.place = self.place;
        self.emitter.bare(if self.kind == Kind::List { "[]" } else { "{}" })
    }
}

/// Lists, tuples and structs with numbered fields are written alike.
macro_rules! list {
    ($kind:ident, $item:ident) => {
        impl ser::$kind for Collection<'_, '_> {
            type Ok = ();
            type Error = Error;

            fn $item<T: Serialize + ?Sized>(&mut self, value: &T) -> Result<(), Error> {
                self.item(value)
            }

            fn end(self) -> Result<(), Error> {
                self.close()
            }
        }
    };
}

list!(SerializeSeq, serialize_element);
list!(SerializeTuple, serialize_element);
list!(SerializeTupleStruct, serialize_field);

impl ser::SerializeMap for Collection<'_, '_> {
    type Ok = ();
    type Error = Error;

    fn serialize_key<T: Serialize + ?Sized>(&mut self, key: &T) -> Result<(), Error> {
        self.item(key)
    }

    fn serialize_value<T: Serialize + ?Sized>(&mut self, value: &T) -> Result<(), Error> {
        value.serialize(&mut *self.emitter)
    }

    fn end(self) -> Result<(), Error> {
        self.close()
    }
}

impl ser::SerializeStruct for Collection<'_, '_> {
    type Ok = ();
    type Error = Error;

    fn serialize_field<T: Serialize + ?Sized>(&mut self, key: &'static str, value: &T) -> Result<(), Error> {
        self.next();
        self.emitter.key(key)?;
        value.serialize(&mut *self.emitter)
    }

    fn end(self) -> Result<(), Error> {
        self.close()
    }
}
