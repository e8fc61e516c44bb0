//! reclaim
use super::list_cases;
list_cases!("reclaim": raw [] contract []);
