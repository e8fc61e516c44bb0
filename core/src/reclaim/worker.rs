//! The thread that takes the turns.
