//! The models: the same bodies for loom, for shuttle and for real threads.
//!
//! A model is named by its claim. Its body has four labelled parts: setup, threads, join, claim. Beside the claim it
//! must *reach* each contested path that it names in at least one execution, and it must kill the mutants that
//! `mutants.rs` gives to it.
//!
//! This module is included once for each checker; `super` is the checker's side.

use super::{checker, tenure};
use crate::model::{Litmus, Model, Reached, Search};

pub mod adopted;
pub mod biased;
pub mod capture;
pub mod device;
pub mod graph;
pub mod life;
pub mod litmus;
pub mod loss;
pub mod ownership;
pub mod process;
pub mod reclaim;
pub mod registration;
pub mod shutdown;
pub mod staging;
pub mod stream;

/// All models.
pub fn all() -> Vec<&'static Model> {
    let files = [
        litmus::MODELS,
        biased::MODELS,
        ownership::MODELS,
        stream::MODELS,
        adopted::MODELS,
        registration::MODELS,
        process::MODELS,
        staging::MODELS,
        reclaim::MODELS,
        capture::MODELS,
        graph::MODELS,
        shutdown::MODELS,
        life::MODELS,
        loss::MODELS,
    ];
    files.into_iter().flatten().collect()
}
