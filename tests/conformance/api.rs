//! api
use super::list_cases;
list_cases!("api": raw [] contract []);
