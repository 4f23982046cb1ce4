// Measurements of some tiles of a bucket.
#pragma once

#include "choice/guard.hpp"
#include "exchange/host/host_executor.hpp"

namespace gradwire::session {

/// Encodes some tiles that are about to be reduced, and returns how much the codec drops.
[[nodiscard]] choice::QualitySample sample_quality(const exchange::Task& task);
/// Returns the sum of squares over some tiles, of gradients or of results.
[[nodiscard]] double squared_norm(const codec::TensorList& tensors);

}  // namespace gradwire::session
