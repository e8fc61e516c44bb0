//! registration
use super::list_cases;
list_cases!("registration": raw [] contract []);
