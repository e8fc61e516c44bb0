//! HIP over a simulated device, which says that it is AMD's.

mod library;
