// Makes inputs that look like gradients: rows of very different size, a few outliers, another seed on each rank.
#pragma once

#include <cstdint>
#include <span>

namespace gradwire::bench {

/// Fills in elements [first, first + values.size()) of the gradient of one rank. Rows have 1024 elements; a row's scale
/// is lognormal (sigma 1) and the same on every rank, as for the rows of one weight matrix; elements are Gaussian times
/// that, and 0.1% of them are 30 times larger. They are a pure function of (rank, index), so any rank can make any
/// part.
void fill_gradient(int rank, std::uint64_t first, std::span<float> values);

}  // namespace gradwire::bench
