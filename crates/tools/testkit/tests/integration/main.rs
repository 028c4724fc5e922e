//! Tests the output of the generator without using any part of the product.

mod generator;
mod kubernetes_objects;
