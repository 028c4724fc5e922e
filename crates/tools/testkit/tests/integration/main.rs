//! The output of the generator, with no part of the product in between.

mod generator;
mod kubernetes_objects;
