//! capture
use super::list_cases;
list_cases!("capture": raw [] contract []);
