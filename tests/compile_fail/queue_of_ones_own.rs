//! O1, O6: a queue that orders nothing cannot be made.
use tenure::queue::Submit;
use tenure_sim::driver::Sim;

struct Silent;

impl Submit<Sim> for Silent {}

fn main() {}
