//! stream
use super::list_cases;
list_cases!("stream": raw [] contract []);
