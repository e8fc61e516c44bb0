//! Scenarios: a stream bug as ten lines of text that replay, with no GPU.
//!
//! A file declares streams and memory, says what host threads do, and what must come of it. It runs on the real core
//! over the simulated device, under every schedule where those are few and under seeds where not. docs/scenarios.md
//! tells the language.
//!
//! | part | what it does |
//! |---|---|
//! | [`grammar`] | the tree of a file |
//! | `parse` | text to tree, with errors that say what was expected |
//! | `stage`, `play` | what names stand for, and what steps do |
//! | `run` | schedules, verdicts |
//! | `progress` | how far a replay is |
//! | `shrink` | the smallest schedule that still fails |
//! | `report`, `page`, `drawing` | results as text, JSON and a page with the lanes drawn |

mod drawing;
pub mod grammar;
mod page;
mod parse;
mod play;
mod progress;
mod replay;
mod report;
mod run;
mod shrink;
mod stage;
mod vocabulary;

pub use self::parse::{ParseError, parse};
pub use self::progress::Progress;
pub use self::replay::{Loaded, Options, Outcome, ScenarioResult, load, replay, replay_text, run_one};
pub use self::run::Verdict;
